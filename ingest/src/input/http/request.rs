//! A request: from its bytes to events, to the pipeline, to the answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use millrace_listen::{BodyError, BodyReader, Peer, check_host, check_origin, head_bytes};
use millrace_otlp::{Encoding, ExportAnswer};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;
use tokio::sync::{Semaphore, watch};
use xxhash_rust::xxh3::xxh3_128;

use super::Settings;
use super::idempotency::{Keys, MAX_KEY_BYTES, Verdict};
use super::otlp::is_other_signal;
use crate::batch::NotStored;
use crate::budget::{Reservation, ShareExceeded};
use crate::codec::{Charset, Events};
use crate::event::{Additions, SharedValue, value_bytes};
use crate::input::{Context, mark_version};
use crate::{Ack, Batch, Event};

/// Longest silence within a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for room in the pipeline.
const PATIENCE: Duration = Duration::from_secs(1);
/// Copies of a field that the input adds to an event: there, in its document, in the log.
const COPIES: u64 = 3;
/// Header that tells requests that are sent again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Why a request is refused while there is no room.
const BEHIND: &str = "the pipeline is behind";

type Answer = Response<Full<Bytes>>;

/// State that requests share.
pub(super) struct Service {
    pub(super) settings: Arc<Settings>,
    context: Context,
    keys: Keys,
    bodies: BodyReader,
    /// Places of requests whose events are not stored yet.
    pending: Semaphore,
    /// Requests of OpenTelemetry that are decoded at the same time.
    decoding: Semaphore,
}

/// Why a request is refused.
struct Refusal {
    status: StatusCode,
    reason: String,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    fn busy(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, reason)
    }

    fn answer(self) -> Answer {
        let mut answer = Response::new(Full::new(Bytes::from(self.reason)));
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"millrace\""));
        }
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

impl From<ShareExceeded> for Refusal {
    fn from(exceeded: ShareExceeded) -> Self {
        match exceeded {
            ShareExceeded::Never(_) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, exceeded.to_string()),
            ShareExceeded::ForNow(_) => Self::busy(format!("{exceeded}, send it again later")),
        }
    }
}

impl From<BodyError<ShareExceeded>> for Refusal {
    fn from(error: BodyError<ShareExceeded>) -> Self {
        let reason = error.to_string();
        match error {
            BodyError::Exceeded(exceeded) => exceeded.into(),
            BodyError::TooLong { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("{reason} (max_content_length)"))
            }
            BodyError::Silent | BodyError::Slow => Self::new(StatusCode::REQUEST_TIMEOUT, reason),
            BodyError::Coding(_) => Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason),
            BodyError::Broken(_) | BodyError::Invalid { .. } => Self::new(StatusCode::BAD_REQUEST, reason),
            BodyError::Failed(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "decoding failed"),
        }
    }
}

/// Returns whether an address to listen on is this machine's alone.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The body of a request, and what is reserved for it.
type ReservedRequestBody = millrace_listen::ReservedBody<Reservation>;

/// A service as its listener has it.
pub(super) struct Handler(pub(super) Arc<Service>);

impl millrace_listen::Service for Handler {
    type Body = Full<Bytes>;

    async fn call(&self, request: Request<Incoming>) -> Answer {
        let Peer(peer) = *request.extensions().get().expect("every request has its peer");
        Arc::clone(&self.0).call(request, peer).await
    }
}

