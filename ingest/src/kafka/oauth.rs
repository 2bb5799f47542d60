//! Tokens of OAuth for brokers: OAUTHBEARER with the grant of client credentials (RFC 6749, 4.4), as Java's
//! `OAuthBearerLoginCallbackHandler` asks for them.
//!
//! librdkafka asks for a token at the start, and again before one expires. [`TokenSource::token`] then posts to the token endpoint.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chrono::Utc;
use rdkafka::client::OAuthToken;
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use tokio::runtime::Builder;

use super::jaas;
use crate::input::fetch::read_body;
use crate::{Options, tls};

/// Time of a request to the token endpoint where nothing is said, and its bound.
const TIMEOUT_MS: i64 = 10_000;
const MAX_TIMEOUT_MS: i64 = 60_000;
/// Largest answer of a token endpoint, in bytes.
const MAX_ANSWER: u64 = 1 << 20;
/// Lifetime of a token whose answer names none, in seconds: the token is renewed before.
const LIFETIME: i64 = 300;
/// Callback handlers of Java's client that this stands for.
const HANDLERS: [&str; 2] = [
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
];

/// Token endpoint and the client's credentials there.
pub(crate) struct TokenSource {
    endpoint: Url,
    client_id: String,
    authorization: HeaderValue,
    scope: Option<String>,
    timeout: Duration,
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenSource").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// Options of token requests.
pub(super) struct TokenOptions {
    endpoint: Option<String>,
    timeout: Duration,
}

impl TokenOptions {
    /// Takes the options, which have no effect with another mechanism.
    pub(super) fn take(options: &mut Options) -> Self {
        options.read(
            "sasl_login_callback_handler_class",
            "OAuthBearerLoginCallbackHandler of Kafka",
            |setting| HANDLERS.contains(&setting.as_text()?.as_str()).then_some(()),
        );
        // The claim is read by brokers; failed requests are repeated by librdkafka.
        let _ = options.text("sasl_oauthbearer_scope_claim_name");
        for name in ["sasl_login_retry_backoff_ms", "sasl_login_retry_backoff_max_ms"] {
            let _ = options.integer(name, 0..=86_400_000);
        }
        let connect = options.integer("sasl_login_connect_timeout_ms", 1..=MAX_TIMEOUT_MS);
        let read = options.integer("sasl_login_read_timeout_ms", 1..=MAX_TIMEOUT_MS);
        let timeout = match connect.unwrap_or(0) + read.unwrap_or(0) {
            0 => TIMEOUT_MS,
            both => both.min(MAX_TIMEOUT_MS),
        };
        Self {
            endpoint: options.text("sasl_oauthbearer_token_endpoint_url"),
            timeout: Duration::from_millis(timeout.unsigned_abs()),
        }
    }
}

impl TokenSource {
    /// Makes the source from the options and the text of a login module.
    ///
    /// # Errors
    /// The missing or wrong member, without secrets.
    pub(super) fn new(options: TokenOptions, login: &str) -> Result<Self, String> {
        let endpoint = options
            .endpoint
            .ok_or_else(|| "OAUTHBEARER needs the option [sasl_oauthbearer_token_endpoint_url]".to_owned())?;
        let endpoint =
            Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(
                || "[sasl_oauthbearer_token_endpoint_url] is no address of http or https".to_owned(),
            )?;
        let jaas::ClientCredentials { client_id, client_secret, scope } = jaas::client_credentials(login)?;
        let credentials = STANDARD.encode(format!("{client_id}:{client_secret}"));
        let mut authorization = HeaderValue::try_from(format!("Basic {credentials}"))
            .map_err(|_| "the credentials are no header".to_owned())?;
        authorization.set_sensitive(true);
        Ok(Self { endpoint, client_id, authorization, scope, timeout: options.timeout })
    }

    /// Gets a token. The calling thread waits, which may be one of the runtime: the request has a thread and a runtime of its own.
    ///
    /// # Errors
    /// The reason why there is none, without secrets.
    pub(crate) fn token(&self) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        let request = || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(self.request())
        };
        let token = std::thread::scope(|scope| {
            scope.spawn(request).join().unwrap_or_else(|_| Err("the request for a token failed".to_owned()))
        });
        token.map_err(|reason| {
            let endpoint = self.endpoint.host_str().unwrap_or_default();
            tracing::warn!(endpoint, reason, "there is no token for the brokers of kafka");
            reason.into()
        })
    }

    async fn request(&self) -> Result<OAuthToken, String> {
        let builder =
            reqwest::Client::builder().timeout(self.timeout).redirect(reqwest::redirect::Policy::none());
        let client = tls::Client::default().http_client(builder, None)?;
        // A form has the encoding of a query.
        let mut form = self.endpoint.clone();
        form.set_query(None);
        form.query_pairs_mut().append_pair("grant_type", "client_credentials");
        if let Some(scope) = &self.scope {
            form.query_pairs_mut().append_pair("scope", scope);
        }
        let body = form.query().unwrap_or_default().to_owned();
        let sending = client
            .post(self.endpoint.clone())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(body);
        let answer = sending.send().await.map_err(|error| error.without_url().to_string())?;
        let status = answer.status();
        let body = read_body(answer, MAX_ANSWER).await?;
        if !status.is_success() {
            // Of the body, only the standard members: others may have secrets.
            let text = |name: &str| {
                let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
                answer[name]
                    .as_str()
                    .map(|text| text.chars().take(200).collect::<String>())
                    .unwrap_or_default()
            };
            return Err(format!(
                "the token endpoint answers {status}: {} {}",
                text("error"),
                text("error_description")
            ));
        }
        read_token(&body, &self.client_id, Utc::now().timestamp())
    }
}

