//! Events of pipelines: a JSON object with a time of its own and metadata that is not stored.

mod additions;
mod block;
mod content;
mod members;
mod metadata;
mod provenance;
mod reference;
mod scan;
mod shared_members;
mod template;
mod text;
pub mod time_format;
mod timestamp;
mod writer;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

pub(crate) use additions::Additions;
use block::BlockDocument;
pub(crate) use block::{DocumentBlock, DocumentBlockBuilder, DocumentRange};
use content::Content;
pub(crate) use content::value_bytes;
use members::Members;
use metadata::Metadata;
pub use provenance::Provenance;
pub use reference::FieldReference;
pub(crate) use scan::Scratch;
pub use shared_members::SharedMembers;
pub use template::Template;
pub use text::{text_of, write_text};
use time_format::{Zone, iso8601};
pub(crate) use writer::FieldWriter;

/// Name of the member that holds the time of an event.
pub const TIMESTAMP: &str = "@timestamp";
/// Name under which metadata is addressed.
pub const METADATA: &str = "@metadata";
const TAGS: &str = "tags";
/// Field of the schema for what is said about the event itself.
const EVENT: &str = "event";
/// Bytes of an event besides its fields, from the input to the store: itself, its places in lists, its operation.
const OVERHEAD: u64 = 1024;

/// Bytes of a document beside its fields.
const DOCUMENT: usize = 48;

/// One event.
///
/// It keeps its fields as JSON text until somebody needs them as a map; nothing but time depends on that.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    timestamp: DateTime<Utc>,
    fields: Content,
    metadata: Metadata,
    provenance: Option<Provenance>,
}

impl Event {
    /// An event without fields.
    pub fn new(timestamp: DateTime<Utc>) -> Self {
        Self { timestamp, fields: Content::default(), metadata: Metadata::default(), provenance: None }
    }

    /// Makes an event of an object. A member `@timestamp` in ISO 8601 becomes its time; one that is
    /// none moves to `_@timestamp`, and the event is tagged `_timestampparsefailure`. A member
    /// `@metadata` that is an object becomes its metadata. Tags that are an object move to `_tags`, with the tag
    /// `_tagsparsefailure`.
    pub fn from_fields(mut fields: Map<String, Value>, now: DateTime<Utc>) -> Self {
        let metadata: Metadata = match fields.shift_remove(METADATA) {
            Some(Value::Object(metadata)) => metadata.into(),
            None | Some(Value::Null) => Metadata::default(),
            Some(other) => {
                fields.insert("_@metadata".to_owned(), other);
                Metadata::default()
            }
        };
        let given = fields.shift_remove(TIMESTAMP);
        let tags_are_object = fields.get(TAGS).is_some_and(Value::is_object);
        let mut event = Self { timestamp: now, fields: Content::Map(fields), metadata, provenance: None };
        if tags_are_object && let Some(tags) = event.fields.remove(TAGS) {
            event.fields.insert("_tags", tags);
            event.tag("_tagsparsefailure");
        }
        match given {
            None | Some(Value::Null) => {}
            Some(given) => match given.as_str().and_then(|text| iso8601(text, Zone::UTC)) {
                Some(time) => event.timestamp = time,
                None => {
                    event.fields.insert("_@timestamp", given);
                    event.tag("_timestampparsefailure");
                }
            },
        }
        event
    }

    /// Makes an event of the object that a text begins with, and says how long that is. `None` for what only
    /// [`Self::from_fields`] can tell: whether it is an object, and what to do about odd members.
    pub(crate) fn scan(
        text: &str,
        scratch: &mut Scratch,
        now: impl FnOnce() -> DateTime<Utc>,
    ) -> Option<(Self, usize)> {
        let scan::ScannedObject { members, spans, timestamp, metadata, length } = scan::scan(text, scratch)?;
        let timestamp = timestamp.unwrap_or_else(now);
        let fields = Content::from(Members::new(members, spans));
        Some((Self { timestamp, fields, metadata, provenance: None }, length))
    }

    /// Scans as [`Self::scan`] does, and writes the document with what the input adds to a block where it has room for it. Until the
    /// block is finished, such an event has no fields ([`Self::set_document`]).
    pub(crate) fn scan_to_block(
        text: &str,
        scratch: &mut Scratch,
        now: impl FnOnce() -> DateTime<Utc>,
        block: &mut DocumentBlockBuilder,
        additions: &mut Additions,
    ) -> Option<(BlockEvent, usize)> {
        let scan::ScannedObject { members, spans, timestamp, metadata, length } = scan::scan(text, scratch)?;
        let timestamp = timestamp.unwrap_or_else(now);
        let mut event = Self { timestamp, fields: Content::default(), metadata, provenance: None };
        let document = block.begin(timestamp, members.len()).and_then(|mut document| {
            document.append(members, spans);
            let is_tagged = additions.tag().is_none_or(|tag| document.append_tag(tag));
            if !is_tagged || !document.append_missing(additions.members()) {
                return None;
            }
            let bytes = document.bytes();
            Some((document.end()?, bytes))
        });
        let event = match document {
            Some((range, bytes)) => {
                additions.add_metadata(&mut event);
                BlockEvent::new(event, range, bytes)
            }
            None => {
                event.fields = Content::from(Members::new(members, spans));
                additions.add_to(&mut event);
                BlockEvent { event, document: None }
            }
        };
        Some((event, length))
    }

