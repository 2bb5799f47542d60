//! `json`: reads the JSON that a field has.

use std::sync::Arc;

use millrace_ingest::event::{METADATA, TIMESTAMP, text_of};
use millrace_ingest::{Event, Fault, FieldReference, Options};
use millrace_mapping::document::replace_lone_surrogates;
use serde_json::{Map, Value};

use super::settings::texts_or;
use super::{Filter, Outcome};

const TAGS: &str = "tags";

#[derive(Debug)]
struct Json {
    source: FieldReference,
    target: Option<FieldReference>,
    skip_on_invalid_json: bool,
    tags_on_failure: Vec<String>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    // Names of fields are those of the event, with and without the schema.
    let _ = options.ecs_compatibility();
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
            Some(Value::String(text)) => match replace_lone_surrogates(text.as_bytes()) {
                Some(replaced) => serde_json::from_slice::<Value>(&replaced),
                None => serde_json::from_str(text),
            },
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

/// Puts members into an event. What is special in them is taken as [`Event::from_fields`] takes it, with the tags of
/// its failures added to those that are there.
fn merge(event: &mut Event, mut members: Map<String, Value>) {
    let mut special = Map::new();
    for name in [TIMESTAMP, METADATA] {
        special.extend(members.shift_remove(name).map(|value| (name.to_owned(), value)));
    }
    let mut failures = Vec::new();
    if let Some(tags) = members.get_mut(TAGS)
        && tags.is_object()
    {
        let tags = tags.take();
        members.shift_remove(TAGS);
        members.insert("_tags".to_owned(), tags);
        failures.push("_tagsparsefailure".to_owned());
    }
    if !special.is_empty() {
        let metadata = special.get(METADATA).is_some_and(Value::is_object);
        let mut taken = Event::from_fields(special, event.timestamp());
        event.set_timestamp(taken.timestamp());
        if metadata && let Ok(reference) = FieldReference::parse(METADATA) {
            // An object can always become the metadata.
            let _ = event.set(&reference, Value::Object(taken.metadata().clone()));
        }
        if let Some(Value::Array(tags)) = taken.fields_mut().shift_remove(TAGS) {
            failures.extend(tags.iter().map(text_of));
        }
        members.extend(std::mem::take(taken.fields_mut()));
    }
    event.fields_mut().extend(members);
    failures.iter().for_each(|tag| event.tag(tag));
}
