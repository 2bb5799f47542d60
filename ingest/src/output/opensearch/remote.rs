//! Operations on indices of another server, over `_bulk`.
//!
//! What passes by itself is sent again with growing pauses until it is through: no connection, 429, 5xx,
//! blocks, wrong credentials. What is refused for good (400, 404 of an item) is told to the pipeline. An item that was
//! sent before may have arrived although its answer did not: events without an id of their own have a
//! stable one and are created, so a conflict means that they are there.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use millrace_catalog::operation::ActionKind;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};

use super::connection::Settings;
use super::operation::{Operation, Operations};
use super::template::IndexTemplate;
use crate::Event;
use crate::offload::offload;
use crate::output::{OrderTicket, RefusedEvent, Sink, SinkInterrupted};

/// Longest answer.
const MAX_ANSWER: usize = 256 << 20;
/// Longest reason of a refusal that is kept.
const MAX_REASON: usize = 4096;

/// Sends events to another server.
pub(super) struct Remote {
    operations: Arc<Operations>,
    settings: Settings,
    addresses: Vec<Url>,
    /// The address that worked last.
    current: AtomicUsize,
    client: OnceCell<Client>,
    template: Option<IndexTemplate>,
    /// Set once the server has the template.
    has_template: OnceCell<()>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("hosts", &self.hosts()).finish_non_exhaustive()
    }
}

/// An operation on its way.
struct Item {
    /// Index of the event.
    event: usize,
    /// Its lines of the body.
    lines: Vec<u8>,
    /// `true` if a conflict means that it is there.
    create: bool,
}

/// Outcome of one request.
enum RequestOutcome {
    /// Items that were not taken and are to be sent again, with why.
    Again(Vec<Item>, String),
    /// The request is too large for the server.
    TooLarge(Vec<Item>),
    Done,
}

#[derive(Deserialize)]
struct Answer {
    items: Vec<serde_json::Map<String, Value>>,
}

impl Remote {
    pub(super) fn new(
        operations: Operations,
        settings: Settings,
        template: Option<IndexTemplate>,
    ) -> Result<Self, String> {
        let addresses = settings.addresses()?;
        let (operations, current) = (Arc::new(operations), AtomicUsize::new(0));
        let (client, has_template) = (OnceCell::new(), OnceCell::new());
        Ok(Self { operations, settings, addresses, current, client, template, has_template })
    }

    /// Names of the hosts, without the credentials that an address may have.
    fn hosts(&self) -> Vec<&str> {
        self.addresses.iter().filter_map(Url::host_str).collect()
    }

    /// Puts the template on the server, unless it is there and stays. Events wait for that: they would make indices without it.
    async fn put_template(&self, client: &Client, bulk: &Url) -> Result<(), String> {
        let Some(template) = &self.template else { return Ok(()) };
        let mut url = bulk.clone();
        let base = bulk.path().rsplit_once('/').map_or("", |(base, _)| base);
        url.set_path(&format!("{base}/{}", template.path()));
        let failed = |reason: String| format!("the template cannot be put: {reason}");
        if !template.overwrites {
            let answer = client.head(url.clone()).send().await;
            let answer = answer.map_err(|error| failed(chain(&error.without_url())))?;
            if answer.status().is_success() {
                return Ok(());
            }
        }
        let text = template.body.to_string();
        let body =
            compressed(text.as_bytes(), self.settings.gzip).map_err(|error| failed(error.to_string()))?;
        let sent = client.put(url).header(CONTENT_TYPE, "application/json").body(body).send().await;
        let answer = sent.map_err(|error| failed(chain(&error.without_url())))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let text = read(answer).await.map_err(failed)?;
        Err(failed(format!("{status}: {}", cut(&String::from_utf8_lossy(&text)))))
    }

