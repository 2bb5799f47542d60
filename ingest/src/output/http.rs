//! `http`: a request for each event, or for many events of a delivery. A request that is too large for the server is sent in halves.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Url};
use serde_json::{Map, Value};
use tokio::sync::{OnceCell, watch};

use super::retry::Backoff;
use crate::event::text_of;
use crate::http_client::HttpClientOptions;
use crate::input::stopped;
use crate::offload::offload;
use crate::options::Setting;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::{Event, Fault, Options, Template};

/// Statuses after which a request is sent again where nothing is said.
const RETRYABLE: [u16; 5] = [429, 500, 502, 503, 504];
/// First pause between attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between attempts, as in Logstash.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Bytes of an answer that a log or a dead letter shows.
const SHOWN_BYTES: usize = 1024;

/// Events of one request of `json_batch`, and bytes of its body before compression; a single event may be larger.
const MAX_BATCH_EVENTS: usize = 1_000;
const MAX_BATCH_BYTES: usize = 5 << 20;
/// Bytes of a batch that a server which refuses larger ones gets at least.
const MIN_BATCH_BYTES: usize = 64 << 10;
/// Redirects of one request.
const MAX_REDIRECTS: usize = 10;

struct Http {
    shared: Arc<Requests>,
    client_options: HttpClientOptions,
    timeout: Duration,
    connect_timeout: Duration,
    concurrency: usize,
    retries: bool,
    retryable: BTreeSet<u16>,
    ignorable: BTreeSet<u16>,
    first_pause: Duration,
    client: OnceCell<Client>,
}

/// Makes requests of events.
struct Requests {
    url: Template,
    method: Method,
    headers: Vec<(HeaderName, Template)>,
    authorization: Option<HeaderValue>,
    content_type: HeaderValue,
    body: BodyFormat,
    mapping: Option<Vec<(Template, Mapping)>>,
    gzip: bool,
    /// Most bytes of the body of a batch: fewer once the server has refused one as too large.
    most_bytes: AtomicUsize,
}

#[derive(Debug)]
enum BodyFormat {
    Json,
    JsonBatch,
    Form,
    Message(Template),
}

/// Value of a member that `mapping` describes.
#[derive(Debug)]
enum Mapping {
    Text(Template),
    Array(Vec<Mapping>),
    Hash(Vec<(Template, Mapping)>),
}

/// Events with their stable ids.
type SentEvents = Arc<Vec<(Arc<Event>, Option<String>)>>;

/// A request with the events that it has.
struct OutgoingRequest {
    /// Numbers of the events, one after the other.
    events: Range<usize>,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    /// Bytes of the body before compression.
    length: usize,
}

/// Result of one attempt.
enum Attempt {
    Accepted,
    /// The request is to be sent again.
    Failed(String),
    /// The body is too large for the server.
    TooLarge(String),
    Refused(String),
}

/// Without headers and address, which may have credentials.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("method", &self.shared.method).finish_non_exhaustive()
    }
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(options: Options) -> Result<Output, Vec<Fault>> {
    Ok(Output::Sink(Arc::new(configured(options, FIRST_PAUSE)?)))
}

