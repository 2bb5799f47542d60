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

impl Filter for Split {
    fn apply(&self, event: &mut Event, made: &mut Vec<Event>) -> Outcome {
        let parts: Vec<Value> = match event.get(&self.field).as_deref() {
            Some(Value::Array(elements)) => elements.clone(),
            Some(Value::String(text)) => {
                let parts: Vec<&str> = text.split(&*self.terminator).collect();
                if parts.len() == 1 {
                    return Outcome::Unmatched;
                }
                parts.into_iter().map(|part| Value::String(part.to_owned())).collect()
            }
            _ => {
                event.tag(WRONG_TYPE);
                return Outcome::Unmatched;
            }
        };
        // The parts do not carry the whole.
        let original = if self.target.is_none() { event.remove(&self.field) } else { None };
        let target = self.target.as_ref().unwrap_or(&self.field);
        let whole = event.bytes().saturating_mul(parts.len() as u64);
        if whole > MAX_BYTES {
            if let Some(original) = original {
                // It was there before, so it can be put there again.
                let _ = event.set(&self.field, original);
            }
            event.tag(TOO_LARGE);
            return Outcome::Unmatched;
        }
        for part in parts {
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
