//! A request: from its bytes to events, to the pipeline, to the answer.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
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
use crate::event::Written;
use crate::input::{Context, mark_version};
use crate::{Ack, Batch, Event};

/// Longest silence within a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for room in the pipeline.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of all bodies that are read or wait for their events to be stored.
const MAX_IN_FLIGHT_BYTES: usize = 512 << 20;
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
    in_flight_bytes: AtomicUsize,
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

/// Bytes of a body, given back when dropped.
struct Held<'a> {
    all: &'a AtomicUsize,
    bytes: usize,
}

impl Held<'_> {
    fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.bytes += bytes;
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > MAX_IN_FLIGHT_BYTES {
            return Err(Refusal::busy("too many bytes of requests are under way, send it again later"));
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
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
            in_flight_bytes: AtomicUsize::new(0),
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
        let mut held = Held { all: &self.in_flight_bytes, bytes: 0 };
        let (head, body) = request.into_parts();
        let body = self.read(&head.headers, body, &mut held).await?;
        let body = self.inflate(&head.headers, body, &mut held).await?;
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
        let parsed = tokio::task::spawn_blocking(move || service.events(&head, &body, peer));
        let events =
            parsed.await.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "decoding failed"))?;
        if events.is_empty() {
            return Ok(());
        }
        // Only now: clients that send slowly take nobody's place.
        let _place = self.pending.try_acquire().map_err(|_| behind())?;
        self.hand_on(events, key).await
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

    async fn read(
        &self,
        headers: &HeaderMap,
        mut body: Incoming,
        held: &mut Held<'_>,
    ) -> Result<Bytes, Refusal> {
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
        let mut bytes = BytesMut::new();
        loop {
            let frame = tokio::time::timeout(BODY_TIMEOUT, body.frame()).await;
            let frame = match frame {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return Ok(bytes.freeze()),
                Ok(Some(Err(error))) => {
                    return Err(Refusal::new(
                        StatusCode::BAD_REQUEST,
                        format!("cannot read the body: {error}"),
                    ));
                }
                Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive")),
            };
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > most {
                    return Err(too_large());
                }
                held.add(data.len())?;
                bytes.extend_from_slice(&data);
            }
        }
    }

    async fn inflate(&self, headers: &HeaderMap, body: Bytes, held: &mut Held<'_>) -> Result<Bytes, Refusal> {
        let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(body) };
        let encoding = encoding.to_str().unwrap_or_default().trim().to_ascii_lowercase();
        let most = self.settings.max_content_length;
        let inflate = move || {
            let limit = most as u64 + 1;
            let mut bytes = Vec::new();
            let read = match encoding.as_str() {
                "" | "identity" => return Ok(body),
                "gzip" | "x-gzip" => MultiGzDecoder::new(&body[..]).take(limit).read_to_end(&mut bytes),
                "deflate" => ZlibDecoder::new(&body[..]).take(limit).read_to_end(&mut bytes),
                other => {
                    let reason = format!("content encoding [{other}] is not one of [gzip, deflate]");
                    return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
                }
            };
            match read {
                Err(error) => {
                    Err(Refusal::new(StatusCode::BAD_REQUEST, format!("the body is not {encoding}: {error}")))
                }
                Ok(length) if length > most => {
                    let reason = format!("the decompressed body exceeds max_content_length [{most}]");
                    Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason))
                }
                Ok(_) => Ok(Bytes::from(bytes)),
            }
        };
        let inflated = tokio::task::spawn_blocking(inflate).await;
        let body =
            inflated.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "decoding failed"))??;
        held.add(body.len())?;
        Ok(body)
    }

    fn events(&self, head: &http::request::Parts, body: &[u8], peer: SocketAddr) -> Vec<Event> {
        let media_type =
            head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let codec = self.settings.codecs.iter().find(|(of, _)| *of == media_type);
        let codec = codec.map_or(&self.settings.codec, |(_, codec)| codec);
        let mut events = Vec::new();
        let mut decoder = codec.decoder();
        decoder.decode(body, &mut events);
        decoder.finish(&mut events);
        let headers = Value::Object(described(head, self.settings.authorization.is_some()));
        let host = Value::from(peer.ip().to_canonical().to_string());
        let (headers, host) = (Written::from(headers), Written::from(host));
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
        events
    }

    /// Hands events to the pipeline and waits until they are stored. That goes on if the client goes away.
    async fn hand_on(self: &Arc<Self>, events: Vec<Event>, key: Option<String>) -> Result<(), Refusal> {
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
        room.send(Batch { events, position: moved.clone(), ack });
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