fn configured(mut options: Options, first_pause: Duration) -> Result<Http, Vec<Fault>> {
    // The body is what [format] says, as in Logstash, whatever it is.
    let _ = crate::codec::take(&mut options, "plain");
    let url = options.required_text("url");
    let url = Template::parse(&url);
    if url.is_constant() && !url.as_str().is_empty() && parse_url(url.as_str()).is_err() {
        options.fault_here("[url] of [http] is not an address such as https://host/path");
    }
    let methods = ["put", "post", "patch", "delete", "get", "head"];
    let method = match options.one_of("http_method", &methods) {
        Some(method) => Method::from_bytes(method.to_uppercase().as_bytes()).unwrap_or(Method::POST),
        None => {
            options.fault_here(format!(
                "[http] needs the option [http_method], one of [{}]",
                methods.join(", ")
            ));
            Method::POST
        }
    };
    let body = body_format(&mut options);
    let content_type = options.text("content_type").unwrap_or_else(|| {
        match &body {
            BodyFormat::Form => "application/x-www-form-urlencoded",
            BodyFormat::Message(_) => "text/plain",
            BodyFormat::Json | BodyFormat::JsonBatch => "application/json",
        }
        .to_owned()
    });
    let content_type = HeaderValue::try_from(content_type).unwrap_or_else(|_| {
        options.fault_here("[content_type] of [http] is not a media type");
        HeaderValue::from_static("application/json")
    });
    let headers = headers(&mut options);
    let mapping = options.hash("mapping");
    let mapping = (!mapping.is_empty()).then(|| members(mapping));
    let gzip = options.boolean("http_compression").unwrap_or(false);
    let authorization = authorization(&mut options);
    let mut codes = |name, default: &[u16]| {
        let given = options.read(name, "an array of statuses", |setting| {
            let numbers: Option<BTreeSet<u16>> = match setting {
                Setting::Array(elements) => {
                    elements.iter().map(|element| element.as_text()?.parse().ok()).collect()
                }
                single => single.as_text()?.parse().ok().map(|status| BTreeSet::from([status])),
            };
            numbers
        });
        given.unwrap_or_else(|| default.iter().copied().collect())
    };
    let retryable = codes("retryable_codes", &RETRYABLE);
    let ignorable = codes("ignorable_codes", &[]);
    let retries = options.boolean("retry_failed").unwrap_or(true);
    let seconds = |options: &mut Options, name, default| {
        let given = options.float(name).filter(|seconds| (0.001..=86_400.0).contains(seconds));
        Duration::from_secs_f64(given.unwrap_or(default))
    };
    let timeout = seconds(&mut options, "request_timeout", 60.0);
    let connect_timeout = seconds(&mut options, "connect_timeout", 10.0);
    let concurrency = options.integer("pool_max", 1..=10_000).unwrap_or(50);
    let client_options = HttpClientOptions::take(&mut options);
    options.finish()?;
    let shared = Arc::new(Requests {
        url,
        method,
        headers,
        authorization,
        content_type,
        body,
        mapping,
        gzip,
        most_bytes: AtomicUsize::new(MAX_BATCH_BYTES),
    });
    Ok(Http {
        shared,
        client_options,
        timeout,
        connect_timeout,
        concurrency: usize::try_from(concurrency).unwrap_or(50),
        retries,
        retryable,
        ignorable,
        first_pause,
        client: OnceCell::new(),
    })
}

/// Parses an address of HTTP.
///
/// # Errors
/// The text is no address, has another scheme than `http` and `https`, or no host.
fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme [{}] is neither http nor https", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("it has no host".to_owned());
    }
    Ok(url)
}

fn body_format(options: &mut Options) -> BodyFormat {
    let message = options.template("message");
    match options.one_of("format", &["json", "json_batch", "form", "message"]) {
        Some("json_batch") => BodyFormat::JsonBatch,
        Some("form") => BodyFormat::Form,
        Some("message") => BodyFormat::Message(message.unwrap_or_else(|| {
            options.fault_here("[format => message] of [http] needs the option [message]");
            Template::parse("")
        })),
        _ => BodyFormat::Json,
    }
}

fn headers(options: &mut Options) -> Vec<(HeaderName, Template)> {
    let mut headers = Vec::new();
    for (name, value) in options.hash("headers") {
        match (HeaderName::try_from(name.as_str()), value.as_text()) {
            (Ok(name), Some(value)) => headers.push((name, Template::parse(&value))),
            _ => options.fault_here(format!("[{name}] of [headers] is not a header")),
        }
    }
    headers
}

