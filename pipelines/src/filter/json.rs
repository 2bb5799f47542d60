//! `json`: reads the JSON that a field has.

use std::sync::Arc;

use millrace_ingest::event::{METADATA, TIMESTAMP, text_of};
use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::{Map, Value};

use super::settings::{ecs_disabled, texts_or};
use super::{Filter, Outcome};

#[derive(Debug)]
struct Json {
    source: FieldReference,
    target: Option<FieldReference>,
    skip_on_invalid_json: bool,
    tags_on_failure: Vec<String>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    ecs_disabled(&mut options);
    let source = options.required_text("source");
    let source = FieldReference::parse(&source).map_err(|fault| {
        if !source.is_empty() {
            options.fault_here(fault);
        }
    });
    let target = options.field("target");
    let skip_on_invalid_json = options.boolean("skip_on_invalid_json").unwrap_or(false);
    let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_jsonparsefailure"]);
    options.finish()?;
    let Ok(source) = source else { return Err(Vec::new()) };
    Ok(Arc::new(Json { source, target, skip_on_invalid_json, tags_on_failure }))
}

impl Filter for Json {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let parsed = match event.get(&self.source).as_deref() {
            None | Some(Value::Null) => return Outcome::Unmatched,
            Some(Value::String(text)) => serde_json::from_str::<Value>(text),
            Some(other) => serde_json::from_str(&text_of(other)),
        };
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(_) if self.skip_on_invalid_json => return Outcome::Unmatched,
            Err(_) => return self.failed(event),
        };
        match (&self.target, parsed) {
            (Some(target), parsed) => match event.set(target, parsed) {
                Ok(()) => Outcome::Matched,
                Err(_) => self.failed(event),
            },
            (None, Value::Object(members)) => {
                merge(event, members);
                Outcome::Matched
            }
            // What has no names needs a target.
            (None, _) => self.failed(event),
        }
    }
}

impl Json {
    fn failed(&self, event: &mut Event) -> Outcome {
        self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
        Outcome::Unmatched
    }
}

/// Puts members into an event; its time and metadata as [`Event::from_fields`] takes them.
fn merge(event: &mut Event, mut members: Map<String, Value>) {
    let mut special = Map::new();
    for name in [TIMESTAMP, METADATA, "tags"] {
        special.extend(members.shift_remove(name).map(|value| (name.to_owned(), value)));
    }
    let metadata = special.get(METADATA).is_some_and(Value::is_object);
    let checked = Event::from_fields(special, event.timestamp());
    event.set_timestamp(checked.timestamp());
    if metadata && let Ok(reference) = FieldReference::parse(METADATA) {
        // An object can always become the metadata.
        let _ = event.set(&reference, Value::Object(checked.metadata().clone()));
    }
    for (name, value) in checked.fields() {
        event.fields_mut().insert(name.clone(), value.clone());
    }
    event.fields_mut().extend(members);
}
