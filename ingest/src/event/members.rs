//! An object as JSON text with the places of its members.
//!
//! Most events are read, given a field or two, and written: kept as text, that is copying bytes, where a map would
//! allocate and hash each field. The text is *canonical*: byte for byte what `serde_json` writes of the values that it
//! reads from it, so that nobody can tell how an event was kept. [`super::scan`] makes it of JSON of any form.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::block::BlockDocument;
use super::scan::plain_length;

/// Most members; names are compared one after another.
pub(super) const MAX_MEMBERS: usize = 64;
/// Longest text that is changed: each change moves what stands behind.
const MAX_CHANGED_BYTES: usize = 16 << 10;
/// Longest text that is appended to: places are counted in 32 bits.
const MAX_APPENDED_BYTES: usize = 16 << 20;
/// Bytes and members that inputs usually add.
const ADDED: (usize, usize) = (64, 4);

/// The members of an object, no two of the same name.
#[derive(Clone, Debug)]
pub(super) struct Members(MemberText);

/// Text of members, with the place of each.
#[derive(Clone, Debug)]
enum MemberText {
    /// Memory of their own.
    Own(OwnText),
    /// Part of a block, until they are changed.
    Block(BlockDocument),
}

/// Text with memory of its own.
#[derive(Clone, Debug, Default)]
struct OwnText {
    /// `,"name":value` of each.
    text: Vec<u8>,
    places: Vec<MemberSpan>,
}

/// Range of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberSpan {
    /// Of its comma. It ends where the next one begins.
    pub(super) at: u32,
    /// Of its value.
    pub(super) value: u32,
}

impl MemberSpan {
    /// Returns the name of the member as it is written in the text of all.
    pub(super) fn name(self, text: &[u8]) -> Option<&[u8]> {
        text.get((self.at as usize + 2)..(self.value as usize).saturating_sub(2))
    }
}

impl Default for Members {
    fn default() -> Self {
        Self(MemberText::Own(OwnText::default()))
    }
}

impl From<BlockDocument> for Members {
    fn from(document: BlockDocument) -> Self {
        Self(MemberText::Block(document))
    }
}

impl Members {
    /// Members of a text that is as it must be, with room for what inputs add.
    pub(super) fn new(text: &[u8], places: &[MemberSpan]) -> Self {
        Self(MemberText::Own(OwnText::new(text, places)))
    }

    /// No members, and room for some.
    pub(super) fn with_capacity(bytes: usize, members: usize) -> Self {
        Self(MemberText::Own(OwnText::with_capacity(bytes, members)))
    }

    /// Returns the number of members.
    pub(super) fn len(&self) -> usize {
        self.places().len()
    }

    /// Whole document of the event that has these members, where it is at hand.
    pub(super) fn document(&self) -> Option<Bytes> {
        self.block_document().and_then(BlockDocument::document)
    }

    /// Returns the document in its block, if it is there.
    pub(super) fn block_document(&self) -> Option<&BlockDocument> {
        match &self.0 {
            MemberText::Own(_) => None,
            MemberText::Block(document) => Some(document),
        }
    }

    /// Takes note that the event has another time than its document.
    pub(super) fn set_outdated(&mut self) {
        if let MemberText::Block(document) = &mut self.0 {
            document.set_outdated();
        }
    }

    /// Text to be changed, with memory of its own.
    fn own(&mut self) -> &mut OwnText {
        if let MemberText::Block(document) = &self.0 {
            self.0 = MemberText::Own(OwnText::new(document.text(), document.spans()));
        }
        match &mut self.0 {
            MemberText::Own(own) => own,
            MemberText::Block(_) => unreachable!("it has memory of its own since a moment ago"),
        }
    }

    /// Appends a member, which must have a name of its own.
    pub(super) fn append(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.is_full() {
            return false;
        }
        let OwnText { text, places } = self.own();
        let at = offset(text);
        text.push(b',');
        write_name(name, text);
        text.push(b':');
        let value = offset(text);
        write(text);
        places.push(MemberSpan { at, value });
        true
    }

    /// Appends a member that is at hand as text, with the offset of its value. It must have a name of its own.
    pub(super) fn append_written(&mut self, member: &[u8], value_at: u32) -> bool {
        if self.is_full() {
            return false;
        }
        let OwnText { text, places } = self.own();
        let at = offset(text);
        text.extend_from_slice(member);
        places.push(MemberSpan { at, value: at + value_at });
        true
    }

    /// Returns whether nothing can be appended.
    fn is_full(&self) -> bool {
        self.text().len() > MAX_APPENDED_BYTES || self.places().len() >= MAX_MEMBERS
    }

