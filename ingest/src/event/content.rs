//! The fields of an event: text for as long as that does, a map from then on.

use std::borrow::Cow;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::additions::{AddedMember, add_missing};
use super::block::BlockDocument;
use super::members::{Members, parse, write_json_text};

/// Fields of an event.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// As text, and as a map once somebody has asked for one.
    Text(Members, OnceLock<Box<Map<String, Value>>>),
    Map(Map<String, Value>),
}

impl Default for Content {
    fn default() -> Self {
        Self::from(Members::default())
    }
}

impl From<Members> for Content {
    fn from(members: Members) -> Self {
        Self::Text(members, OnceLock::new())
    }
}

impl From<BlockDocument> for Content {
    fn from(document: BlockDocument) -> Self {
        Self::from(Members::from(document))
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.map() == other.map()
    }
}

/// Bytes of a value in memory, about, besides its text.
const VALUE: u64 = 80;
/// Bytes of a member of a map, besides name and value.
const MEMBER: u64 = 48;
/// Bytes of a member of a map as text, as a guess.
const GUESSED_MEMBER: usize = 48;
/// Copies of a field's text on its way: the event, its document, the log.
const COPIES: u64 = 3;
/// Bytes of text for each value that fields usually have; more values are counted, for a map of them takes far more.
const BYTES_A_VALUE: usize = 16;

/// Bytes that the values of a map take on their way, about.
pub(super) fn map_bytes(map: &Map<String, Value>) -> u64 {
    map.iter().map(|(name, value)| MEMBER + COPIES * name.len() as u64 + value_bytes(value)).sum()
}

