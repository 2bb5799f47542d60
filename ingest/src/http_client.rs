//! A client that sends single requests and reads whole answers, within bounds. Filters look values up with it.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Method, Url};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::budget::{AnswerAllowance, AnswerReservation, AnswersExceeded};
use crate::codec::value_bytes_of;
use crate::input::fetch::read_reserved_body;
use crate::{Options, Secret, tls};

/// Largest answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// Redirects of one request.
const MAX_REDIRECTS: usize = 10;
/// Longest time that can be set, in seconds.
const MAX_SECONDS: f64 = 86_400.0;

/// Options of the clients of Logstash's HTTP plugins, but for their times.
#[derive(Debug)]
pub(crate) struct HttpClientOptions {
    tls: tls::Client,
    proxy: Option<Secret>,
    follows_redirects: bool,
}

impl HttpClientOptions {
    /// Takes `proxy`, `follow_redirects` and the options of TLS.
    pub(crate) fn take(options: &mut Options) -> Self {
        // The client keeps connections by itself, and whoever has it asks again.
        for name in [
            "automatic_retries",
            "cookies",
            "keepalive",
            "pool_max",
            "pool_max_per_route",
            "retry_non_idempotent",
            "socket_timeout",
            "validate_after_inactivity",
        ] {
            let _ = options.take(name);
        }
        for (old, new) in [
            ("client_cert", "ssl_certificate"),
            ("client_key", "ssl_key"),
            ("ssl_certificate_validation", "ssl_certificate_verification"),
            ("verify_ssl", "ssl_certificate_verification"),
        ] {
            options.rename(old, new);
        }
        if options.boolean("ssl_enabled") == Some(false) {
            options.fault_here("leave [ssl_enabled] out: addresses of http:// are asked without TLS");
        }
        Self {
            proxy: options.secret("proxy").filter(|proxy| !proxy.expose().is_empty()),
            follows_redirects: options.boolean("follow_redirects").unwrap_or(true),
            tls: tls::Client::take(options),
        }
    }

    /// Makes a client with the times of a whole request and of a connection. `redirects` are those that it follows.
    ///
    /// # Errors
    /// As [`tls::Client::http_client`].
    pub(crate) fn client(
        &self,
        (timeout, connect_timeout): (Duration, Duration),
        redirects: Policy,
    ) -> Result<reqwest::Client, String> {
        let redirects = if self.follows_redirects { redirects } else { Policy::none() };
        let builder =
            reqwest::Client::builder().timeout(timeout).connect_timeout(connect_timeout).redirect(redirects);
        self.tls.http_client(builder, self.proxy.as_ref())
    }
}

/// Takes `custom_headers`. One that no request can have is a fault.
pub fn custom_headers(options: &mut Options) -> HeaderMap {
    let at = options.at();
    let mut headers = HeaderMap::new();
    for (name, value) in options.hash("custom_headers") {
        let value = value.as_text().unwrap_or_default();
        match (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str())) {
            (Ok(name), Ok(mut value)) => {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
            _ => options.fault(at, format!("[{name}] of [custom_headers] is not a header")),
        }
    }
    headers
}

/// A client with the options that filters share.
pub struct HttpClient {
    options: HttpClientOptions,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    connect_timeout: Duration,
    client: OnceCell<reqwest::Client>,
}

/// A request.
#[derive(Clone, Debug, Default)]
pub struct HttpRequest {
    /// Method in capitals.
    pub method: String,
    /// Address, with the query.
    pub url: String,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Option<Vec<u8>>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Headers by their names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

/// Failure to take the body of an answer as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonAnswerError {
    /// Its values take too much memory.
    #[error(transparent)]
    Exceeded(AnswersExceeded),
    /// It is no JSON, with the reason.
    #[error("{0}")]
    Invalid(String),
}

