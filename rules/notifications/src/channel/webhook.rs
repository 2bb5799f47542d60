//! Requests to URLs: of the method `webhook`, and of services by their templates.
//!
//! Each request has the key of the notification in `Idempotency-Key`. With `webhook_hmac` it has `X-Millrace-Timestamp` (seconds) and
//! `X-Millrace-Signature: sha256=<hex>`, HMAC-SHA256 over the timestamp, a dot and the body. Redirects are answers like others; proxies of the
//! environment are not used; an address that a name was resolved to and checked is the one that is connected to.

use std::sync::Arc;
use std::time::Duration;

use millrace_rules::definition::notification::Template;
use millrace_rules::{cut, hex};
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Method, StatusCode, Url};
use ring::hmac;
use serde_json::{Map, Value, json};

use super::{Failure, ResolvedOptions, SendResult, compute};
use crate::NotifierState;
use crate::allow::{AddressRefusal, Allow, Resolver};
use crate::error::{Error, Result};
use crate::message::Message;
use crate::outbox::value_of;
use millrace_rules::template;

/// Time that a request may take unless `http_post_timeout` says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that are kept of a host.
const IDLE: usize = 16;
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 2_048;
/// Bytes of an address or a header.
const MAX_LINE: usize = 8 << 10;

/// Clients that are kept, those that were used last.
const MAX_CLIENTS: usize = 32;

#[derive(Debug)]
pub(crate) struct Webhook {
    clients: Arc<Clients>,
}

/// Clients by scheme and port, as whether a name may be reached at an address depends on both.
#[derive(Debug)]
struct Clients {
    allow: Allow,
    certificates: Vec<Certificate>,
    /// The one that was used last is the last one.
    kept: Mutex<Vec<((String, u16), Client)>>,
}

/// A request, ready to be sent.
struct Ready {
    client: Client,
    request: Request,
}

/// Request to a server.
struct Request {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: String,
    timeout: Duration,
}

impl Clients {
    /// Returns the client for a URL that is allowed as far as that is known without its host's address.
    fn client_for(&self, url: &Url) -> Result<Client> {
        let key = (url.scheme().to_owned(), url.port_or_known_default().unwrap_or_default());
        let mut kept = self.kept.lock();
        let client = match kept.iter().position(|(of, _)| *of == key) {
            Some(at) => kept.remove(at).1,
            None => self.make(&key)?,
        };
        if kept.len() >= MAX_CLIENTS {
            kept.remove(0);
        }
        kept.push((key, client.clone()));
        Ok(client)
    }

    fn make(&self, (scheme, port): &(String, u16)) -> Result<Client> {
        millrace_runtime::install_crypto_provider();
        let resolver = Resolver { allow: self.allow.clone(), scheme: scheme.clone(), port: *port };
        Client::builder()
            .tls_certs_merge(self.certificates.clone())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(resolver))
            .connect_timeout(TIMEOUT)
            .pool_max_idle_per_host(IDLE)
            .pool_idle_timeout(Duration::from_secs(30))
            .user_agent(concat!("Millrace/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Error::Internal(format!("no client for webhooks: {error}")))
    }
}

impl Webhook {
    pub(crate) fn new(allow: Allow, authorities: &[u8]) -> Result<Self> {
        let certificates = Certificate::from_pem_bundle(authorities)
            .map_err(|error| Error::Config(format!("authorities: {error}")))?;
        let clients = Clients { allow, certificates, kept: Mutex::default() };
        // What is wrong with certificates is told now.
        clients.make(&("https".to_owned(), 443))?;
        Ok(Self { clients: Arc::new(clients) })
    }

