//! A request: from its bytes to events, to the pipeline, to the answer.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;
use tokio::sync::{Semaphore, watch};

use super::Settings;
use super::idempotency::{Keys, MAX_KEY_BYTES, Verdict};
use crate::batch::NotStored;
use crate::budget::{Exceeded, Reservation};
use crate::codec::Events;
use crate::event::Written;
use crate::input::{Context, mark_version};
use crate::{Ack, Batch, Event};

/// Longest silence within a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for room in the pipeline.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a body that are made room for at once, at least.
const STEP: usize = 16 << 10;
/// Copies of a field that the input adds to an event: there, in its document, in the log.
const COPIES: u64 = 3;
/// Header that tells requests that are sent again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

type Answer = Response<Full<Bytes>>;

/// What requests share.
pub(super) struct Service {
    pub(super) settings: Arc<Settings>,
    context: Context,
    keys: Keys,
    /// Places of requests whose events are not stored yet.
    pending: Semaphore,
    #[cfg(test)]
    address: watch::Sender<Option<SocketAddr>>,
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

impl From<Exceeded> for Refusal {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Never(_) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, exceeded.to_string()),
            Exceeded::ForNow(_) => Self::busy(format!("{exceeded}, send it again later")),
        }
    }
}

/// A body in memory, all of which is reserved before it is there.
struct Held {
    bytes: Vec<u8>,
    room: Reservation,
}

impl Held {
    /// Makes room for further bytes.
    fn make_room(&mut self, more: usize) -> Result<(), Refusal> {
        let wanted = self.bytes.len() + more;
        if wanted > self.bytes.capacity() {
            let capacity = wanted.max(self.bytes.capacity() * 2).max(STEP);
            self.room.grow((capacity - self.bytes.capacity()) as u64)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        Ok(())
    }

    /// Reads to the end, or past `most` bytes.
    fn read_from(&mut self, mut from: impl Read, encoding: &str, most: usize) -> Result<(), Refusal> {
        let mut piece = vec![0; STEP];
        while self.bytes.len() <= most {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => {
                    self.make_room(length)?;
                    self.bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let reason = format!("the body is not {encoding}: {error}");
                    return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
                }
            }
        }
        Ok(())
    }
}

