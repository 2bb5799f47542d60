//! Values and attributes as JSON.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::message::{AnyValue, KeyValue, ValueKind};

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
pub(crate) fn push_value(out: &mut Vec<u8>, value: Option<&AnyValue>) {
    match value.and_then(|value| value.value.as_ref()) {
        None => out.extend_from_slice(b"null"),
        Some(ValueKind::Text(text)) => push_text(out, text),
        Some(ValueKind::Bool(true)) => out.extend_from_slice(b"true"),
        Some(ValueKind::Bool(false)) => out.extend_from_slice(b"false"),
        Some(ValueKind::Int(number)) => drop(serde_json::to_writer(out, number)),
        Some(ValueKind::Double(number)) => drop(serde_json::to_writer(out, number)),
        Some(ValueKind::Bytes(bytes)) => push_text(out, &STANDARD.encode(bytes)),
        Some(ValueKind::Array(array)) => {
            out.push(b'[');
            for (number, value) in array.values.iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                push_value(out, Some(value));
            }
            out.push(b']');
        }
        Some(ValueKind::Map(map)) => push_attributes(out, &map.values, |_| true),
    }
}

/// Appends attributes as an object, those that are wanted. Of several with one name the first stays.
pub(crate) fn push_attributes(out: &mut Vec<u8>, attributes: &[KeyValue], is_wanted: impl Fn(&str) -> bool) {
    out.push(b'{');
    let mut names = UniqueNames::new(attributes.len());
    for KeyValue { key, value } in attributes {
        if is_wanted(key) && names.insert(key) {
            push_name(out, key);
            push_value(out, value.as_ref());
        }
    }
    out.push(b'}');
}

/// Names that were written.
pub(crate) enum UniqueNames<'a> {
    Few(Vec<&'a str>),
    Many(HashSet<&'a str>),
}

impl<'a> UniqueNames<'a> {
    /// Makes it for so many names.
    pub(crate) fn new(names: usize) -> Self {
        if names <= FEW { Self::Few(Vec::with_capacity(names)) } else { Self::Many(HashSet::new()) }
    }

    /// Takes note of a name; returns whether it is new.
    pub(crate) fn insert(&mut self, name: &'a str) -> bool {
        match self {
            Self::Few(names) if names.contains(&name) => false,
            Self::Few(names) => {
                names.push(name);
                true
            }
            Self::Many(names) => names.insert(name),
        }
    }
}
