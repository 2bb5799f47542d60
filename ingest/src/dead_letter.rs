//! Dead letters: events that cannot be stored, with the reason, as documents of an index of their own.
//!
//! A letter is written in the frame of the batch that it is from, in place of what was refused
//! ([`in_place_of`] for a [`SourceWrite`](millrace_catalog::operation::SourceWrite), [`of_event`] for events that never became an operation), so an
//! event is stored or is a letter, once. Its mapping is fixed and what the event was is kept as bytes, so that
//! whatever kept the event out cannot keep its letter out. [`StoredDeadLetter`] reads a letter back; [`Limits`] say what letters may take.
//! `millrace-pipeline-store` lists, replays and bounds the letters of an engine.

mod limits;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use millrace_catalog::operation::{Action, ActionKind, Update, VersionType, WriteOp};
use millrace_catalog::system_document::{Precondition, SystemDocument, hidden_index};
use millrace_mapping::source::Members;
use millrace_runtime::{Error, Kind};
use serde_json::{Map, Value, json};

pub use limits::{Limits, MAX_BYTES, Policy};

use crate::Event;
use crate::event::METADATA;

/// The index of dead letters.
pub const INDEX: &str = ".dead-letters";
/// Longest reason that is kept, in characters.
const MAX_REASON: usize = 8192;
/// Time that a write of letters may wait for memory.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Origin of an event that became a dead letter.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// Pipeline.
    pub pipeline: &'a str,
    /// Plugin that could not store the event.
    pub plugin: &'a str,
}

/// A stored letter.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDeadLetter {
    /// Its id.
    pub id: String,
    /// Time of writing, in ISO 8601.
    pub time: String,
    /// Pipeline of the event.
    pub pipeline: String,
    /// Plugin that could not store it.
    pub plugin: String,
    /// Why.
    pub reason: String,
    /// Attempted action: `index`, `create`, `update`, `delete`; empty for an event that became no operation.
    pub action: String,
    /// Index that it was for, where it got that far.
    pub index: Option<String>,
    /// Time of writing, by which letters are ordered.
    time_ms: i64,
    /// The rest of the stored document: id, routing, version, payload.
    document: Map<String, Value>,
}

/// Report of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Letters whose events are stored now; they are gone.
    pub stored: u64,
    /// Letters that stay, with the reason.
    pub left: Vec<(String, String)>,
    /// Cursor behind the replayed letters; `None` where there were no more.
    pub next: Option<Cursor>,
}

/// The mapping and settings of the index.
fn index_body() -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": 8191});
    hidden_index(json!({
        "@timestamp": {"type": "date"},
        "pipeline": keyword,
        "plugin": keyword,
        "reason": {"type": "text"},
        "action": keyword,
        "index": keyword,
        "document_id": keyword,
        "routing": keyword,
        "payload": {"type": "binary"},
        "bytes": {"type": "long"},
    }))
}

/// A letter behind which a listing goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    time_ms: i64,
    id: String,
}

impl Cursor {
    /// Makes the cursor behind the letter of a time, in milliseconds, and an id.
    pub fn new(time_ms: i64, id: String) -> Self {
        Self { time_ms, id }
    }

    /// Returns the time of the letter, in milliseconds.
    pub fn time_ms(&self) -> i64 {
        self.time_ms
    }

    /// Reads what [`fmt::Display`] wrote.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('.').and_then(|(time, id)| Some((time.parse().ok()?, id)));
        let (time_ms, id) =
            parts.ok_or_else(|| format!("[{text}] is not the [next] of an earlier answer"))?;
        Ok(Self { time_ms, id: id.to_owned() })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time_ms, self.id)
    }
}

/// Selection of dead letters.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterFilter<'a> {
    /// Of this pipeline; `None` for all.
    pub pipeline: Option<&'a str>,
    /// Behind this one.
    pub after: Option<&'a Cursor>,
    /// At most so many.
    pub most: usize,
}

/// Some letters, the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The letters.
    pub letters: Vec<StoredDeadLetter>,
    /// Cursor of the next page; `None` where there are no more.
    pub next: Option<Cursor>,
}