impl Service {
    pub(super) fn new(settings: Arc<Settings>, context: Context, keys: Keys) -> Self {
        let pending = Semaphore::new(settings.max_pending_requests);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let bodies = BodyReader::new(settings.max_content_length, BODY_TIMEOUT);
        Self { settings, context, keys, bodies, pending, decoding: Semaphore::new(processors) }
    }

    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.context.stopping.clone()
    }

    /// Takes note of the address that the system gave.
    pub(super) fn listens(&self, address: SocketAddr) {
        self.settings.address.send_replace(Some(address));
    }

    /// Address that the input listens on, once it does.
    #[cfg(test)]
    pub(super) fn address(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.settings.address.subscribe()
    }

    /// Answers a request.
    pub(super) async fn call(self: Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Answer {
        let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let otlp =
            self.settings.otlp.as_ref().map(|_| Encoding::of_media_type(media_type.unwrap_or_default()));
        if otlp == Some(None) {
            let reason = "send OTLP as [application/x-protobuf] or [application/json]";
            return Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason).answer();
        }
        match self.take(request, peer).await {
            Ok(export) => match otlp.flatten() {
                None => self.accepted(),
                Some(encoding) => {
                    let mut answer = Response::new(Full::new(export.encode(encoding).into()));
                    let media_type = HeaderValue::from_static(encoding.media_type());
                    answer.headers_mut().insert(CONTENT_TYPE, media_type);
                    answer
                }
            },
            Err(refusal) => {
                tracing::debug!(%peer, status = refusal.status.as_u16(), reason = refusal.reason, "request refused");
                refusal.answer()
            }
        }
    }

    fn accepted(&self) -> Answer {
        let code = self.settings.response_code;
        let body = if code == StatusCode::NO_CONTENT { Bytes::new() } else { Bytes::from_static(b"ok") };
        let mut answer = Response::new(Full::new(body));
        *answer.status_mut() = code;
        for (name, value) in &self.settings.response_headers {
            answer.headers_mut().insert(name, value.clone());
        }
        answer
    }

    /// Has the events of a request stored. The answer of OTLP counts the records that are no events.
    async fn take(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<ExportAnswer, Refusal> {
        let (head, mut body) = request.into_parts();
        // What the head takes counts, too: there may be many.
        let mut room_of_head = self.context.budget.empty();
        let read = async {
            self.check_page(&head)?;
            self.authorize(&head.headers)?;
            self.check_signal(head.uri.path())?;
            room_of_head.grow(head_bytes(&head.uri, &head.headers))?;
            self.read(&head.headers, &mut body).await
        };
        let body = match read.await {
            Ok(held) => held,
            Err(refusal) => {
                // A client that is still sending would see a reset connection in place of the answer.
                self.bodies.discard(body).await;
                return Err(refusal);
            }
        };
        let key = match head.headers.get(IDEMPOTENCY_KEY) {
            Some(key) if self.keys.are_kept() => {
                let wrong = || Refusal::new(StatusCode::BAD_REQUEST, "header Idempotency-Key is not usable");
                let key = key.to_str().map_err(|_| wrong())?;
                if key.is_empty() || key.len() > MAX_KEY_BYTES {
                    return Err(wrong());
                }
                Some(key.to_owned())
            }
            _ => None,
        };
        let service = Arc::clone(self);
        // From here on events count their headers; and what can never fit beside it is not to seem to fit later.
        drop(room_of_head);
        // A record of OpenTelemetry takes many times its bytes while it is read.
        let decoding = match &self.settings.otlp {
            Some(_) => self.decoding.acquire().await.ok(),
            None => None,
        };
        // Parsing is not for the threads that answer.
        let parsed = tokio::task::spawn_blocking(move || service.events(&head, body, peer));
        let parsed = parsed.await;
        let (events, reservation, export) =
            parsed.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "decoding failed"))??;
        drop(decoding);
        if events.is_empty() {
            return Ok(export);
        }
        // Only now: clients that send slowly take nobody's place.
        let _place = self.pending.try_acquire().map_err(|_| behind())?;
        self.hand_on(events, reservation, key).await?;
        Ok(export)
    }

    /// Refuses what a browser on this machine sends for a page of somewhere else, where whoever is on the machine is trusted.
    fn check_page(&self, head: &http::request::Parts) -> Result<(), Refusal> {
        if self.settings.authorization.is_some() || !is_loopback(&self.settings.host) {
            return Ok(());
        }
        check_host(&head.uri, &head.headers)
            .and_then(|()| check_origin(&head.headers))
            .map_err(|foreign| Refusal::new(StatusCode::FORBIDDEN, foreign.to_string()))
    }

    /// Refuses traces, metrics and profiles of OpenTelemetry: read as logs, they would be empty requests.
    fn check_signal(&self, path: &str) -> Result<(), Refusal> {
        if self.settings.otlp.is_some() && is_other_signal(path) {
            let reason = "the input takes logs only: send them to [/v1/logs]";
            return Err(Refusal::new(StatusCode::NOT_FOUND, reason));
        }
        Ok(())
    }

    /// Compares the credentials, in the same time whatever they are.
    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(expected) = &self.settings.authorization else { return Ok(()) };
        let given = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        // Digests, so that not even the length shows.
        let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
        let same = digest(given).as_ref().ct_eq(digest(expected.expose().as_bytes()).as_ref());
        if bool::from(same) {
            return Ok(());
        }
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "credentials are missing or wrong"))
    }

    async fn read(&self, headers: &HeaderMap, body: &mut Incoming) -> Result<ReservedRequestBody, Refusal> {
        if self.pending.available_permits() == 0 {
            return Err(behind());
        }
        Ok(self.bodies.read(headers, body, self.context.budget.empty()).await?)
    }

    /// Makes the events of a body, each reserved before it is kept.
    fn events(
        &self,
        head: &http::request::Parts,
        body: ReservedRequestBody,
        peer: SocketAddr,
    ) -> Result<(Vec<Event>, Reservation, ExportAnswer), Refusal> {
        let media_type =
            head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = media_type;
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let codec = self.settings.codecs.iter().find(|(of, _)| *of == media_type);
        let codec = codec.map_or(&self.settings.codec, |(_, codec)| codec);
        let headers = Value::Object(described(head, self.settings.authorization.is_some()));
        let host = Value::from(peer.ip().to_canonical().to_string());
        let (headers, host) = (SharedValue::from(headers), SharedValue::from(host));
        let schema = self.settings.ecs.is_enabled().then(|| schema_fields(head));
        let schema_bytes = schema.as_ref().map_or(0, |schema| value_bytes(&Value::Object(schema.clone())));
        let each = COPIES * (headers.bytes() + host.bytes()) + schema_bytes;
        let ReservedRequestBody { bytes: body, mut reservation } = body;
        let body = match Charset::of_media_type(content_type) {
            None => body,
            Some(charset) => {
                // A byte becomes three at most.
                reservation.grow(3 * body.len() as u64)?;
                let text = Bytes::from(charset.decode(&body).into_owned());
                reservation.set(text.len() as u64);
                text
            }
        };
        let held = reservation.bytes();
        // One event may have all of it as text.
        reservation.grow(text_bytes(&body))?;
        reservation.set(held);
        let mut events = Events::within(reservation, each);
        if head.headers.contains_key(IDEMPOTENCY_KEY) {
            events.begin_record(xxh3_128(&body), 0);
        }
        let export = match &self.settings.otlp {
            None => {
                let mut decoder = codec.decoder();
                decoder.decode(&body, &mut events);
                decoder.finish(&mut events);
                ExportAnswer::default()
            }
            Some(otlp) => {
                let encoding = Encoding::of_media_type(content_type).unwrap_or(Encoding::Protobuf);
                let read = otlp.read(encoding, &body, &mut events);
                read.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?
            }
        };
        drop(body);
        let (mut events, reservation) = events.into_parts()?;
        for event in &mut events {
            mark_version(event);
            if let Some(schema) = &schema {
                event.replace_members(schema);
            }
            let fields = [(&self.settings.headers_field, &headers), (&self.settings.host_field, &host)];
            for (field, value) in fields {
                // An event that has something else in the way keeps it.
                if event.set_written(field, value).is_err() {
                    event.tag("_httpfieldfailure");
                }
            }
        }
        Ok((events, reservation, export))
    }

    /// Hands events to the pipeline and waits until they are stored. That goes on if the client goes away.
    async fn hand_on(
        self: &Arc<Self>,
        events: Vec<Event>,
        held: Reservation,
        key: Option<String>,
    ) -> Result<(), Refusal> {
        // Requests come in bursts: those that were answered together are followed by as many.
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        let slot = tokio::select! {
            biased;
            slot = self.context.batches.reserve() => slot.map_err(|_| refusal(NotStored::Ended))?,
            () = &mut patience => return Err(behind()),
        };
        let moved = match key.map(|key| self.keys.look_up(&key)) {
            None => None,
            Some(Verdict::New(moved)) => Some(moved),
            Some(Verdict::Stored) => return Ok(()),
            Some(Verdict::OnItsWay) => {
                let reason = "the first request with this Idempotency-Key is not stored yet";
                return Err(Refusal::new(StatusCode::CONFLICT, reason));
            }
        };
        let (ack, mut stored, withdrawal) = Ack::withdrawable();
        slot.send(Batch { events, position: moved.clone(), ack, held });
        let service = Arc::clone(self);
        let end_of_patience = patience.deadline();
        let waits = tokio::spawn(async move {
            let outcome = tokio::select! {
                biased;
                outcome = &mut stored => Some(outcome),
                () = tokio::time::sleep_until(end_of_patience) => None,
            };
            let outcome = match outcome {
                Some(outcome) => outcome.unwrap_or(Err(NotStored::Ended)),
                // What has its place in a queue comes to its end there.
                None if withdrawal.withdraw() => Err(NotStored::Overloaded(BEHIND.to_owned())),
                None => stored.await.unwrap_or(Err(NotStored::Ended)),
            };
            match moved {
                None => outcome,
                Some(moved) => {
                    let outcome = service.keys.ended(&moved, outcome).await;
                    service.keys.forget();
                    outcome
                }
            }
        });
        waits.await.unwrap_or(Err(NotStored::Ended)).map_err(refusal)
    }
}

