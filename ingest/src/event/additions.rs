//! Members and metadata that an input gives to many events.

use serde_json::{Map, Value};

use super::metadata::Metadata;
use super::{Event, METADATA, TAGS, members};

/// Members that events get where they lack them, or in place of theirs, and metadata that replaces theirs. Objects are joined member by member.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    members: Vec<AddedMember>,
    metadata: Map<String, Value>,
    tag: Option<FieldTag>,
    /// Metadata of an earlier event before and after the addition: events that share the former share the latter.
    last: Option<(Metadata, Metadata)>,
}

/// Tag that says whether events have a field.
#[derive(Debug)]
pub(super) struct FieldTag {
    /// Name of the field, as it is written, too.
    pub(super) field: &'static str,
    /// Member with the tag of events that have the field, and of those that do not.
    present: AddedMember,
    absent: AddedMember,
}

impl FieldTag {
    /// Returns the member of an event.
    pub(super) fn member(&self, is_present: bool) -> &AddedMember {
        if is_present { &self.present } else { &self.absent }
    }
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
    /// `true` if it takes the place of a member of its name.
    pub(super) replaces: bool,
}

impl AddedMember {
    /// Makes a member that events get where they lack it.
    pub(super) fn new(name: &str, value: Value) -> Self {
        let (text, value_at) = members::written(name, &value);
        Self { name: name.to_owned(), value, text, value_at, replaces: false }
    }

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

    /// Adds a member that takes the place of one of its name.
    #[must_use]
    pub(crate) fn replacing_member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.retain(|member| member.name != name);
        self.members.push(AddedMember { replaces: true, ..AddedMember::new(name, value.into()) });
        self
    }

    /// Tags events that have a field, and those that do not. The name needs no escapes.
    #[must_use]
    pub(crate) fn tag_by_field(mut self, field: &'static str, present: &str, absent: &str) -> Self {
        let member = |tag: &str| AddedMember::new(TAGS, Value::from(vec![tag]));
        self.tag = Some(FieldTag { field, present: member(present), absent: member(absent) });
        self
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
        self.members.push(AddedMember::new(name, value));
    }

    /// Returns the members as an object.
    pub(crate) fn into_members(self) -> Map<String, Value> {
        self.members.into_iter().map(|member| (member.name, member.value)).collect()
    }

    /// Gives an event what it lacks.
    pub(crate) fn add_to(&mut self, event: &mut Event) {
        if let Some(tag) = &self.tag {
            let member = tag.member(event.has_field(tag.field));
            if let Some(tag) = member.value.get(0).and_then(Value::as_str) {
                event.tag(tag);
            }
        }
        for member in &self.members {
            match member.replaces {
                true => event.fields.insert(&member.name, member.value.clone()),
                false => event.fields.insert_missing(member),
            }
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

    /// Tag that events get.
    pub(super) fn tag(&self) -> Option<&FieldTag> {
        self.tag.as_ref()
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