impl SystemDocument for StoredDeadLetter {
    const INDEX: &'static str = INDEX;
    const WRITE_TIMEOUT: Duration = WRITE_TIMEOUT;

    fn index_body() -> Value {
        index_body()
    }

    fn encode(&self) -> Bytes {
        Bytes::from(Value::Object(self.document.clone()).to_string())
    }

    fn decode(id: &str, source: &Bytes) -> Result<Self, String> {
        let letter = Self::from_source(id.to_owned(), source, 0).ok_or("a dead letter is an object")?;
        let time = DateTime::parse_from_rfc3339(&letter.time).map_err(|error| error.to_string())?;
        Ok(Self { time_ms: time.timestamp_millis(), ..letter })
    }
}

/// Makes the letter of an operation that was refused. `None` for what lost against another version of its
/// document: that one stays, as in Logstash.
pub fn in_place_of(op: &WriteOp, error: &Error, sender: Sender<'_>, now: DateTime<Utc>) -> Option<WriteOp> {
    if error.kind() == Kind::Conflict {
        tracing::warn!(
            pipeline = sender.pipeline,
            plugin = sender.plugin,
            %error,
            "an event lost against another version of its document"
        );
        return None;
    }
    let payload = match &op.action {
        Action::Index(source) | Action::Create(source) => source.clone(),
        Action::Delete => Bytes::new(),
        Action::Update(update) => Bytes::from(update_body(update)),
    };
    let mut letter = letter(sender, &error.to_string(), &payload, now);
    letter.insert("action".to_owned(), Value::from(op.action.kind().name()));
    letter.insert("index".to_owned(), Value::from(&*op.index));
    if let Some(id) = &op.id {
        letter.insert("document_id".to_owned(), Value::from(id.as_str()));
    }
    if let Some(routing) = &op.routing {
        letter.insert("routing".to_owned(), Value::from(routing.as_str()));
    }
    if let Some((version, kind)) = op.version {
        letter.insert("version".to_owned(), Value::from(version));
        letter.insert("version_type".to_owned(), Value::from(kind.name()));
    }
    Some(operation(letter))
}

/// Makes the letter of an event that could not become an operation, or that another server refused.
pub fn of_event(event: &Event, reason: &str, sender: Sender<'_>, now: DateTime<Utc>) -> WriteOp {
    let mut payload = Vec::new();
    event.write_json(&mut payload);
    if !event.metadata().is_empty() && payload.pop() == Some(b'}') {
        // Outputs may need it when the event is sent again.
        payload.extend_from_slice(format!(",\"{METADATA}\":").as_bytes());
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut payload, event.metadata());
        payload.push(b'}');
    }
    operation(letter(sender, reason, &payload, now))
}

fn letter(sender: Sender<'_>, reason: &str, payload: &[u8], now: DateTime<Utc>) -> Map<String, Value> {
    let mut letter = Map::new();
    let time = now.to_rfc3339_opts(SecondsFormat::Millis, true);
    letter.insert("@timestamp".to_owned(), Value::from(time));
    letter.insert("pipeline".to_owned(), Value::from(sender.pipeline));
    letter.insert("plugin".to_owned(), Value::from(sender.plugin));
    letter.insert("reason".to_owned(), Value::from(reason.chars().take(MAX_REASON).collect::<String>()));
    letter.insert("payload".to_owned(), Value::from(STANDARD.encode(payload)));
    letter
}

fn operation(mut letter: Map<String, Value>) -> WriteOp {
    // Nearly: what is escaped is longer.
    let bytes = letter.iter().map(|(name, value)| name.len() + value.as_str().map_or(8, str::len) + 6);
    letter.insert("bytes".to_owned(), Value::from(bytes.sum::<usize>()));
    let source = Bytes::from(Value::Object(letter).to_string());
    StoredDeadLetter::put_op(None, source, Precondition::Any)
}

/// Writes an update as text, whose numbers stay as they are written.
fn update_body(update: &Update) -> Vec<u8> {
    let mut body = b"{\"doc\":".to_vec();
    body.extend_from_slice(update.doc.as_ref().map_or(&b"null"[..], |doc| doc.text()));
    if let Some(upsert) = &update.upsert {
        body.extend_from_slice(b",\"upsert\":");
        body.extend_from_slice(upsert.text());
    }
    body.extend_from_slice(format!(",\"doc_as_upsert\":{}}}", update.doc_as_upsert).as_bytes());
    body
}