    /// Puts a document of a block, which has the time of the event, in the place of its fields.
    pub(crate) fn set_document(&mut self, block: &Arc<DocumentBlock>, range: DocumentRange) {
        self.fields = BlockDocument::new(block, range).into();
    }

    /// Returns the document of the event in its block, if it has one.
    fn block_document(&self) -> Option<&BlockDocument> {
        self.fields.block_document()
    }

    /// Document as it is stored, where that is at hand: nothing was changed since the event was decoded.
    pub(crate) fn document(&self) -> Option<Bytes> {
        self.fields.document()
    }

    /// Returns whether the document is at hand.
    pub(crate) fn has_document(&self) -> bool {
        self.block_document().is_some_and(BlockDocument::has_time)
    }

    /// Time of the event.
    pub fn timestamp(&self) -> DateTime<Utc> {
        self.timestamp
    }

    /// Sets the time of the event.
    pub fn set_timestamp(&mut self, timestamp: DateTime<Utc>) {
        self.timestamp = timestamp;
        self.fields.set_outdated();
    }

    /// Returns its provenance, where its source can tell.
    pub fn provenance(&self) -> Option<Provenance> {
        self.provenance
    }

    /// Says where it is from.
    pub fn set_provenance(&mut self, provenance: Option<Provenance>) {
        self.provenance = provenance;
    }

    /// Fields without time and metadata. Who wants only some of them asks for these: that is faster.
    pub fn fields(&self) -> &Map<String, Value> {
        self.fields.map()
    }

    /// Fields without time and metadata, to be changed. Who wants to change only some of them changes these: that is
    /// faster.
    pub fn fields_mut(&mut self) -> &mut Map<String, Value> {
        self.fields.map_mut()
    }

    /// Returns whether there is a field of a name, which is no reference.
    pub fn has_field(&self, name: &str) -> bool {
        self.fields.contains(name)
    }

    /// Puts a text into the field of a name, which is no reference.
    pub fn set_text(&mut self, name: &str, text: &str) {
        self.fields.insert_text(name, text);
    }

    /// Puts a number into the field of a name, which is no reference.
    pub(crate) fn set_number(&mut self, name: &str, number: u64) {
        self.fields.insert(name, Value::from(number));
    }

    /// Puts a text into the field of a name, which is no reference, if there is no such field.
    pub fn set_missing(&mut self, name: &str, text: &str) {
        if !self.fields.contains(name) {
            self.fields.insert_text(name, text);
        }
    }

    /// Puts members into the fields in place of those of their names. Objects on both sides are joined.
    pub(crate) fn replace_members(&mut self, members: &Map<String, Value>) {
        additions::replace_members(self.fields.map_mut(), members);
    }

    /// Puts the text that the event was made of into `[event][original]`, unless something is there.
    pub(crate) fn keep_original(&mut self, text: &str) {
        if !self.fields.contains(EVENT) {
            let write = |out: &mut Vec<u8>| {
                out.extend_from_slice(b"{\"original\":");
                members::write_json_text(text, out);
                out.push(b'}');
            };
            return self.fields.append(EVENT, || json!({ "original": text }), write);
        }
        if let Some(Value::Object(members)) = self.fields.map_mut().get_mut(EVENT) {
            members.entry("original").or_insert_with(|| Value::from(text));
        }
    }