/// Bytes that a value takes on its way, about.
pub(crate) fn value_bytes(value: &Value) -> u64 {
    VALUE
        + match value {
            Value::String(text) => COPIES * text.len() as u64,
            Value::Array(elements) => elements.iter().map(value_bytes).sum(),
            Value::Object(members) => map_bytes(members),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// Bytes that members take on their way, about, of their text.
pub(super) fn text_bytes(text: &[u8]) -> u64 {
    let values = memchr::memchr_iter(b',', text).count();
    let many = values.saturating_sub(text.len() / BYTES_A_VALUE);
    COPIES * text.len() as u64 + VALUE * many as u64
}

impl Content {
    /// Bytes that the fields take on their way, about.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Text(members, _) => text_bytes(members.text()),
            Self::Map(map) => map_bytes(map),
        }
    }

    /// All fields.
    pub(super) fn map(&self) -> &Map<String, Value> {
        match self {
            Self::Text(members, read) => read.get_or_init(|| Box::new(members.to_map())),
            Self::Map(map) => map,
        }
    }

    /// All fields, to be changed.
    pub(super) fn map_mut(&mut self) -> &mut Map<String, Value> {
        if let Self::Text(members, read) = self {
            let map = read.take().map_or_else(|| members.to_map(), |map| *map);
            *self = Self::Map(map);
        }
        match self {
            Self::Map(map) => map,
            Self::Text(..) => unreachable!("it is a map since a moment ago"),
        }
    }

    /// Whole document of the event, where it is at hand as it is stored.
    pub(super) fn document(&self) -> Option<Bytes> {
        match self {
            Self::Text(members, _) => members.document(),
            Self::Map(_) => None,
        }
    }

    /// Returns the document in its block, if the fields are unchanged since it was written there.
    pub(super) fn block_document(&self) -> Option<&BlockDocument> {
        match self {
            Self::Text(members, _) => members.block_document(),
            Self::Map(_) => None,
        }
    }

    /// Takes note that the event has another time than its document.
    pub(super) fn set_outdated(&mut self) {
        if let Self::Text(members, _) = self {
            members.set_outdated();
        }
    }

    /// Fields as text, unless they were asked for as a map: then that is the faster way.
    fn text(&mut self) -> Option<&mut Members> {
        match self {
            Self::Text(members, read) if read.get().is_none() => Some(members),
            _ => None,
        }
    }

    /// Value of a field.
    pub(super) fn get(&self, name: &str) -> Option<Cow<'_, Value>> {
        if let Self::Text(members, read) = self
            && read.get().is_none()
        {
            let json = members.get(name)?;
            // What has parts is read once, however often somebody looks into it.
            if !matches!(json.first(), Some(b'{' | b'[')) {
                return Some(Cow::Owned(parse(json)));
            }
        }
        self.map().get(name).map(Cow::Borrowed)
    }

    /// Returns whether there is a field.
    pub(super) fn contains(&self, name: &str) -> bool {
        match self {
            Self::Text(members, _) => members.contains(name),
            Self::Map(map) => map.contains_key(name),
        }
    }

    /// Puts a value into a field.
    pub(super) fn insert(&mut self, name: &str, value: Value) {
        let has_parts = matches!(value, Value::Object(_) | Value::Array(_));
        let as_text = self.text().filter(|_| !has_parts);
        // Writing to memory cannot fail.
        let done = as_text
            .is_some_and(|members| members.insert(name, |out| drop(serde_json::to_writer(out, &value))));
        if !done {
            self.map_mut().insert(name.to_owned(), value);
        }
    }

    /// Appends a field of a name that no other has.
    pub(super) fn append(
        &mut self,
        name: &str,
        value: impl FnOnce() -> Value,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let done = self.text().is_some_and(|members| members.append(name, write));
        if !done {
            self.map_mut().insert(name.to_owned(), value());
        }
    }

    /// Puts a member into its field if there is no such field. Objects on both sides are joined.
    pub(super) fn insert_missing(&mut self, member: &AddedMember) {
        let AddedMember { name, value, text, value_at, .. } = member;
        let is_there = match self {
            Self::Text(members, _) => members.contains_written(member.name_text()),
            Self::Map(map) => map.contains_key(name),
        };
        if is_there {
            if let Value::Object(members) = value
                && let Some(Value::Object(present)) = self.map_mut().get_mut(name)
            {
                add_missing(present, members);
            }
            return;
        }
        let done = self.text().is_some_and(|members| members.append_written(text, *value_at));
        if !done {
            self.map_mut().insert(name.clone(), value.clone());
        }
    }

    /// Adds a text to the set in a field, which becomes an array of texts. Returns whether it did: only fields that are kept as text.
    pub(super) fn insert_into_set(&mut self, name: &str, text: &str) -> bool {
        let Some(members) = self.text() else { return false };
        let mut set = match members.get(name).map(parse) {
            None => Vec::new(),
            Some(Value::Array(set)) => set,
            Some(single) => vec![single],
        };
        if !set.iter().any(|have| have == text) {
            set.push(Value::from(text));
        }
        // Writing to memory cannot fail.
        members.insert(name, |out| drop(serde_json::to_writer(out, &set)))
    }

    /// Text of a field that is one, where it is at hand without a map.
    pub(super) fn text_of(&self, name: &str) -> Option<Cow<'_, str>> {
        let Self::Text(members, read) = self else { return None };
        if read.get().is_some() {
            return None;
        }
        let json = members.get(name)?;
        let written = json.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        if !written.contains(&b'\\') {
            return std::str::from_utf8(written).ok().map(Cow::Borrowed);
        }
        serde_json::from_slice(json).ok().map(Cow::Owned)
    }

    /// Returns the bytes of the fields as text, or a guess where they are a map.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(members, _) => members.text().len(),
            Self::Map(map) => map.len() * GUESSED_MEMBER,
        }
    }

    /// Returns the number of fields, where they are kept as text.
    pub(super) fn text_fields(&self) -> Option<usize> {
        match self {
            Self::Text(members, read) if read.get().is_none() => Some(members.len()),
            _ => None,
        }
    }

    /// Puts a text into a field.
    pub(super) fn insert_text(&mut self, name: &str, text: &str) {
        let done = self.text().is_some_and(|members| members.insert(name, |out| write_json_text(text, out)));
        if !done {
            self.map_mut().insert(name.to_owned(), Value::from(text));
        }
    }

    /// Puts a value into a field that is at hand as JSON, too, as `serde_json` writes it.
    pub(super) fn insert_json(&mut self, name: &str, value: &Value, json: &[u8]) {
        let done = self.text().is_some_and(|members| members.insert(name, |out| out.extend_from_slice(json)));
        if !done {
            self.map_mut().insert(name.to_owned(), value.clone());
        }
    }

    /// Takes a field out.
    pub(super) fn remove(&mut self, name: &str) -> Option<Value> {
        let json = match self.text() {
            Some(members) => members.get(name)?.to_vec(),
            None => return self.map_mut().shift_remove(name),
        };
        self.discard(name);
        Some(parse(&json))
    }

    /// Takes a field out that nobody wants to see.
    pub(super) fn discard(&mut self, name: &str) {
        let done = !self.contains(name) || self.text().is_some_and(|members| members.remove(name));
        if !done {
            self.map_mut().shift_remove(name);
        }
    }

    /// Appends the fields as members of an object, each behind a comma.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(members, _) => members.write(out),
            Self::Map(map) => {
                for (name, value) in map {
                    out.push(b',');
                    // Neither a text nor a value can fail to be written to memory.
                    let _ = serde_json::to_writer(&mut *out, name);
                    out.push(b':');
                    let _ = serde_json::to_writer(&mut *out, value);
                }
            }
        }
    }
}
