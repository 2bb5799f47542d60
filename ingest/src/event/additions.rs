//! Members and metadata that an input gives to many events.

use serde_json::{Map, Value};

use super::metadata::Metadata;
use super::{Event, METADATA, members};

/// Members that events get where they lack them, and metadata that replaces theirs. Objects are joined member by member.
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
    /// Adds a member.
    #[must_use]
    pub(crate) fn member(self, name: &str, value: impl Into<Value>) -> Self {
        self.at(&[name], value)
    }

    /// Adds metadata.
    #[must_use]
    pub(crate) fn metadata(self, name: &str, value: impl Into<Value>) -> Self {
        self.at(&[METADATA, name], value)
    }

    /// Adds a value at a path of names, the first of which may be that of metadata.
    #[must_use]
    pub(crate) fn at(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        let Some((first, rest)) = path.split_first() else { return self };
        let value: Value = rest.iter().rev().fold(value.into(), |value, name| {
            let mut members = Map::new();
            members.insert((*name).to_owned(), value);
            Value::Object(members)
        });
        match value {
            Value::Object(members) if *first == METADATA => replace_members(&mut self.metadata, &members),
            value => self.add_member(first, value),
        }
        self
    }

    fn add_member(&mut self, name: &str, value: Value) {
        let before = self.members.iter().position(|member| member.name == name);
        let value = match (before.map(|at| self.members.remove(at).value), value) {
            (Some(Value::Object(mut present)), Value::Object(members)) => {
                replace_members(&mut present, &members);
                Value::Object(present)
            }
            (_, value) => value,
        };
        let (text, value_at) = members::written(name, &value);
        self.members.push(AddedMember { name: name.to_owned(), value, text, value_at });
    }

    /// Returns the members as an object.
    pub(crate) fn into_members(self) -> Map<String, Value> {
        self.members.into_iter().map(|member| (member.name, member.value)).collect()
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
        replace_members(event.metadata.map_mut(), &self.metadata);
        self.last = Some((before, event.metadata.clone()));
    }
}

/// Puts members in the place of those of their names. Objects on both sides are joined.
pub(super) fn replace_members(present: &mut Map<String, Value>, members: &Map<String, Value>) {
    for (name, value) in members {
        match (present.get_mut(name), value) {
            (Some(Value::Object(present)), Value::Object(members)) => replace_members(present, members),
            (Some(present), value) => *present = value.clone(),
            (None, value) => drop(present.insert(name.clone(), value.clone())),
        }
    }
}

/// Adds members that are missing, also within objects on both sides.
pub(super) fn add_missing(present: &mut Map<String, Value>, members: &Map<String, Value>) {
    for (name, value) in members {
        match (present.get_mut(name), value) {
            (Some(Value::Object(present)), Value::Object(members)) => add_missing(present, members),
            (Some(_), _) => {}
            (None, value) => drop(present.insert(name.clone(), value.clone())),
        }
    }
}