    /// Text of the field of a name, which is no reference, where it is at hand without reading the other fields.
    pub(crate) fn text_of_field(&self, name: &str) -> Option<Cow<'_, str>> {
        self.fields.text_of(name)
    }

    /// Returns whether there is one field and no other, where that is known without reading it.
    pub(crate) fn has_single_field(&self) -> bool {
        self.fields.text_fields() == Some(1)
    }

    /// Puts the fields of a writer in the place of all fields.
    pub(crate) fn replace_fields(&mut self, writer: FieldWriter) {
        self.fields = writer.into_content();
    }

    /// Metadata.
    pub fn metadata(&self) -> &Map<String, Value> {
        self.metadata.map()
    }

    /// Value at a reference; `@timestamp` as ISO 8601 text.
    pub fn get(&self, reference: &FieldReference) -> Option<Cow<'_, Value>> {
        let (first, rest) = reference.split();
        match first {
            TIMESTAMP if rest.is_empty() => Some(Cow::Owned(Value::String(self.timestamp_text()))),
            METADATA if rest.is_empty() => Some(Cow::Owned(Value::Object(self.metadata.map().clone()))),
            METADATA => find(self.metadata.map(), rest).map(Cow::Borrowed),
            name if rest.is_empty() => self.fields.get(name),
            _ => find(self.fields.map(), reference.path()).map(Cow::Borrowed),
        }
    }

    /// Puts a value at a reference, making the objects on the way.
    ///
    /// # Errors
    /// What is in the way (a value that is no object, a time that is none), as text that names it.
    pub fn set(&mut self, reference: &FieldReference, value: Value) -> Result<(), String> {
        let (first, rest) = reference.split();
        match first {
            TIMESTAMP if rest.is_empty() => {
                let time = value.as_str().and_then(|text| iso8601(text, Zone::UTC));
                self.set_timestamp(time.ok_or_else(|| format!("[@timestamp] cannot be {value}"))?);
                Ok(())
            }
            METADATA => match value {
                Value::Object(metadata) if rest.is_empty() => {
                    self.metadata = metadata.into();
                    Ok(())
                }
                value => put(self.metadata.map_mut(), rest, value, reference),
            },
            name if rest.is_empty() => {
                self.fields.insert(name, value);
                Ok(())
            }
            _ => put(self.fields.map_mut(), reference.path(), value, reference),
        }
    }

    /// Puts a text at a reference as [`Self::set`] does.
    ///
    /// # Errors
    /// As there.
    pub fn put_text(&mut self, reference: &FieldReference, text: &str) -> Result<(), String> {
        match reference.split() {
            (name, []) if name != TIMESTAMP && name != METADATA => {
                self.fields.insert_text(name, text);
                Ok(())
            }
            _ => self.set(reference, Value::from(text)),
        }
    }

    /// Puts a value at a reference as [`Self::set`] does.
    ///
    /// # Errors
    /// As there.
    pub fn set_written(&mut self, reference: &FieldReference, value: &SharedValue) -> Result<(), String> {
        match (reference.split(), &value.json) {
            ((TIMESTAMP | METADATA, _), _) => self.set(reference, value.value.clone()),
            ((name, []), Some(json)) => {
                self.fields.insert_json(name, &value.value, json);
                Ok(())
            }
            _ => self.set(reference, value.value.clone()),
        }
    }

    /// Takes the value at a reference out. The time cannot be taken out.
    pub fn remove(&mut self, reference: &FieldReference) -> Option<Value> {
        let (first, rest) = reference.split();
        match first {
            METADATA if rest.is_empty() => Some(Value::Object(self.metadata.take())),
            METADATA => take(self.metadata.map_mut(), rest),
            name if rest.is_empty() => self.fields.remove(name),
            // What is not there leaves the event as it is.
            name if !self.fields.contains(name) => None,
            _ => take(self.fields.map_mut(), reference.path()),
        }
    }

    /// Takes the value at a reference out, which nobody wants to see. The time cannot be taken out.
    pub fn discard(&mut self, reference: &FieldReference) {
        match reference.split() {
            (name, []) if name != METADATA => self.fields.discard(name),
            _ => drop(self.remove(reference)),
        }
    }

    /// Adds a tag, once.
    pub fn tag(&mut self, tag: &str) {
        if self.fields.insert_into_set(TAGS, tag) {
            return;
        }
        let tags = self.fields.map_mut().entry(TAGS).or_insert_with(|| Value::Array(Vec::new()));
        if !tags.is_array() {
            *tags = Value::Array(vec![tags.take()]);
        }
        if let Value::Array(tags) = tags
            && !tags.iter().any(|have| have == tag)
        {
            tags.push(Value::String(tag.to_owned()));
        }
    }

    /// Removes a tag.
    pub fn untag(&mut self, tag: &str) {
        if self.fields.contains(TAGS)
            && let Some(tags) = self.fields.map_mut().get_mut(TAGS)
        {
            // A text is one tag.
            if tags.is_string() {
                *tags = Value::Array(vec![tags.take()]);
            }
            if let Value::Array(tags) = tags {
                tags.retain(|have| have != tag);
            }
        }
    }

    /// Time as it is stored: ISO 8601 in UTC, with milliseconds, or as many digits as it has.
    pub fn timestamp_text(&self) -> String {
        let mut text = Vec::with_capacity(32);
        timestamp::write(self.timestamp, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The event in a line, as outputs show it that are given no format: time, host and message.
    pub fn line(&self) -> String {
        let mut line = self.timestamp_text();
        for name in ["host", "message"] {
            line.push(' ');
            match self.fields.get(name).as_deref() {
                None | Some(Value::Null) => {
                    line.push_str("%{");
                    line.push_str(name);
                    line.push('}');
                }
                Some(value) => write_text(value, &mut line),
            }
        }
        line
    }

    /// Bytes that the event takes on its way, about: its fields, the document made of them, and that in the log.
    pub fn bytes(&self) -> u64 {
        OVERHEAD + self.fields.bytes() + content::map_bytes(self.metadata.map())
    }

    /// Bytes of the event as JSON, about.
    pub(crate) fn document_bytes(&self) -> usize {
        self.fields.text_bytes() + DOCUMENT
    }

    /// Appends the event as one JSON object, `@timestamp` included and metadata left out.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        if let Some(document) = self.document() {
            return out.extend_from_slice(&document);
        }
        out.extend_from_slice(b"{\"@timestamp\":\"");
        timestamp::write(self.timestamp, out);
        out.push(b'"');
        self.fields.write(out);
        out.push(b'}');
    }
}

