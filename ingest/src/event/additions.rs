//! Members and metadata that an input gives to many events.

use serde_json::{Map, Value};

use super::metadata::Metadata;
use super::{Event, members};

/// Members that events get where they lack them, and metadata that replaces theirs by name.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    members: Vec<AddedMember>,
    metadata: Map<String, Value>,
    /// Metadata of an earlier event before and after the addition: events that share the former share the latter.
    last: Option<(Metadata, Metadata)>,
}

/// A member as a value and as text.
#[derive(Debug)]
pub(super) struct AddedMember {
    pub(super) name: String,
    pub(super) value: Value,
    /// `,"name":value`.
    pub(super) text: Vec<u8>,
    /// Offset of the value in the text.
    pub(super) value_at: u32,
}

impl AddedMember {
    /// Name as it is written in the text.
    pub(super) fn name_text(&self) -> &[u8] {
        self.text.get(2..(self.value_at as usize).saturating_sub(2)).unwrap_or_default()
    }
}

impl Additions {
    /// Adds a member that is no object and no array.
    #[must_use]
    pub(crate) fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let (text, value_at) = members::written(name, &value);
        self.members.push(AddedMember { name: name.to_owned(), value, text, value_at });
        self
    }

    /// Adds metadata.
    #[must_use]
    pub(crate) fn metadata(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.to_owned(), value.into());
        self
    }

    /// Gives an event what it lacks.
    pub(crate) fn add_to(&mut self, event: &mut Event) {
        for member in &self.members {
            event.fields.insert_missing(member);
        }
        self.add_metadata(event);
    }

    /// Begins another piece of a stream: its events share no metadata with those before. All events of a stream would have one count of
    /// sharers, which the threads that make them and those that free them write in turns.
    pub(crate) fn renew(&mut self) {
        self.last = None;
    }

    /// Members that events get.
    pub(super) fn members(&self) -> &[AddedMember] {
        &self.members
    }

    /// Gives an event the metadata.
    pub(crate) fn add_metadata(&mut self, event: &mut Event) {
        if self.metadata.is_empty() {
            return;
        }
        if let Some((before, after)) = &self.last
            && before.is_shared_with(&event.metadata)
        {
            event.metadata = after.clone();
            return;
        }
        let before = event.metadata.clone();
        let map = event.metadata.map_mut();
        for (name, value) in &self.metadata {
            map.insert(name.clone(), value.clone());
        }
        self.last = Some((before, event.metadata.clone()));
    }
}