/// Without credentials.
impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// Takes the options of a client: `user`, `password`, `proxy`, `request_timeout`, `connect_timeout`, `follow_redirects`, and those of
    /// TLS.
    pub fn take(options: &mut Options) -> Self {
        let seconds = |options: &mut Options, name, default: f64| {
            let given = options.float(name).unwrap_or(default);
            if !(0.001..=MAX_SECONDS).contains(&given) {
                options.fault_here(format!("option [{name}] must be 0.001 to {MAX_SECONDS} seconds"));
            }
            Duration::from_secs_f64(given.clamp(0.001, MAX_SECONDS))
        };
        let timeout = seconds(options, "request_timeout", 60.0);
        let connect_timeout = seconds(options, "connect_timeout", 10.0);
        let authorization = basic_authorization(options);
        let options = HttpClientOptions::take(options);
        Self { options, authorization, timeout, connect_timeout, client: OnceCell::new() }
    }

    /// Sets the value of the header `Authorization` in place of a user ([`authorization_header`]).
    pub fn set_authorization(&mut self, value: HeaderValue) {
        self.authorization = Some(value);
    }

    /// Sends a request and reads its answer, whatever its status.
    ///
    /// # Errors
    /// As [`Self::send_reserved`].
    pub async fn send(&self, request: HttpRequest) -> Result<HttpAnswer, String> {
        self.send_reserved(request, &mut AnswerAllowance::default().answer()).await
    }

    /// Sends a request and reads its answer, whatever its status. The body of the answer is reserved before it is kept.
    ///
    /// Cancel safe: dropping the future drops the request.
    ///
    /// # Errors
    /// An address or a header that is none, a server that does not answer in time, or an answer that is too large. The text has no
    /// address, for that may have secrets.
    pub async fn send_reserved(
        &self,
        request: HttpRequest,
        reservation: &mut AnswerReservation<'_>,
    ) -> Result<HttpAnswer, String> {
        let url = Url::parse(&request.url).map_err(|error| format!("the address is none: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("the scheme [{}] is neither http nor https", url.scheme()));
        }
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|_| format!("the method [{}] is none", request.method))?;
        let mut headers = HeaderMap::new();
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in &request.headers {
            let header =
                HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value.as_str()).ok());
            let Some((name, value)) = header else {
                return Err(format!("the header [{name}] has no valid value"));
            };
            headers.insert(name, value);
        }
        let times = (self.timeout, self.connect_timeout);
        let make = || async { self.options.client(times, same_host_redirects()) };
        let client = self.client.get_or_try_init(make).await?;
        let mut sending = client.request(method, url).headers(headers);
        if let Some(body) = request.body {
            sending = sending.body(body);
        }
        let answer = sending.send().await.map_err(|error| error.without_url().to_string())?;
        let status = answer.status().as_u16();
        let headers = answer
            .headers()
            .iter()
            .map(|(name, value)| {
                (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect();
        let body = read_reserved_body(answer, MAX_ANSWER_BYTES, reservation).await?;
        Ok(HttpAnswer { status, headers, body })
    }
}

impl HttpAnswer {
    /// Parses the body as JSON, whose values are reserved before.
    ///
    /// # Errors
    /// There is no memory for them, or the body is no JSON.
    pub fn json(&self, reservation: &mut AnswerReservation<'_>) -> Result<Value, JsonAnswerError> {
        let invalid = |error: serde_json::Error| JsonAnswerError::Invalid(error.to_string());
        reservation.grow(value_bytes_of(&self.body)).map_err(JsonAnswerError::Exceeded)?;
        serde_json::from_slice(&self.body).map_err(invalid)
    }
}

/// Follows redirects within a host, and never from TLS to plain text: headers may have credentials.
fn same_host_redirects() -> Policy {
    Policy::custom(|attempt| {
        let stays = attempt.previous().first().is_some_and(|from| {
            let is_downgrade = from.scheme() == "https" && attempt.url().scheme() != "https";
            from.host_str() == attempt.url().host_str() && !is_downgrade
        });
        if stays && attempt.previous().len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
    })
}

fn basic_authorization(options: &mut Options) -> Option<HeaderValue> {
    let (user, password) = (options.text("user"), options.secret("password"));
    let user = user.filter(|user| !user.is_empty())?;
    let Some(password) = password else {
        options.fault_here("option [user] needs the option [password]");
        return None;
    };
    let credentials = STANDARD.encode(format!("{user}:{}", password.expose()));
    let mut value = HeaderValue::try_from(format!("Basic {credentials}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
/// Makes the value of the header `Authorization`: `user:password` of the scheme `Basic`, or a key of `ApiKey`, which may be given as
/// `id:key` or encoded already. Reports a fault of the options where it is no value of a header.
pub fn authorization_header(options: &mut Options, scheme: &str, credentials: &str) -> Option<HeaderValue> {
    let encoded = match scheme == "Basic" || credentials.contains(':') {
        true => STANDARD.encode(credentials),
        false => credentials.to_owned(),
    };
    let Ok(mut value) = HeaderValue::try_from(format!("{scheme} {encoded}")) else {
        options.fault_here(
            "option [api_key] has a character that no header has, such as a line feed at its end",
        );
        return None;
    };
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::options;

    #[test]
    fn older_names_of_options_are_taken() {
        let mut given = options(
            "http",
            &[
                ("client_cert", "/c.pem".into()),
                ("client_key", "/k.pem".into()),
                ("verify_ssl", "false".into()),
                ("ssl_enabled", "true".into()),
            ],
        );
        let taken = HttpClientOptions::take(&mut given);
        assert!(taken.tls.is_unverified());
        assert_eq!(given.finish(), Ok(()));
        let mut given = options("http", &[("ssl_enabled", "false".into())]);
        let _ = HttpClientOptions::take(&mut given);
        assert!(given.finish().unwrap_err()[0].message.contains("leave [ssl_enabled] out"));
    }
}