/// Event whose document may be in a block that is not finished.
#[derive(Debug)]
pub(crate) struct BlockEvent {
    pub(crate) event: Event,
    /// Position of the document, and the bytes of the event with it.
    pub(crate) document: Option<(DocumentRange, u64)>,
}

impl BlockEvent {
    /// Makes one of an event without fields, and of a document that takes so many bytes.
    pub(crate) fn new(event: Event, range: DocumentRange, bytes: u64) -> Self {
        let bytes = event.bytes() + bytes;
        Self { event, document: Some((range, bytes)) }
    }
}

/// A value that many events get, with its JSON.
#[derive(Clone, Debug)]
pub struct SharedValue {
    value: Value,
    /// `None` where it could not be read back: it is too deep.
    json: Option<Vec<u8>>,
}

impl SharedValue {
    /// Bytes of its JSON.
    pub(crate) fn bytes(&self) -> u64 {
        self.json.as_ref().map_or(0, |json| json.len() as u64)
    }
}

impl From<Value> for SharedValue {
    fn from(value: Value) -> Self {
        let json = Some(value.to_string().into_bytes());
        let json = json.filter(|json| serde_json::from_slice::<Value>(json).is_ok());
        Self { value, json }
    }
}

/// Value at a path; a number addresses an element of an array, from its end where it is negative.
fn find<'a>(fields: &'a Map<String, Value>, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(fields.get(first)?, |value, name| match value {
        Value::Object(members) => members.get(name),
        Value::Array(elements) => elements.get(element(elements.len(), name)?),
        _ => None,
    })
}

fn element(length: usize, name: &str) -> Option<usize> {
    let at: i64 = name.parse().ok()?;
    if at < 0 { length.checked_sub(at.unsigned_abs() as usize) } else { Some(at as usize) }
}

fn put(
    fields: &mut Map<String, Value>,
    path: &[String],
    value: Value,
    reference: &FieldReference,
) -> Result<(), String> {
    let Some((last, way)) = path.split_last() else {
        return Err(format!("[{reference}] cannot be replaced as a whole"));
    };
    let mut place: Option<&mut Value> = None;
    for name in way {
        let next = match place {
            None => fields.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new())),
            Some(Value::Object(members)) => {
                members.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new()))
            }
            Some(Value::Array(elements)) => {
                let length = elements.len();
                element(length, name)
                    .and_then(|at| elements.get_mut(at))
                    .ok_or_else(|| format!("[{reference}] has no element [{name}]"))?
            }
            Some(_) => return Err(format!("[{reference}] goes through a value that is no object")),
        };
        place = Some(next);
    }
    match place {
        None => drop(fields.insert(last.clone(), value)),
        Some(Value::Object(members)) => drop(members.insert(last.clone(), value)),
        Some(Value::Array(elements)) => match element(elements.len(), last) {
            Some(at) if at == elements.len() => elements.push(value),
            at => match at.and_then(|at| elements.get_mut(at)) {
                Some(element) => *element = value,
                None => return Err(format!("[{reference}] has no element [{last}]")),
            },
        },
        Some(_) => return Err(format!("[{reference}] goes through a value that is no object")),
    }
    Ok(())
}

fn take(fields: &mut Map<String, Value>, path: &[String]) -> Option<Value> {
    let (last, way) = path.split_last()?;
    let Some((first, way)) = way.split_first() else { return fields.shift_remove(last) };
    let place = way.iter().try_fold(fields.get_mut(first)?, |value, name| match value {
        Value::Object(members) => members.get_mut(name),
        Value::Array(elements) => {
            let at = element(elements.len(), name)?;
            elements.get_mut(at)
        }
        _ => None,
    })?;
    match place {
        Value::Object(members) => members.shift_remove(last),
        Value::Array(elements) => {
            let at = element(elements.len(), last).filter(|at| *at < elements.len())?;
            Some(elements.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