impl Service {
    pub(super) fn new(settings: Arc<Settings>, context: Context, keys: Keys) -> Self {
        let pending = Semaphore::new(settings.max_pending_requests);
        Self {
            settings,
            context,
            keys,
            pending,
            #[cfg(test)]
            address: watch::Sender::new(None),
        }
    }

    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.context.stopping.clone()
    }

    /// Takes note of the address that the system gave.
    pub(super) fn listens(&self, address: SocketAddr) {
        let _ = address;
        #[cfg(test)]
        self.address.send_replace(Some(address));
    }

    /// Address that the input listens on, once it does.
    #[cfg(test)]
    pub(super) fn address(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.address.subscribe()
    }

    /// Answers a request.
    pub(super) async fn call(self: Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Answer {
        match self.take(request, peer).await {
            Ok(()) => self.accepted(),
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

    async fn take(self: &Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Result<(), Refusal> {
        self.authorize(request.headers())?;
        let behind = || Refusal::busy("the pipeline is behind, send it again later");
        if self.pending.available_permits() == 0 {
            return Err(behind());
        }
        let (head, body) = request.into_parts();
        let body = self.read(&head.headers, body).await?;
        let body = self.inflate(&head.headers, body).await?;
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
        // Parsing is not for the threads that answer.
        let parsed = tokio::task::spawn_blocking(move || service.events(&head, body, peer));
        let parsed = parsed.await;
        let (events, room) =
            parsed.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "decoding failed"))??;
        if events.is_empty() {
            return Ok(());
        }
        // Only now: clients that send slowly take nobody's place.
        let _place = self.pending.try_acquire().map_err(|_| behind())?;
        self.hand_on(events, room, key).await
    }

    /// Compares the credentials, in the same time whatever they are.
    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(expected) = &self.settings.authorization else { return Ok(()) };
        let given = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        // Digests, so that not even the length shows.
        let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
        let same = digest(given).as_ref().ct_eq(digest(expected.as_bytes()).as_ref());
        if bool::from(same) {
            return Ok(());
        }
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "credentials are missing or wrong"))
    }

    async fn read(&self, headers: &HeaderMap, mut body: Incoming) -> Result<Held, Refusal> {
        let most = self.settings.max_content_length;
        let too_large = || {
            let reason = format!("the body exceeds max_content_length [{most}]");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
        };
        let announced =
            headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.or(body.size_hint().exact()).is_some_and(|length| length > most as u64) {
            return Err(too_large());
        }
        let mut held = Held { bytes: Vec::new(), room: self.context.budget.empty() };
        loop {
            let frame = tokio::time::timeout(BODY_TIMEOUT, body.frame()).await;
            let frame = match frame {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return Ok(held),
                Ok(Some(Err(error))) => {
                    return Err(Refusal::new(
                        StatusCode::BAD_REQUEST,
                        format!("cannot read the body: {error}"),
                    ));
                }
                Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive")),
            };
            if let Ok(data) = frame.into_data() {
                if held.bytes.len() + data.len() > most {
                    return Err(too_large());
                }
                held.make_room(data.len())?;
                held.bytes.extend_from_slice(&data);
            }
        }
    }

    async fn inflate(&self, headers: &HeaderMap, body: Held) -> Result<Held, Refusal> {
        let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(body) };
        let encoding = encoding.to_str().unwrap_or_default().trim().to_ascii_lowercase();
        let most = self.settings.max_content_length;
        let inflate = move || {
            let mut body = body;
            let mut inflated = Held { bytes: Vec::new(), room: std::mem::take(&mut body.room) };
            match encoding.as_str() {
                "" | "identity" => return Ok(Held { bytes: body.bytes, room: inflated.room }),
                "gzip" | "x-gzip" => {
                    inflated.read_from(MultiGzDecoder::new(&body.bytes[..]), &encoding, most)?;
                }
                "deflate" => inflated.read_from(ZlibDecoder::new(&body.bytes[..]), &encoding, most)?,
                other => {
                    let reason = format!("content encoding [{other}] is not one of [gzip, deflate]");
                    return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
                }
            }
            if inflated.bytes.len() > most {
                let reason = format!("the decompressed body exceeds max_content_length [{most}]");
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason));
            }
            inflated.room.set(inflated.bytes.capacity() as u64);
            Ok(inflated)
        };
        let inflated = tokio::task::spawn_blocking(inflate).await;
        inflated.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "decoding failed"))?
    }

    /// Makes the events of a body, each reserved before it is kept.
    fn events(
        &self,
        head: &http::request::Parts,
        body: Held,
        peer: SocketAddr,
    ) -> Result<(Vec<Event>, Reservation), Refusal> {
        let media_type =
            head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let codec = self.settings.codecs.iter().find(|(of, _)| *of == media_type);
        let codec = codec.map_or(&self.settings.codec, |(_, codec)| codec);
        let headers = Value::Object(described(head, self.settings.authorization.is_some()));
        let host = Value::from(peer.ip().to_canonical().to_string());
        let (headers, host) = (Written::from(headers), Written::from(host));
        let each = COPIES * (headers.bytes() + host.bytes());
        let Held { bytes: body, mut room } = body;
        // One event may have all of it as text.
        let held = room.bytes();
        room.grow(text_bytes(&body))?;
        room.set(held);
        let mut events = Events::within(room, each);
        let mut decoder = codec.decoder();
        decoder.decode(&body, &mut events);
        decoder.finish(&mut events);
        drop(body);
        let (mut events, room) = events.into_parts()?;
        for event in &mut events {
            mark_version(event);
            let fields = [(&self.settings.headers_field, &headers), (&self.settings.host_field, &host)];
            for (field, value) in fields {
                // An event that has something else in the way keeps it.
                if event.set_written(field, value).is_err() {
                    event.tag("_httpfieldfailure");
                }
            }
        }
        Ok((events, room))
    }

    /// Hands events to the pipeline and waits until they are stored. That goes on if the client goes away.
    async fn hand_on(
        self: &Arc<Self>,
        events: Vec<Event>,
        held: Reservation,
        key: Option<String>,
    ) -> Result<(), Refusal> {
        // Requests come in bursts: those that were answered together are followed by as many.
        let room = match tokio::time::timeout(PATIENCE, self.context.batches.reserve()).await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Err(refusal(NotStored::Ended)),
            Err(_) => return Err(refusal(NotStored::Overloaded("the pipeline is behind".to_owned()))),
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
        let (ack, stored) = Ack::channel();
        room.send(Batch { events, position: moved.clone(), ack, held });
        let service = Arc::clone(self);
        let waits = tokio::spawn(async move {
            let outcome = stored.await.unwrap_or(Err(NotStored::Ended));
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

/// What is answered to events that are not stored.
fn refusal(why: NotStored) -> Refusal {
    match why {
        NotStored::Overloaded(reason) => Refusal::busy(format!("{reason}, send it again later")),
        why @ (NotStored::Ended | NotStored::Moved) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
        }
    }
}

/// What an event tells of its request, by the names that Logstash gives. Credentials that the input has
/// `checked` are nobody's to store; others are the pipeline's to check.
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