fn authorization(options: &mut Options) -> Option<HeaderValue> {
    let (user, password) = (options.text("user"), options.secret("password"));
    let user = user.filter(|user| !user.is_empty())?;
    let Some(password) = password else {
        options.fault_here("[user] of [http] needs the option [password]");
        return None;
    };
    let credentials =
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:{}", password.expose()));
    let mut value = HeaderValue::try_from(format!("Basic {credentials}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn members(members: Vec<(String, Setting)>) -> Vec<(Template, Mapping)> {
    members.into_iter().map(|(name, value)| (Template::parse(&name), Mapping::new(value))).collect()
}

impl Mapping {
    fn new(setting: Setting) -> Self {
        match setting {
            Setting::Array(elements) => Self::Array(elements.into_iter().map(Self::new).collect()),
            Setting::Hash(inner) => Self::Hash(members(inner)),
            other => Self::Text(Template::parse(&other.as_text().unwrap_or_default())),
        }
    }

    fn render(&self, event: &Event) -> Value {
        match self {
            Self::Text(template) => Value::String(template.render(event)),
            Self::Array(elements) => {
                Value::Array(elements.iter().map(|element| element.render(event)).collect())
            }
            Self::Hash(members) => Value::Object(render_members(members, event)),
        }
    }
}

fn render_members(members: &[(Template, Mapping)], event: &Event) -> Map<String, Value> {
    members.iter().map(|(name, value)| (name.as_str().to_owned(), value.render(event))).collect()
}

impl Requests {
    /// Makes the requests of events; an event that has no address or no header is refused.
    fn make(&self, events: &[(Arc<Event>, Option<String>)]) -> (Vec<OutgoingRequest>, Vec<RefusedEvent>) {
        if let BodyFormat::JsonBatch = self.body {
            return self.make_batches(events, 0..events.len(), MAX_BATCH_EVENTS);
        }
        let mut refused = Vec::new();
        let mut requests = Vec::new();
        for (number, (event, _)) in events.iter().enumerate() {
            let mut body = Vec::with_capacity(512);
            match &self.body {
                BodyFormat::Form => self.write_form(event, &mut body),
                BodyFormat::Message(template) => body.extend_from_slice(template.render(event).as_bytes()),
                BodyFormat::Json | BodyFormat::JsonBatch => self.write_json(event, &mut body),
            }
            match self.request(number..number + 1, event, body) {
                Ok(request) => requests.push(request),
                Err(reason) => refused.push(RefusedEvent { event: number, reason }),
            }
        }
        (requests, refused)
    }

    /// Makes requests of up to so many events each, of those of a range. The first event of a request gives its address and its headers.
    fn make_batches(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        range: Range<usize>,
        most_events: usize,
    ) -> (Vec<OutgoingRequest>, Vec<RefusedEvent>) {
        let (mut requests, mut refused) = (Vec::new(), Vec::new());
        let mut end = |batch: Range<usize>, mut body: Vec<u8>| {
            body.push(b']');
            let Some((event, _)) = events.get(batch.start) else { return };
            match self.request(batch.clone(), event, body) {
                Ok(request) => requests.push(request),
                Err(reason) => refused.extend(refusals(batch, &reason)),
            }
        };
        let most_bytes = self.most_bytes.load(Ordering::Relaxed);
        let mut first = range.start;
        let mut body = vec![b'['];
        for next in range.clone() {
            let before = body.len();
            if next > first {
                body.push(b',');
            }
            let begin = body.len();
            if let Some((event, _)) = events.get(next) {
                self.write_json(event, &mut body);
            }
            if next > first && (body.len() >= most_bytes || next - first >= most_events) {
                let mut following = vec![b'['];
                following.extend_from_slice(body.get(begin..).unwrap_or_default());
                body.truncate(before);
                end(first..next, std::mem::replace(&mut body, following));
                first = next;
            }
        }
        if first < range.end {
            end(first..range.end, body);
        }
        (requests, refused)
    }

    fn write_json(&self, event: &Event, out: &mut Vec<u8>) {
        match &self.mapping {
            None => event.write_json(out),
            Some(mapping) => {
                out.extend_from_slice(Value::Object(render_members(mapping, event)).to_string().as_bytes())
            }
        }
    }

    fn write_form(&self, event: &Event, out: &mut Vec<u8>) {
        let pairs: Vec<(String, String)> = match &self.mapping {
            Some(mapping) => render_members(mapping, event)
                .iter()
                .map(|(name, value)| (name.clone(), text_of(value)))
                .collect(),
            None => {
                let time = ("@timestamp".to_owned(), event.timestamp_text());
                let fields = event.fields().iter().map(|(name, value)| (name.clone(), text_of(value)));
                std::iter::once(time).chain(fields).collect()
            }
        };
        for (number, (name, value)) in pairs.iter().enumerate() {
            if number > 0 {
                out.push(b'&');
            }
            escape(name, out);
            out.push(b'=');
            escape(value, out);
        }
    }

    fn request(&self, events: Range<usize>, event: &Event, body: Vec<u8>) -> Result<OutgoingRequest, String> {
        let address = self.url.render(event);
        let url =
            parse_url(&address).map_err(|error| format!("[url] makes no address of the event: {error}"))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, self.content_type.clone());
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in &self.headers {
            let value = HeaderValue::try_from(value.render(event))
                .map_err(|_| format!("[headers] makes no value of [{name}] of the event"))?;
            headers.insert(name.clone(), value);
        }
        let length = body.len();
        let body = if self.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::default());
            encoder.write_all(&body).map_err(|error| error.to_string())?;
            encoder.finish().map_err(|error| error.to_string())?
        } else {
            body
        };
        Ok(OutgoingRequest { events, url, headers, body: Bytes::from(body), length })
    }
}

/// Returns the refusals of events for one reason.
fn refusals(events: Range<usize>, reason: &str) -> impl Iterator<Item = RefusedEvent> {
    events.map(move |event| RefusedEvent { event, reason: reason.to_owned() })
}

/// Escapes a text of a form.
fn escape(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => out.push(byte),
            b' ' => out.push(b'+'),
            other => out.extend_from_slice(format!("%{other:02X}").as_bytes()),
        }
    }
}

