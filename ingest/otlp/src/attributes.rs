//! Values and attributes as JSON.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::message::{AnyValue, KeyValue};

/// Attributes up to which names are compared one by one.
const FEW: usize = 16;

/// Appends a text as JSON.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    // Neither a text nor a number can fail to be written to memory.
    let _ = serde_json::to_writer(out, text);
}

/// Appends a member that is a text, behind a comma.
pub(crate) fn push_member(out: &mut Vec<u8>, name: &str, text: &str) {
    push_name(out, name);
    push_text(out, text);
}

/// Appends the name of a member behind a comma, unless it is the first of its object.
pub(crate) fn push_name(out: &mut Vec<u8>, name: &str) {
    if out.last().is_some_and(|last| *last != b'{') {
        out.push(b',');
    }
    push_text(out, name);
    out.push(b':');
}

/// Appends a value. A number that JSON does not have is `null`, bytes are base64.
pub(crate) fn push_value(out: &mut Vec<u8>, value: &AnyValue<'_>) {
    match value {
        AnyValue::Empty => out.extend_from_slice(b"null"),
        AnyValue::Text(text) => push_text(out, text),
        AnyValue::Bool(true) => out.extend_from_slice(b"true"),
        AnyValue::Bool(false) => out.extend_from_slice(b"false"),
        AnyValue::Int(number) => drop(serde_json::to_writer(out, number)),
        AnyValue::Double(number) => drop(serde_json::to_writer(out, number)),
        AnyValue::Bytes(bytes) => push_text(out, &STANDARD.encode(bytes)),
        AnyValue::Array(values) => {
            out.push(b'[');
            for (number, value) in values.iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                push_value(out, value);
            }
            out.push(b']');
        }
        AnyValue::Map(members) => push_attributes(out, members, |_| true),
    }
}

/// Appends attributes as an object, those that are wanted. Of several with one name the first stays.
pub(crate) fn push_attributes(
    out: &mut Vec<u8>,
    attributes: &[KeyValue<'_>],
    is_wanted: impl Fn(&str) -> bool,
) {
    out.push(b'{');
    let mut names = UniqueNames::new();
    for KeyValue { key, value } in attributes {
        if is_wanted(key) && names.insert(key) {
            push_name(out, key);
            push_value(out, value);
        }
    }
    out.push(b'}');
}

/// Names that were written. A set costs more than it saves where they are few.
pub(crate) struct UniqueNames<'a> {
    few: [&'a str; FEW],
    count: usize,
    /// All names, once there are more.
    many: HashSet<&'a str>,
}

impl<'a> UniqueNames<'a> {
    pub(crate) fn new() -> Self {
        Self { few: [""; FEW], count: 0, many: HashSet::new() }
    }

    /// Takes note of a name; returns whether it is new.
    pub(crate) fn insert(&mut self, name: &'a str) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(name);
        }
        if self.few[..self.count].contains(&name) {
            return false;
        }
        if let Some(free) = self.few.get_mut(self.count) {
            *free = name;
            self.count += 1;
            return true;
        }
        self.many.extend(self.few);
        self.many.insert(name)
    }
}