    /// Sends one request.
    async fn send_once(&self, items: Vec<Item>, refused: &mut Vec<RefusedEvent>) -> RequestOutcome {
        let client = match self.client.get_or_try_init(|| async { self.settings.client() }).await {
            Ok(client) => client,
            Err(reason) => return RequestOutcome::Again(items, reason),
        };
        let at = self.current.load(Ordering::Relaxed);
        let Some(url) = self.addresses.get(at % self.addresses.len().max(1)) else {
            return RequestOutcome::Again(items, "there are no hosts".to_owned());
        };
        if let Err(reason) = self.has_template.get_or_try_init(|| self.put_template(client, url)).await {
            self.current.fetch_add(1, Ordering::Relaxed);
            return RequestOutcome::Again(items, reason);
        }
        let gzip = self.settings.gzip;
        let (items, body) = offload(move || {
            let body = body(&items, gzip);
            (items, body)
        })
        .await;
        let body = match body {
            Ok(body) => body,
            Err(error) => return RequestOutcome::Again(items, format!("cannot compress: {error}")),
        };
        let fails = |items, reason: String| {
            // The next try goes to the next host.
            self.current.fetch_add(1, Ordering::Relaxed);
            RequestOutcome::Again(items, format!("[{}]: {reason}", url.host_str().unwrap_or_default()))
        };
        let answer = match client.post(url.clone()).body(body).send().await {
            Ok(answer) => answer,
            Err(error) => return fails(items, chain(&error.without_url())),
        };
        let status = answer.status();
        let text = match read(answer).await {
            Ok(text) => text,
            Err(reason) => return fails(items, reason),
        };
        match status {
            StatusCode::OK | StatusCode::CREATED => {}
            StatusCode::PAYLOAD_TOO_LARGE => return RequestOutcome::TooLarge(items),
            StatusCode::BAD_REQUEST => {
                let reason =
                    format!("the server refuses the request: {}", cut(&String::from_utf8_lossy(&text)));
                refused.extend(
                    items.into_iter().map(|item| RefusedEvent { event: item.event, reason: reason.clone() }),
                );
                return RequestOutcome::Done;
            }
            other => return fails(items, format!("{other}: {}", cut(&String::from_utf8_lossy(&text)))),
        }
        let (sent, more) = offload(move || {
            let mut refused = Vec::new();
            let sent = match serde_json::from_slice::<Answer>(&text) {
                Ok(answer) if answer.items.len() == items.len() => Ok(sort(items, answer, &mut refused)),
                Ok(answer) => {
                    let (answered, sent) = (answer.items.len(), items.len());
                    Err((items, format!("the answer has {answered} items, the request had {sent}")))
                }
                Err(error) => Err((items, format!("the answer is not that of _bulk: {error}"))),
            };
            (sent, refused)
        })
        .await;
        refused.extend(more);
        sent.unwrap_or_else(|(items, reason)| fails(items, reason))
    }