/// Bytes that a text of these bytes has at most as JSON.
fn text_bytes(body: &[u8]) -> u64 {
    let bytes = body.iter().map(|byte| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        0x80.. => 3,
        _ => 1,
    });
    bytes.sum()
}

fn behind() -> Refusal {
    refusal(NotStored::Overloaded(BEHIND.to_owned()))
}

/// Returns the answer to events that are not stored.
fn refusal(why: NotStored) -> Refusal {
    match why {
        NotStored::Overloaded(reason) => Refusal::busy(format!("{reason}, send it again later")),
        why @ (NotStored::Ended | NotStored::Moved) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
        }
    }
}

/// Returns the fields of an event that describe its request by the names of the schema, as Logstash has them.
fn schema_fields(head: &http::request::Parts) -> Map<String, Value> {
    let header = |name: HeaderName| {
        let value = head.headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let path = head.uri.path_and_query().map_or(head.uri.path(), |path| path.as_str());
    let authority = head.uri.authority().map(|authority| authority.as_str().to_owned());
    let host = authority.or_else(|| header(HOST));
    let (domain, port) = match host.as_deref().and_then(split_port) {
        Some((domain, port)) => (Some(domain.to_owned()), Some(port)),
        None => (host, None),
    };
    let fields: [(&[&str], Option<Value>); 8] = [
        (&["http", "version"], Some(format!("{:?}", head.version).into())),
        (&["user_agent", "original"], header(USER_AGENT).map(Value::from)),
        (&["url", "domain"], domain.map(Value::from)),
        (&["url", "port"], port.map(Value::from)),
        (&["http", "method"], Some(head.method.as_str().into())),
        (&["url", "path"], Some(path.into())),
        (&["http", "request", "body", "bytes"], header(CONTENT_LENGTH).map(Value::from)),
        (&["http", "request", "mime_type"], header(CONTENT_TYPE).map(Value::from)),
    ];
    let given = fields.into_iter().filter_map(|(path, value)| Some((path, value?)));
    given.fold(Additions::default(), |fields, (path, value)| fields.at(path, value)).into_members()
}

/// Splits the port off a host: `name:80`, `[::1]:80`.
fn split_port(host: &str) -> Option<(&str, u16)> {
    let (domain, port) = host.rsplit_once(':')?;
    let domain = domain.strip_prefix('[').and_then(|address| address.strip_suffix(']')).or_else(|| {
        // An address of IPv6 without brackets has no port.
        (!domain.is_empty() && !domain.contains(':')).then_some(domain)
    })?;
    Some((domain, port.parse().ok()?))
}

/// Returns the members of an event that describe its request, by the names that Logstash gives. The event never holds credentials
/// that the input has `checked`; the pipeline checks others.
fn described(head: &http::request::Parts, checked: bool) -> Map<String, Value> {
    let mut described = Map::new();
    described.insert("request_method".to_owned(), Value::from(head.method.as_str()));
    let path = head.uri.path_and_query().map_or(head.uri.path(), |path| path.as_str());
    described.insert("request_path".to_owned(), Value::from(path));
    described.insert("http_version".to_owned(), Value::from(format!("{:?}", head.version)));
    if let Some(authority) = head.uri.authority() {
        described.insert("http_host".to_owned(), Value::from(authority.as_str()));
    }
    for (name, value) in &head.headers {
        if checked && *name == AUTHORIZATION {
            continue;
        }
        let name = match name.as_str() {
            "accept" => "http_accept".to_owned(),
            "host" => "http_host".to_owned(),
            "user-agent" => "http_user_agent".to_owned(),
            other => other.replace('-', "_"),
        };
        described.insert(name, Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned()));
    }
    described
}
