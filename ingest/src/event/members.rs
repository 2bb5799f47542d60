//! An object as JSON text with the places of its members.
//!
//! Most events are read, given a field or two, and written: kept as text, that is copying bytes, where a map would
//! allocate and hash each field. The text is *canonical*: byte for byte what `serde_json` writes of the values that it
//! reads from it, so that nobody can tell how an event was kept. [`super::scan`] makes it of JSON of any form.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Most members; names are compared one after another.
pub(super) const MAX_MEMBERS: usize = 64;
/// Longest text that is changed: each change moves what stands behind.
const MAX_CHANGED_BYTES: usize = 16 << 10;
/// Longest text that is appended to: places are counted in 32 bits.
const MAX_APPENDED_BYTES: usize = 16 << 20;
/// Bytes and members that inputs usually add.
const ADDED: (usize, usize) = (64, 4);

/// The members of an object, no two of the same name.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
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

impl Members {
    /// Members of a text that is as it must be, with room for what inputs add.
    pub(super) fn new(text: &[u8], places: &[MemberSpan]) -> Self {
        let mut members = Self::with_capacity(text.len() + ADDED.0, places.len() + ADDED.1);
        members.text.extend_from_slice(text);
        members.places.extend_from_slice(places);
        members
    }

    /// No members, and room for some.
    pub(super) fn with_capacity(bytes: usize, members: usize) -> Self {
        Self { text: Vec::with_capacity(bytes), places: Vec::with_capacity(members) }
    }

    /// Returns the number of members.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Appends a member, which must have a name of its own.
    pub(super) fn append(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.text.len() > MAX_APPENDED_BYTES || self.places.len() >= MAX_MEMBERS {
            return false;
        }
        let at = offset(&self.text);
        self.text.push(b',');
        write_name(name, &mut self.text);
        self.text.push(b':');
        let value = offset(&self.text);
        write(&mut self.text);
        self.places.push(MemberSpan { at, value });
        true
    }

    /// Appends a member that is at hand as text, with the offset of its value. It must have a name of its own.
    pub(super) fn append_written(&mut self, member: &[u8], value_at: u32) -> bool {
        if self.text.len() > MAX_APPENDED_BYTES || self.places.len() >= MAX_MEMBERS {
            return false;
        }
        let at = offset(&self.text);
        self.text.extend_from_slice(member);
        self.places.push(MemberSpan { at, value: at + value_at });
        true
    }

    /// JSON of a member's value.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let (at, place) = self.find(name)?;
        self.text.get(place.value as usize..self.end(at))
    }

    /// Returns whether there is a member.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Puts a member in the place of the one of its name, or behind all. Whether it did: there are bounds.
    pub(super) fn insert(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self.find(name) {
            None => return self.append(name, write),
            Some(_) if self.text.len() > MAX_CHANGED_BYTES => return false,
            Some((at, place)) => {
                let mut json = Vec::new();
                write(&mut json);
                let (before, end) = (self.text.len(), self.end(at));
                self.text.splice(place.value as usize..end, json);
                let (grown, shrunk) =
                    (self.text.len().saturating_sub(before), before.saturating_sub(self.text.len()));
                self.shift(at + 1, grown, shrunk);
            }
        }
        true
    }

    /// Takes a member out. Whether it did: there are bounds.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Some((at, place)) = self.find(name).filter(|_| self.text.len() <= MAX_CHANGED_BYTES) else {
            return false;
        };
        let (begin, end) = (place.at as usize, self.end(at));
        self.text.drain(begin..end);
        self.places.remove(at);
        self.shift(at, 0, end - begin);
        true
    }

    /// The members as values.
    pub(super) fn to_map(&self) -> Map<String, Value> {
        let mut map = Map::with_capacity(self.places.len());
        for (at, place) in self.places.iter().enumerate() {
            let name = (place.at as usize + 1)..(place.value as usize).saturating_sub(1);
            let name = self.text.get(name).and_then(|name| serde_json::from_slice(name).ok());
            let value = self.text.get(place.value as usize..self.end(at)).map(parse);
            if let (Some(name), Some(value)) = (name, value) {
                map.insert(name, value);
            }
        }
        map
    }

    /// The members, each behind a comma.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Appends the members, each behind a comma.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text);
    }

    fn find(&self, name: &str) -> Option<(usize, MemberSpan)> {
        let name = escaped(name);
        let same = |place: &MemberSpan| {
            let written = (place.at as usize + 2)..(place.value as usize).saturating_sub(2);
            self.text.get(written) == Some(name.as_bytes())
        };
        let at = self.places.iter().position(same)?;
        Some((at, *self.places.get(at)?))
    }

    /// Returns the end of the member with a number.
    fn end(&self, at: usize) -> usize {
        self.places.get(at + 1).map_or(self.text.len(), |next| next.at as usize)
    }

    fn shift(&mut self, from: usize, grown: usize, shrunk: usize) {
        // Both are below the greatest length of a text.
        let shift = |at: u32| (at as usize + grown - shrunk) as u32;
        for place in self.places.iter_mut().skip(from) {
            *place = MemberSpan { at: shift(place.at), value: shift(place.value) };
        }
    }
}

/// Reads a value of canonical text, which cannot fail.
pub(super) fn parse(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_default()
}

/// A name as it stands between its quotes.
fn escaped(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
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