    /// JSON of a member's value.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let (at, place) = self.find(name)?;
        self.text().get(place.value as usize..self.end(at))
    }

    /// Returns whether there is a member.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns whether there is a member whose name is written so.
    pub(super) fn contains_written(&self, name: &[u8]) -> bool {
        let (text, places) = (self.text(), self.places());
        places.iter().any(|place| place.name(text) == Some(name))
    }

    /// Puts a member in the place of the one of its name, or behind all. Whether it did: there are bounds.
    pub(super) fn insert(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self.find(name) {
            None => return self.append(name, write),
            Some(_) if self.text().len() > MAX_CHANGED_BYTES => return false,
            Some((at, place)) => {
                let mut json = Vec::new();
                write(&mut json);
                let end = self.end(at);
                let OwnText { text, places } = self.own();
                let before = text.len();
                text.splice(place.value as usize..end, json);
                let (grown, shrunk) = (text.len().saturating_sub(before), before.saturating_sub(text.len()));
                shift(places, at + 1, grown, shrunk);
            }
        }
        true
    }

    /// Takes a member out. Whether it did: there are bounds.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Some((at, place)) = self.find(name).filter(|_| self.text().len() <= MAX_CHANGED_BYTES) else {
            return false;
        };
        let (begin, end) = (place.at as usize, self.end(at));
        let OwnText { text, places } = self.own();
        text.drain(begin..end);
        places.remove(at);
        shift(places, at, 0, end - begin);
        true
    }

    /// The members as values.
    pub(super) fn to_map(&self) -> Map<String, Value> {
        let (text, places) = (self.text(), self.places());
        let mut map = Map::with_capacity(places.len());
        for (at, place) in places.iter().enumerate() {
            let name = (place.at as usize + 1)..(place.value as usize).saturating_sub(1);
            let name = text.get(name).and_then(|name| serde_json::from_slice(name).ok());
            let value = text.get(place.value as usize..self.end(at)).map(parse);
            if let (Some(name), Some(value)) = (name, value) {
                map.insert(name, value);
            }
        }
        map
    }

    /// The members, each behind a comma.
    pub(super) fn text(&self) -> &[u8] {
        match &self.0 {
            MemberText::Own(own) => &own.text,
            MemberText::Block(document) => document.text(),
        }
    }

    /// Places of the members in the text.
    pub(super) fn places(&self) -> &[MemberSpan] {
        match &self.0 {
            MemberText::Own(own) => &own.places,
            MemberText::Block(document) => document.spans(),
        }
    }

    /// Appends the members, each behind a comma.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text());
    }

    fn find(&self, name: &str) -> Option<(usize, MemberSpan)> {
        let name = escaped(name);
        let (text, places) = (self.text(), self.places());
        let at = places.iter().position(|place| place.name(text) == Some(name.as_bytes()))?;
        Some((at, *places.get(at)?))
    }

    /// Returns the end of the member with a number.
    fn end(&self, at: usize) -> usize {
        self.places().get(at + 1).map_or(self.text().len(), |next| next.at as usize)
    }
}

impl OwnText {
    fn new(text: &[u8], places: &[MemberSpan]) -> Self {
        let mut own = Self::with_capacity(text.len() + ADDED.0, places.len() + ADDED.1);
        own.text.extend_from_slice(text);
        own.places.extend_from_slice(places);
        own
    }

    fn with_capacity(bytes: usize, members: usize) -> Self {
        Self { text: Vec::with_capacity(bytes), places: Vec::with_capacity(members) }
    }
}

/// Moves places from a number on by bytes that came, or that went.
fn shift(places: &mut [MemberSpan], from: usize, grown: usize, shrunk: usize) {
    // Both are below the greatest length of a text.
    let shift = |at: u32| (at as usize + grown - shrunk) as u32;
    for place in places.iter_mut().skip(from) {
        *place = MemberSpan { at: shift(place.at), value: shift(place.value) };
    }
}

/// Writes a text as JSON, as `serde_json` does.
pub(super) fn write_json_text(text: &str, out: &mut Vec<u8>) {
    match plain_length(text.as_bytes()) {
        None => {
            out.reserve(text.len() + 2);
            out.push(b'"');
            out.extend_from_slice(text.as_bytes());
            out.push(b'"');
        }
        // Writing to memory cannot fail.
        Some(_) => drop(serde_json::to_writer(out, text)),
    }
}

/// Reads a value of canonical text, which cannot fail.
pub(super) fn parse(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_default()
}

/// A name as it stands between its quotes.
fn escaped(name: &str) -> Cow<'_, str> {
    if plain_length(name.as_bytes()).is_none() {
        return Cow::Borrowed(name);
    }
    let quoted = Value::from(name).to_string();
    Cow::Owned(quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned())
}

/// Writes a member with the comma before it; returns the offset of its value, too.
pub(super) fn written(name: &str, value: &Value) -> (Vec<u8>, u32) {
    let mut text = vec![b','];
    write_name(name, &mut text);
    text.push(b':');
    let value_at = offset(&text);
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut text, value);
    (text, value_at)
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(escaped(name).as_bytes());
    out.push(b'"');
}

fn offset(text: &[u8]) -> u32 {
    // Texts that grow are far shorter.
    text.len() as u32
}
