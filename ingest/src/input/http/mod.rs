//! `http`: events that are posted (webhooks), and `otlp`: logs of OpenTelemetry.
//!
//! A request is answered once its events are durable, so what was answered with success is stored, and what
//! was not may be sent again. With a header `Idempotency-Key`, sending it again stores it once
//! ([`idempotency`]). While the pipeline has no room, requests wait a second and are refused with 429 then.

mod idempotency;
mod listener;
mod otlp;
mod request;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::sync::watch;

use super::{Context, Input, InputError};
use crate::codec::{self, Codec};
use crate::{EcsCompatibility, Fault, FieldReference, Options, Secret, Setting, tls};

/// Port where none is given.
const PORT: i64 = 8080;
/// Greatest body where nothing is said.
const MAX_CONTENT_LENGTH: i64 = 100 << 20;
/// Requests that wait for their events to be stored, where nothing is said.
const MAX_PENDING_REQUESTS: i64 = 200;
/// Time for which keys of requests are remembered, where nothing is said, in seconds.
const IDEMPOTENCY_SECONDS: i64 = 24 * 3600;
/// Number of keys that are remembered, where nothing is said.
const IDEMPOTENCY_KEYS: i64 = 100_000;

pub(super) use otlp::build as build_otlp;

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Listener {
    settings: Arc<Settings>,
}

/// Settings for taking and answering requests.
#[derive(Debug)]
struct Settings {
    /// Name of the plugin.
    name: &'static str,
    /// Reads requests in place of the codecs, where they are those of OTLP.
    otlp: Option<otlp::OtlpReader>,
    host: String,
    port: u16,
    tls: Option<tls::Server>,
    /// The only accepted `Authorization` header.
    authorization: Option<Secret>,
    codec: Arc<dyn Codec>,
    /// Codecs by media type.
    codecs: Vec<(String, Arc<dyn Codec>)>,
    response_code: StatusCode,
    response_headers: Vec<(HeaderName, HeaderValue)>,
    max_content_length: u64,
    max_pending_requests: usize,
    headers_field: FieldReference,
    host_field: FieldReference,
    ecs: EcsCompatibility,
    idempotency: idempotency::Bounds,
    /// Bound address, once it listens.
    address: watch::Sender<Option<SocketAddr>>,
}

impl Listener {
    /// Makes the input.
    ///
    /// # Errors
    /// The faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let host = options.text("host").unwrap_or_else(|| "0.0.0.0".to_owned());
        let port = options.integer("port", 0..=65_535).unwrap_or(PORT);
        let tls = tls::Server::take(&mut options);
        let authorization = authorization(&mut options);
        let codec = codec::take(&mut options, "plain");
        let codecs = additional_codecs(&mut options);
        let code = options.read("response_code", "one of [200, 201, 202, 204]", |setting| {
            let code = setting.as_text()?.parse().ok()?;
            [200, 201, 202, 204].contains(&code).then_some(code)
        });
        let response_headers = response_headers(&mut options);
        let max_content_length =
            options.integer("max_content_length", 1..=i64::from(i32::MAX)).unwrap_or(MAX_CONTENT_LENGTH);
        let max_pending_requests =
            options.integer("max_pending_requests", 1..=100_000).unwrap_or(MAX_PENDING_REQUESTS);
        let ecs = options.ecs_compatibility();
        let headers = ecs.select("headers", "[@metadata][input][http][request][headers]");
        let headers_field = field(&mut options, "request_headers_target_field", headers);
        let host_field = field(&mut options, "remote_host_target_field", ecs.select("host", "[host][ip]"));
        let seconds = options.integer("idempotency_seconds", 1..=90 * 86_400).unwrap_or(IDEMPOTENCY_SECONDS);
        let keys = options.integer("idempotency_keys", 0..=500_000).unwrap_or(IDEMPOTENCY_KEYS);
        // Connections are tasks here, not threads.
        let _ = options.integer("threads", 1..=i64::from(i32::MAX));
        options.finish()?;
        let settings = Settings {
            name: "http",
            otlp: None,
            host,
            port: u16::try_from(port).unwrap_or_default(),
            tls,
            authorization,
            codec: codec?,
            codecs,
            response_code: code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::OK),
            response_headers,
            max_content_length: max_content_length.unsigned_abs(),
            max_pending_requests: usize::try_from(max_pending_requests).unwrap_or(usize::MAX),
            headers_field,
            host_field,
            ecs,
            idempotency: idempotency::Bounds {
                age: Duration::from_secs(seconds.unsigned_abs()),
                keys: usize::try_from(keys).unwrap_or_default(),
            },
            address: watch::Sender::new(None),
        };
        Ok(Self { settings: Arc::new(settings) })
    }
}

fn authorization(options: &mut Options) -> Option<Secret> {
    let (user, password) = (options.text("user"), options.text("password"));
    match (user, password) {
        (Some(user), Some(password)) => {
            let credentials = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            Some(Secret::new(format!("Basic {credentials}")))
        }
        (None, None) => None,
        _ => {
            options.fault_here("options [user] and [password] need each other");
            None
        }
    }
}

fn additional_codecs(options: &mut Options) -> Vec<(String, Arc<dyn Codec>)> {
    let at = options.at();
    let mut given = options.hash("additional_codecs");
    if given.is_empty() {
        given.push(("application/json".to_owned(), Setting::Text("json".to_owned())));
    }
    let mut codecs = Vec::new();
    for (media_type, codec) in given {
        let codec = match codec {
            Setting::Plugin(codec) => *codec,
            Setting::Text(name) => Options::new(name, at, []),
            _ => {
                options.fault(at, format!("[additional_codecs] of [{media_type}] must be a codec"));
                continue;
            }
        };
        match codec::build(options.inherit(codec)) {
            Ok(codec) => codecs.push((media_type.to_ascii_lowercase(), codec)),
            Err(faults) => faults.into_iter().for_each(|fault| options.fault(fault.at, fault.message)),
        }
    }
    codecs
}

fn response_headers(options: &mut Options) -> Vec<(HeaderName, HeaderValue)> {
    let at = options.at();
    let mut headers = Vec::new();
    for (name, value) in options.hash("response_headers") {
        let value = value.as_text().unwrap_or_default();
        match (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str())) {
            (Ok(name), Ok(value)) => headers.push((name, value)),
            _ => options.fault(at, format!("[{name}: {value}] of [response_headers] is not a header")),
        }
    }
    if headers.is_empty() {
        headers.push((http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain")));
    }
    headers
}

fn field(options: &mut Options, name: &'static str, default: &str) -> FieldReference {
    let default = || FieldReference::parse(default).expect("it is a reference");
    options.field(name).unwrap_or_else(default)
}

#[async_trait]
impl Input for Listener {
    fn identity(&self) -> String {
        format!("{} {}:{}", self.settings.name, self.settings.host, self.settings.port)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        *self.settings.address.borrow()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let source = format!("{} idempotency", self.identity());
        let keys = idempotency::Keys::load(source, self.settings.idempotency, &context).await?;
        let service = Arc::new(request::Service::new(Arc::clone(&self.settings), context, keys));
        listener::serve(service, &listener::ACCEPTOR).await
    }
}
