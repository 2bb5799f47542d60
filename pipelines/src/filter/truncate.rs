//! `truncate`: shortens texts to a number of bytes.

use std::sync::Arc;

use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::Value;

use super::{Filter, Outcome};

#[derive(Debug)]
struct Truncate {
    /// Empty for all fields.
    fields: Vec<FieldReference>,
    bytes: usize,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let mut fields = Vec::new();
    for field in options.texts("fields") {
        match FieldReference::parse(&field) {
            Ok(field) => fields.push(field),
            Err(fault) => options.fault_here(fault),
        }
    }
    let is_given = options.given().any(|(name, _)| name == "length_bytes");
    let bytes = options.integer("length_bytes", 0..=i64::from(i32::MAX));
    if !is_given {
        options.fault_here("[truncate] needs the option [length_bytes]");
    }
    options.finish()?;
    Ok(Arc::new(Truncate { fields, bytes: usize::try_from(bytes.unwrap_or(0)).unwrap_or(usize::MAX) }))
}

impl Truncate {
    /// Shortens the texts of a value; returns whether one was too long.
    fn shorten(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) if text.len() > self.bytes => {
                text.truncate(text.floor_char_boundary(self.bytes));
                true
            }
            Value::Array(elements) => {
                self.shorten_each(elements.iter_mut().filter(|element| element.is_string()))
            }
            Value::Object(members) => self.shorten_each(members.values_mut()),
            _ => false,
        }
    }

    /// Shortens all of some values; returns whether any was too long.
    fn shorten_each<'v>(&self, values: impl Iterator<Item = &'v mut Value>) -> bool {
        let mut is_any_shorter = false;
        for value in values {
            is_any_shorter |= self.shorten(value);
        }
        is_any_shorter
    }
}

impl Filter for Truncate {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let mut any = false;
        if self.fields.is_empty() {
            for value in event.fields_mut().values_mut() {
                any |= self.shorten(value);
            }
        }
        for field in &self.fields {
            let Some(mut value) = event.get(field).map(|value| value.into_owned()) else { continue };
            if self.shorten(&mut value) {
                any |= event.set(field, value).is_ok();
            }
        }
        if any { Outcome::Matched } else { Outcome::Unmatched }
    }
}
