//! `split`: makes an event of each part of a field.

use std::sync::Arc;

use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::Value;

use super::settings::field_or;
use super::{Filter, Outcome};

/// Tag of events whose field is neither a text nor an array.
const WRONG_TYPE: &str = "_split_type_failure";
/// Tag of events that would become too much.
const TOO_LARGE: &str = "_split_too_large";
/// Most bytes of the events that one event becomes.
const MAX_BYTES: u64 = 256 << 20;

#[derive(Debug)]
struct Split {
    field: FieldReference,
    target: Option<FieldReference>,
    terminator: String,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let field = field_or(&mut options, "field", "message");
    let target = options.field("target");
    let terminator = options.read("terminator", "a text that is not empty", |setting| {
        setting.as_text().filter(|terminator| !terminator.is_empty())
    });
    options.finish()?;
    Ok(Arc::new(Split { field, target, terminator: terminator.unwrap_or_else(|| "\n".to_owned()) }))
}

impl Split {
    /// Returns the number of parts that a value has; `None` for what cannot be split.
    fn count(&self, value: &Value) -> Option<usize> {
        match value {
            Value::Array(elements) => Some(elements.len()),
            Value::String(text) => Some(text.split(&*self.terminator).count()),
            _ => None,
        }
    }

    /// Returns the parts of a value.
    fn parts<'a>(&'a self, value: &'a Value) -> Box<dyn Iterator<Item = Value> + 'a> {
        match value {
            Value::Array(elements) => Box::new(elements.iter().cloned()),
            Value::String(text) => {
                Box::new(text.split(&*self.terminator).map(|part| Value::String(part.to_owned())))
            }
            _ => Box::new(std::iter::empty()),
        }
    }
}

impl Filter for Split {
    fn apply(&self, event: &mut Event, made: &mut Vec<Event>) -> Outcome {
        let value = event.get(&self.field).map(|value| value.into_owned());
        let counted = value.as_ref().and_then(|value| Some((value, self.count(value)?)));
        let Some((value, count)) = counted else {
            event.tag(WRONG_TYPE);
            return Outcome::Unmatched;
        };
        if value.is_string() && count == 1 {
            return Outcome::Unmatched;
        }
        // The parts do not carry the whole.
        let original = if self.target.is_none() { event.remove(&self.field) } else { None };
        let target = self.target.as_ref().unwrap_or(&self.field);
        if event.bytes().saturating_mul(count as u64) > MAX_BYTES {
            if let Some(original) = original {
                // It was there before, so it can be put there again.
                let _ = event.set(&self.field, original);
            }
            event.tag(TOO_LARGE);
            return Outcome::Unmatched;
        }
        for part in self.parts(value) {
            if part.is_null() || part.as_str() == Some("") {
                continue;
            }
            let mut copy = event.clone();
            if copy.set(target, part).is_err() {
                copy.tag(WRONG_TYPE);
            }
            made.push(copy);
        }
        Outcome::Dropped
    }
}