impl Http {
    /// Returns the policy for redirects. The output refuses the events of a redirect that it does not follow.
    ///
    /// A client repeats a method with its body at 307 and 308 only. Headers of the options may have credentials, so they stay with the
    /// host, and with TLS.
    fn redirects(&self) -> Policy {
        let is_read = matches!(self.shared.method, Method::GET | Method::HEAD);
        let is_bound_to_host = !is_read || !self.shared.headers.is_empty();
        Policy::custom(move |attempt| {
            let repeats = is_read || matches!(attempt.status().as_u16(), 307 | 308);
            let stays = attempt.previous().first().is_some_and(|from| {
                let is_downgrade = from.scheme() == "https" && attempt.url().scheme() != "https";
                from.host_str() == attempt.url().host_str() && !is_downgrade
            });
            let is_followed = repeats && (stays || !is_bound_to_host);
            if is_followed && attempt.previous().len() <= MAX_REDIRECTS {
                attempt.follow()
            } else {
                attempt.stop()
            }
        })
    }

    fn make_client(&self) -> Result<Client, String> {
        self.client_options.client((self.timeout, self.connect_timeout), self.redirects())
    }

    async fn attempt(&self, request: &OutgoingRequest) -> Attempt {
        let client = match self.client.get_or_try_init(|| async { self.make_client() }).await {
            Ok(client) => client,
            Err(reason) => return Attempt::Failed(reason),
        };
        let sent = client
            .request(self.shared.method.clone(), request.url.clone())
            .headers(request.headers.clone())
            .body(request.body.clone())
            .send()
            .await;
        let mut answer = match sent {
            Ok(answer) => answer,
            // The next attempt meets the same address and the same redirects.
            Err(error) if error.is_builder() || error.is_redirect() => {
                return Attempt::Refused(error.without_url().to_string());
            }
            Err(error) => return Attempt::Failed(error.without_url().to_string()),
        };
        let status = answer.status().as_u16();
        if (200..300).contains(&status) || self.ignorable.contains(&status) {
            return Attempt::Accepted;
        }
        let mut shown = Vec::new();
        while shown.len() < SHOWN_BYTES
            && let Ok(Some(chunk)) = answer.chunk().await
        {
            shown.extend(chunk.iter().take(SHOWN_BYTES - shown.len()));
        }
        let reason = format!("the server answers {status}: {}", String::from_utf8_lossy(&shown));
        match status {
            status if self.retryable.contains(&status) => Attempt::Failed(reason),
            413 => Attempt::TooLarge(reason),
            _ => Attempt::Refused(reason),
        }
    }

    /// Sends a request until it is accepted or refused. One that is too large becomes two of half its events.
    async fn deliver(
        &self,
        request: OutgoingRequest,
        events: SentEvents,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let mut backoff = Backoff::new(self.first_pause, LONGEST_PAUSE);
        let mut refused = Vec::new();
        let mut requests = vec![request];
        while let Some(request) = requests.pop() {
            let attempt = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Err(SinkInterrupted),
                attempt = self.attempt(&request) => attempt,
            };
            match attempt {
                Attempt::Accepted => backoff = Backoff::new(self.first_pause, LONGEST_PAUSE),
                Attempt::Failed(reason) if self.retries => {
                    tracing::warn!(
                        reason,
                        host = request.url.host_str(),
                        "the output http sends a request again"
                    );
                    requests.push(request);
                    backoff.wait(&mut stopping).await?;
                }
                Attempt::TooLarge(_) if request.events.len() > 1 => {
                    let most_bytes = (request.length / 2).max(MIN_BATCH_BYTES);
                    self.shared.most_bytes.fetch_min(most_bytes, Ordering::Relaxed);
                    let (shared, events, range) =
                        (Arc::clone(&self.shared), Arc::clone(&events), request.events);
                    let half = range.len().div_ceil(2);
                    let (halves, more_refused) =
                        offload(move || shared.make_batches(&events, range, half)).await;
                    requests.extend(halves.into_iter().rev());
                    refused.extend(more_refused);
                }
                Attempt::Failed(reason) | Attempt::TooLarge(reason) | Attempt::Refused(reason) => {
                    refused.extend(refusals(request.events, &reason));
                }
            }
        }
        Ok(refused)
    }
}

#[async_trait]
impl Sink for Http {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let events: SentEvents = Arc::new(events.to_vec());
        let (shared, all) = (Arc::clone(&self.shared), Arc::clone(&events));
        let (requests, mut refused) = offload(move || shared.make(&all)).await;
        let sends =
            requests.into_iter().map(|request| self.deliver(request, Arc::clone(&events), stopping.clone()));
        // Batches of a delivery keep their order.
        let concurrency =
            if matches!(self.shared.body, BodyFormat::JsonBatch) { 1 } else { self.concurrency };
        let mut sends = futures::stream::iter(sends).buffered(concurrency);
        while let Some(sent) = sends.next().await {
            refused.extend(sent?);
        }
        refused.sort_by_key(|refused| refused.event);
        Ok(refused)
    }
}

#[cfg(test)]
mod tests;