    /// Sends items until each is taken or refused.
    async fn send_all(
        &self,
        items: Vec<Item>,
        refused: &mut Vec<RefusedEvent>,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(), SinkInterrupted> {
        let mut requests = cut_up(items, self.settings.bulk_bytes);
        requests.reverse();
        let mut pause = self.settings.retry_initial;
        let mut failures = 0u64;
        while let Some(request) = requests.pop() {
            let count = request.len();
            let sent = tokio::select! {
                biased;
                () = crate::input::stopped(stopping) => return Err(SinkInterrupted),
                sent = self.send_once(request, refused) => sent,
            };
            match sent {
                RequestOutcome::Done => {
                    if failures > 0 {
                        tracing::info!(hosts = ?self.hosts(), failures, "the output takes events again");
                    }
                    (failures, pause) = (0, self.settings.retry_initial);
                }
                RequestOutcome::TooLarge(mut items) if count > 1 => {
                    let second = items.split_off(count / 2);
                    requests.push(second);
                    requests.push(items);
                }
                RequestOutcome::TooLarge(items) => {
                    let reason = "the event is too large for the server".to_owned();
                    refused.extend(
                        items
                            .into_iter()
                            .map(|item| RefusedEvent { event: item.event, reason: reason.clone() }),
                    );
                }
                RequestOutcome::Again(items, reason) => {
                    failures += 1;
                    let left = items.len();
                    tracing::warn!(
                        reason,
                        left,
                        failures,
                        "the output does not take events, they are sent again"
                    );
                    requests.push(items);
                    tokio::select! {
                        biased;
                        () = crate::input::stopped(stopping) => return Err(SinkInterrupted),
                        () = tokio::time::sleep(jittered(pause)) => {}
                    }
                    pause = pause.saturating_mul(2).min(self.settings.retry_max);
                }
            }
        }
        Ok(())
    }
}

/// Builds the items of events; an event without one is refused.
fn items(
    operations: &Operations,
    events: &[(Arc<Event>, Option<String>)],
    refused: &mut Vec<RefusedEvent>,
) -> Vec<Item> {
    let mut items = Vec::with_capacity(events.len());
    for (event, (content, stable_id)) in events.iter().enumerate() {
        match operations.operation_for(content, stable_id.clone()) {
            Ok(operation) => items.push(item(event, operation, operations.retry_on_conflict)),
            Err(reason) => refused.push(RefusedEvent { event, reason }),
        }
    }
    items
}

fn item(event: usize, operation: Operation, retry_on_conflict: u32) -> Item {
    let Operation { action, index, id, routing, pipeline, version, document, upsert, doc_as_upsert } =
        operation;
    let mut meta = json!({"_index": index});
    let mut put = |name: &str, value: Option<Value>| {
        if let (Some(meta), Some(value)) = (meta.as_object_mut(), value) {
            meta.insert(name.to_owned(), value);
        }
    };
    put("_id", id.map(Value::from));
    put("routing", routing.map(Value::from));
    put("pipeline", pipeline.map(Value::from));
    put("version", version.map(|(version, _)| Value::from(version)));
    put("version_type", version.map(|(_, kind)| Value::from(kind.name())));
    if action == ActionKind::Update {
        put("retry_on_conflict", Some(Value::from(retry_on_conflict)));
    }
    let mut lines = json!({ action.name(): meta }).to_string().into_bytes();
    lines.push(b'\n');
    match action {
        ActionKind::Delete => {}
        ActionKind::Index | ActionKind::Create => {
            lines.extend_from_slice(&document);
            lines.push(b'\n');
        }
        ActionKind::Update => {
            lines.extend_from_slice(b"{\"doc\":");
            lines.extend_from_slice(&document);
            if doc_as_upsert {
                lines.extend_from_slice(b",\"doc_as_upsert\":true");
            }
            if let Some(upsert) = upsert {
                lines.extend_from_slice(format!(",\"upsert\":{upsert}").as_bytes());
            }
            lines.extend_from_slice(b"}\n");
        }
    }
    Item { event, lines, create: action == ActionKind::Create }
}

fn compressed(text: &[u8], gzip: Option<u32>) -> std::io::Result<Bytes> {
    let Some(level) = gzip else { return Ok(Bytes::copy_from_slice(text)) };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(text)?;
    Ok(Bytes::from(encoder.finish()?))
}

fn body(items: &[Item], gzip: Option<u32>) -> std::io::Result<Bytes> {
    let length = items.iter().map(|item| item.lines.len()).sum();
    let Some(level) = gzip else {
        let mut body = Vec::with_capacity(length);
        items.iter().for_each(|item| body.extend_from_slice(&item.lines));
        return Ok(Bytes::from(body));
    };
    let mut encoder = GzEncoder::new(Vec::with_capacity(length / 4), Compression::new(level));
    for item in items {
        encoder.write_all(&item.lines)?;
    }
    Ok(Bytes::from(encoder.finish()?))
}

/// A pause of between half and all of the given one: clients that failed together do not come back together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}

/// Sorts items by what the answer says of each.
fn sort(items: Vec<Item>, answer: Answer, refused: &mut Vec<RefusedEvent>) -> RequestOutcome {
    let mut again = Vec::new();
    let mut why = String::new();
    for (item, answer) in items.into_iter().zip(answer.items) {
        let outcome = answer.values().next();
        let status = outcome.and_then(|outcome| outcome.get("status")?.as_u64()).unwrap_or(0);
        let reason = || {
            let error = outcome.and_then(|outcome| outcome.get("error"));
            cut(&error.map_or_else(|| format!("status {status}"), ToString::to_string))
        };
        match status {
            200..=299 => {}
            // It is there: from a try before, or another event of the same id.
            409 if item.create => {}
            // Somebody else's version is newer: as in Logstash, it stays.
            409 => tracing::warn!(reason = reason(), "an event lost against a newer version of its document"),
            400 | 404 | 413 => refused.push(RefusedEvent { event: item.event, reason: reason() }),
            _ => {
                if again.is_empty() {
                    why = reason();
                }
                again.push(item);
            }
        }
    }
    if again.is_empty() { RequestOutcome::Done } else { RequestOutcome::Again(again, why) }
}

fn cut_up(items: Vec<Item>, most: usize) -> Vec<Vec<Item>> {
    let mut requests: Vec<Vec<Item>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        bytes += item.lines.len();
        match requests.last_mut() {
            Some(last) if bytes <= most => last.push(item),
            _ => {
                bytes = item.lines.len();
                requests.push(vec![item]);
            }
        }
    }
    requests
}

async fn read(mut answer: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| chain(&error.without_url()))? {
        if text.len() + chunk.len() > MAX_ANSWER {
            return Err(format!("the answer exceeds {MAX_ANSWER} bytes"));
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_REASON).collect()
}

#[async_trait]
impl Sink for Remote {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let (operations, events) = (Arc::clone(&self.operations), events.to_vec());
        let (items, mut refused) = offload(move || {
            let mut refused = Vec::new();
            (items(&operations, &events, &mut refused), refused)
        })
        .await;
        self.send_all(items, &mut refused, &mut stopping).await?;
        refused.sort_by_key(|refused| refused.event);
        Ok(refused)
    }
}