/// Reads the token of an answer: `sub` and `exp` of a JSON web token name its principal and its end. Of another token, the client is the
/// principal, and `expires_in` its lifetime.
fn read_token(body: &[u8], client_id: &str, now: i64) -> Result<OAuthToken, String> {
    let answer: Value = serde_json::from_slice(body)
        .map_err(|_| "the answer of the token endpoint is not JSON".to_owned())?;
    let token = answer["access_token"].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| "the answer of the token endpoint has no access_token".to_owned())?;
    if token.chars().any(char::is_control) {
        return Err("the access_token has control characters".to_owned());
    }
    let claims: Value = token
        .split('.')
        .nth(1)
        .and_then(|claims| URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok())
        .and_then(|claims| serde_json::from_slice(&claims).ok())
        .unwrap_or_default();
    let seconds = |value: &Value| {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "seconds since 1970; a cast of a float saturates"
        )]
        let whole = value.as_f64().map(|seconds| seconds as i64);
        whole.or_else(|| value.as_str()?.parse().ok())
    };
    let end = seconds(&claims["exp"])
        .unwrap_or_else(|| now.saturating_add(seconds(&answer["expires_in"]).unwrap_or(LIFETIME)));
    let principal = claims["sub"].as_str().filter(|name| !name.is_empty() && !name.contains('\0'));
    Ok(OAuthToken {
        token: token.to_owned(),
        principal_name: principal.unwrap_or(client_id).to_owned(),
        lifetime_ms: end.saturating_mul(1_000),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn read(body: &Value) -> Result<(String, i64), String> {
        let token = read_token(body.to_string().as_bytes(), "shipper", 1_000)?;
        Ok((token.principal_name, token.lifetime_ms))
    }

    fn http_answer(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
    }

    #[test]
    fn principal_and_end_are_those_of_the_token() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"sub":"logs","exp":5000}"#);
        let token = format!("e30.{claims}.signature");
        assert_eq!(read(&serde_json::json!({ "access_token": token })), Ok(("logs".to_owned(), 5_000_000)));
        let opaque = serde_json::json!({"access_token": "opaque", "expires_in": 60});
        assert_eq!(read(&opaque), Ok(("shipper".to_owned(), 1_060_000)));
        assert_eq!(read(&serde_json::json!({"access_token": "x"})), Ok(("shipper".to_owned(), 1_300_000)));
        assert!(read(&serde_json::json!({"token": "x"})).unwrap_err().contains("no access_token"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn credentials_are_posted_and_refusals_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/token", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let mut requests = Vec::new();
            for (status, answer) in [
                ("200 OK", r#"{"access_token":"abc","expires_in":3600}"#),
                ("401 Unauthorized", r#"{"error":"invalid_client"}"#),
            ] {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut request, mut chunk) = (Vec::new(), [0; 4_096]);
                while !request.ends_with(b"scope=logs%3Awrite") {
                    let read = stream.read(&mut chunk).unwrap();
                    assert!(read > 0, "{}", String::from_utf8_lossy(&request));
                    request.extend_from_slice(&chunk[..read]);
                }
                stream.write_all(http_answer(status, answer).as_bytes()).unwrap();
                requests.push(String::from_utf8(request).unwrap());
            }
            requests
        });
        let login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
                     clientId=\"shipper\" clientSecret=\"secret\" scope=\"logs:write\";";
        let options = TokenOptions { endpoint: Some(endpoint), timeout: Duration::from_secs(30) };
        let source = TokenSource::new(options, login).unwrap();
        // As a thread of the runtime, which the client's callbacks may be.
        let token = source.token().unwrap();
        assert_eq!((token.token.as_str(), token.principal_name.as_str()), ("abc", "shipper"));
        let refused = source.token().err().unwrap().to_string();
        assert!(refused.contains("401") && refused.contains("invalid_client"), "{refused}");
        let requests = serving.join().unwrap();
        let authorization = format!("authorization: Basic {}", STANDARD.encode("shipper:secret"));
        assert!(requests[0].contains(&authorization), "{}", requests[0]);
        assert!(requests[0].contains("grant_type=client_credentials&"), "{}", requests[0]);
    }
}