    pub(crate) async fn send(
        &self,
        shared: &NotifierState,
        template: Option<&'static Template>,
        resolved: ResolvedOptions,
        message: Message,
    ) -> SendResult {
        let (clients, now_ms) = (Arc::clone(&self.clients), shared.engine.clock().now_ms());
        let hidden = resolved.hidden();
        let ready = compute(shared, move || {
            let request = match template {
                None => generic(&resolved, &message, now_ms),
                Some(template) => of_service(template, &resolved.options, &message),
            };
            let request = request.map_err(Failure::permanent)?;
            // What is refused today may be allowed tomorrow.
            clients.allow.check(&request.url).map_err(Failure::passing)?;
            let host = request.url.host_str().unwrap_or_default();
            for hosts in &resolved.hosts {
                if !hosts.iter().any(|allowed| allowed == host) {
                    // It may be stored with this one, too.
                    return Err(Failure::passing(format!(
                        "a secret of the channel may not be sent to [{host}]"
                    )));
                }
            }
            let client =
                clients.client_for(&request.url).map_err(|error| Failure::passing(error.to_string()))?;
            Ok(Ready { client, request })
        });
        let Ready { client, request: Request { method, url, headers, body, timeout } } = ready.await?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let request = client.request(method, url).headers(headers).timeout(timeout).body(body);
        let answer = request.send().await.map_err(|error| failed(&host, error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(None);
        }
        let said = beginning(answer, &hidden).await;
        let reason = format!("[{host}] answered {status}{said}");
        Err(if is_about_the_body(status) { Failure::permanent(reason) } else { Failure::passing(reason) })
    }
}

/// Returns whether a status says that the same request will never be taken. All others may be mended at the receiver: a token
/// that has expired, a place that is missing or has moved.
fn is_about_the_body(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}

/// The beginning of an answer, for the reason, without what is hidden: receivers say what they were asked for.
async fn beginning(mut answer: reqwest::Response, hidden: &[String]) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        bytes.extend_from_slice(&chunk[..chunk.len().min(MAX_ANSWER - bytes.len())]);
        if bytes.len() >= MAX_ANSWER {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    for hidden in hidden {
        text = text.replace(hidden.as_str(), "…");
    }
    match cut(text.trim(), 200) {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// Says why a request failed, without the address, which may be a secret.
fn failed(host: &str, error: reqwest::Error) -> Failure {
    let error = error.without_url();
    let (mut reason, mut next): (String, Option<&dyn std::error::Error>) = (error.to_string(), Some(&error));
    while let Some(source) = next.and_then(std::error::Error::source) {
        if let Some(refused) = source.downcast_ref::<AddressRefusal>() {
            return Failure::passing(refused.to_string());
        }
        reason = source.to_string();
        next = Some(source);
    }
    if error.is_timeout() {
        return Failure::passing(format!("[{host}] did not answer in time"));
    }
    Failure::passing(format!("[{host}] cannot be reached: {}", cut(&reason, 300)))
}

type Text = std::result::Result<String, String>;

/// Runs a template of one line.
fn line(text: &str, context: &minijinja::Value) -> Text {
    let rendered = template::render(text, context, MAX_LINE)?;
    Ok(rendered.trim().to_owned())
}

fn header(headers: &mut HeaderMap, name: &str, value: &str) -> std::result::Result<(), String> {
    let name: HeaderName = name.parse().map_err(|_| format!("[{name}] is no name of a header"))?;
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("the value of header [{name}] has characters that none may have"))?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

fn address(text: &str) -> std::result::Result<Url, String> {
    text.parse().map_err(|error| format!("its address cannot be read: {error}"))
}

/// Makes the request of the method `webhook`.
fn generic(
    resolved: &ResolvedOptions,
    message: &Message,
    now_ms: i64,
) -> std::result::Result<Request, String> {
    let options = &resolved.options;
    let text = |name: &str| options.get(name).and_then(Value::as_str);
    // Templates see the alert, and no secrets.
    let context = minijinja::Value::from_serialize(message.context(&Map::new()));
    // A secret is no template: what is in it is sent as it is.
    let rendered = |path: &[&str], text: &str| match resolved.is_secret(path) {
        true => Ok(text.trim().to_owned()),
        false => line(text, &context),
    };
    let url = address(&rendered(&["http_post_url"], text("http_post_url").unwrap_or_default())?)?;
    let body = match text("webhook_body") {
        Some(body) if resolved.is_secret(&["webhook_body"]) => body.to_owned(),
        Some(body) => template::render(body, &context, template::MAX_BODY)?,
        None => payload(options, message).to_string(),
    };
    let mut headers = HeaderMap::new();
    header(&mut headers, "content-type", "application/json")?;
    for (name, value) in options.get("http_post_headers").and_then(Value::as_object).into_iter().flatten() {
        let value = rendered(&["http_post_headers", name], value.as_str().unwrap_or_default())?;
        header(&mut headers, name, &value)?;
    }
    header(&mut headers, "idempotency-key", &message.key)?;
    if let Some(secret) = text("webhook_hmac") {
        let seconds = (now_ms / 1000).to_string();
        let signed = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
            format!("{seconds}.{body}").as_bytes(),
        );
        let hex = hex(signed.as_ref());
        header(&mut headers, "x-millrace-timestamp", &seconds)?;
        header(&mut headers, "x-millrace-signature", &format!("sha256={hex}"))?;
    }
    let method = if text("webhook_method") == Some("PUT") { Method::PUT } else { Method::POST };
    let timeout =
        options.get("http_post_timeout").and_then(Value::as_u64).map_or(TIMEOUT, Duration::from_secs);
    Ok(Request { method, url, headers, body, timeout })
}

/// The body without a template: the notification, or what ElastAlert's options of `post` ask for.
fn payload(options: &Map<String, Value>, message: &Message) -> Value {
    let object = |name: &str| options.get(name).and_then(Value::as_object);
    let (fields, fixed) = (object("http_post_payload"), object("http_post_static_payload"));
    let all = options.get("http_post_all_values").and_then(Value::as_bool);
    if fields.is_none() && fixed.is_none() && all != Some(true) {
        return message.document();
    }
    let one = |alert: &Value| {
        let body = &alert["match_body"];
        let mut payload = match body.as_object() {
            Some(members) if all.unwrap_or(fields.is_none()) => members.clone(),
            _ => Map::new(),
        };
        for (name, field) in fields.into_iter().flatten() {
            payload.insert(name.clone(), json!(value_of(body, field.as_str().unwrap_or_default())));
        }
        payload.extend(fixed.cloned().unwrap_or_default());
        Value::Object(payload)
    };
    match message.items.as_slice() {
        [item] => one(&item.alert),
        items => items.iter().map(|item| one(&item.alert)).collect(),
    }
}

/// Makes the request of a template.
fn of_service(
    template: &Template,
    options: &Map<String, Value>,
    message: &Message,
) -> std::result::Result<Request, String> {
    let mut all = Map::new();
    for option in &template.options {
        let value = options.get(&option.name).cloned().or_else(|| option.default.clone().map(Value::from));
        if let Some(value) = value {
            all.insert(option.name.clone(), value);
        }
    }
    let context = minijinja::Value::from_serialize(message.context(&all));
    let url = address(&line(&template.url, &context)?)?;
    let mut headers = HeaderMap::new();
    for (name, value) in &template.headers {
        header(&mut headers, name, &line(value, &context)?)?;
    }
    header(&mut headers, "idempotency-key", &message.key)?;
    let body = template::render(&template.body, &context, template::MAX_BODY)?;
    Ok(Request { method: Method::POST, url, headers, body, timeout: TIMEOUT })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Item, Kind};

    fn message(kind: Kind, alerts: usize) -> Message {
        let alert = json!({"@timestamp": "2026-01-01T00:00:00Z", "rule_id": "r", "rule_name": "a \"rule\"\n", "alert_subject": "it's \\ \"so\"",
            "alert_text": "line\nline \u{1}", "key": "k", "match_body": {"user": "ann", "n": 5}});
        let items = (0..alerts).map(|n| Item { key: format!("k{n}"), alert: alert.clone() }).collect();
        Message::new("key".to_owned(), kind, 90, items)
    }

    #[test]
    fn each_template_makes_json_for_each_kind_whatever_is_in_an_alert() {
        for template in Template::all() {
            template::check(&template.url).unwrap();
            template::check(&template.body).unwrap();
            let mut options = Map::new();
            for option in template.options.iter().filter(|option| option.required) {
                let value =
                    if option.name.contains("url") { "https://hooks.example.com/x" } else { "v\"alue" };
                options.insert(option.name.clone(), json!(value));
            }
            for message in [
                message(Kind::Alert, 1),
                message(Kind::Alert, 3),
                message(Kind::Recovery("2026-01-01T01:00:00Z".to_owned()), 1),
                message(Kind::Test, 1),
                Message::new(
                    "k".to_owned(),
                    Kind::Alert,
                    5,
                    vec![Item { key: "k".to_owned(), alert: json!({}) }],
                ),
            ] {
                let ready = of_service(template, &options, &message)
                    .unwrap_or_else(|error| panic!("{}: {error}", template.name));
                let body: Result<Value, _> = serde_json::from_str(&ready.body);
                assert!(body.is_ok(), "{}: {}", template.name, ready.body);
                assert_eq!(ready.headers["idempotency-key"], message.key);
            }
        }
    }

    #[test]
    fn a_webhook_says_what_its_options_ask_for() {
        let made = |options: Value, alerts: usize| {
            generic(&ResolvedOptions::of_test(options, &[]), &message(Kind::Alert, alerts), 5_000)
        };
        let plain = made(json!({"http_post_url": "https://a/{{ rule.id | urlencode }}"}), 1).unwrap();
        assert_eq!(plain.url.as_str(), "https://a/r");
        let body: Value = serde_json::from_str(&plain.body).unwrap();
        assert_eq!((&body["key"], &body["alerts"][0]["notification_key"]), (&json!("key"), &json!("k0")));
        let mapped = made(
            json!({"http_post_url": "https://a/", "http_post_payload": {"who": "user"}, "http_post_static_payload": {"env": "x"}}),
            1,
        );
        assert_eq!(
            serde_json::from_str::<Value>(&mapped.unwrap().body).unwrap(),
            json!({"who": "ann", "env": "x"})
        );
        let signed = made(
            json!({"http_post_url": "https://a/", "webhook_hmac": "secret", "webhook_body": "{{ count }}"}),
            2,
        )
        .unwrap();
        assert_eq!(
            (signed.body.as_str(), &signed.headers["x-millrace-timestamp"]),
            ("2", &HeaderValue::from_static("5"))
        );
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let hex: String =
            hmac::sign(&key, b"5.2").as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(signed.headers["x-millrace-signature"], format!("sha256={hex}"));
        let broken =
            made(json!({"http_post_url": "https://a/", "http_post_headers": {"x-text": "{{ text }}"}}), 1);
        assert!(broken.err().unwrap().contains("[x-text]"));
    }

    #[test]
    fn a_secret_is_no_template() {
        let options = json!({"http_post_url": "https://a/", "http_post_headers": {"authorization": "Bearer {{ x", "x-a": "{{ count }}"}});
        let resolved = ResolvedOptions::of_test(options, &["http_post_headers", "authorization"]);
        let made = generic(&resolved, &message(Kind::Alert, 1), 0).unwrap();
        assert_eq!(
            (&made.headers["authorization"], &made.headers["x-a"]),
            (&"Bearer {{ x".parse().unwrap(), &"1".parse().unwrap())
        );
    }

    #[test]
    fn what_a_receiver_may_say_of_a_secret_is_known() {
        let of = |value: &str| {
            ResolvedOptions::of_test(json!({"http_post_url": value}), &["http_post_url"]).hidden()
        };
        assert_eq!(
            of("https://a/hooks/token?key=abcdef"),
            ["https://a/hooks/token?key=abcdef", "/hooks/token", "key=abcdef"]
        );
        assert_eq!(of("Bearer 0123456"), ["Bearer 0123456", "0123456"]);
        assert!(of("x").is_empty());
    }

    #[test]
    fn only_what_is_said_of_the_body_is_for_good() {
        for (status, expected) in [
            (400, true),
            (413, true),
            (415, true),
            (422, true),
            (301, false),
            (401, false),
            (404, false),
            (410, false),
            (429, false),
            (500, false),
        ] {
            assert_eq!(is_about_the_body(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }

    #[test]
    fn clients_are_by_scheme_and_port_and_bounded() {
        let clients = Webhook::new(Allow::default(), &[]).unwrap().clients;
        for port in 1..50 {
            clients.client_for(&format!("http://a:{port}/").parse().unwrap()).unwrap();
            clients.client_for(&"https://a/".parse().unwrap()).unwrap();
        }
        let kept = clients.kept.lock();
        assert_eq!((kept.len(), &kept[MAX_CLIENTS - 1].0), (MAX_CLIENTS, &("https".to_owned(), 443)));
    }
}