impl StoredDeadLetter {
    /// Reads the source of a stored letter, whose time in milliseconds is known; `None` for a source that is no object.
    pub fn from_source(id: String, source: &[u8], time_ms: i64) -> Option<Self> {
        let document: Map<String, Value> = serde_json::from_slice(source).ok()?;
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            id,
            time: text("@timestamp").unwrap_or_default(),
            pipeline: text("pipeline").unwrap_or_default(),
            plugin: text("plugin").unwrap_or_default(),
            reason: text("reason").unwrap_or_default(),
            action: text("action").unwrap_or_default(),
            index: text("index"),
            time_ms,
            document,
        })
    }

    /// Returns the cursor of a listing that goes on behind it.
    pub fn cursor(&self) -> Cursor {
        Cursor { time_ms: self.time_ms, id: self.id.clone() }
    }

    fn text(&self, name: &str) -> Option<String> {
        self.document.get(name).and_then(Value::as_str).map(str::to_owned)
    }

    /// Returns the content that could not be stored: the event as JSON, the parts of an update, nothing for a deletion.
    ///
    /// # Errors
    /// The letter was changed by somebody.
    pub fn payload(&self) -> Result<Bytes, String> {
        let payload = self.text("payload").ok_or("the letter has no payload")?;
        STANDARD
            .decode(payload)
            .map(Bytes::from)
            .map_err(|error| format!("the payload is not base64: {error}"))
    }

    /// The event that became no operation.
    ///
    /// # Errors
    /// The letter holds none, or was changed by somebody.
    pub fn event(&self) -> Result<Event, String> {
        if matches!(ActionKind::parse(&self.action), Some(ActionKind::Update | ActionKind::Delete)) {
            return Err(format!("the letter holds the operation [{}] and no event", self.action));
        }
        let fields = serde_json::from_slice(&self.payload()?)
            .map_err(|error| format!("the payload is no event: {error}"))?;
        let time = DateTime::parse_from_rfc3339(&self.time).unwrap_or_default();
        Ok(Event::from_fields(fields, time.to_utc()))
    }

    /// The operation that removes the letter.
    pub fn removal(&self) -> WriteOp {
        Self::delete_op(&self.id, Precondition::Any)
    }

    /// The operation that was refused.
    ///
    /// # Errors
    /// The event became none: it must go through its pipeline again.
    pub fn operation(&self) -> Result<WriteOp, String> {
        let Some(index) = &self.index else {
            return Err(
                "it holds an event, not an operation: replay it while its pipeline runs, by [POST /_node/dead_letters/_replay] of the server"
                    .to_owned(),
            );
        };
        let payload = self.payload()?;
        let action = match ActionKind::parse(&self.action) {
            Some(ActionKind::Index) => Action::Index(payload),
            Some(ActionKind::Create) => Action::Create(payload),
            Some(ActionKind::Delete) => Action::Delete,
            Some(ActionKind::Update) => {
                let body = Members::parse(&payload).ok_or("the payload is no update")?;
                let object = |name: &str| {
                    let text = body.get(name).filter(|text| text.first() == Some(&b'{'));
                    text.map(|text| payload.slice_ref(text).into())
                };
                Action::Update(Box::new(Update {
                    doc: object("doc"),
                    upsert: object("upsert"),
                    doc_as_upsert: body.get("doc_as_upsert") == Some(&b"true"[..]),
                    detect_noop: true,
                    retry_on_conflict: 1,
                    ..Update::default()
                }))
            }
            None => return Err(format!("the letter's action [{}] is unknown", self.action)),
        };
        let kind = self.text("version_type").and_then(|name| VersionType::parse(&name));
        let kind = kind.unwrap_or(VersionType::Internal);
        let version = self.document.get("version").and_then(Value::as_u64).map(|version| (version, kind));
        let op = WriteOp::new(index.as_str(), self.text("document_id"), action);
        Ok(WriteOp { routing: self.text("routing"), version, ..op })
    }
}
