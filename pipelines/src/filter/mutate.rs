//! `mutate`: changes fields.
//!
//! Whatever the order in which they are written, operations are done in that of Logstash: coerce, rename,
//! update, replace, convert, gsub, uppercase, capitalize, lowercase, strip, split, join, merge, copy. An operation that
//! fails ends the filter and tags the event.

mod convert;
mod gsub;

use std::sync::Arc;

use millrace_ingest::event::text_of;
use millrace_ingest::options::Setting;
use millrace_ingest::{Event, Fault, FieldReference, Options, Template};
use serde_json::Value;

use super::fingerprint::inspected;
use super::settings::texts_or;
use super::{Filter, Outcome};
use convert::Convert;
use gsub::Gsub;

#[derive(Debug)]
struct Mutate {
    operations: Vec<Operation>,
    tags_on_failure: Vec<String>,
}

#[derive(Debug)]
enum Operation {
    /// Sets fields that are null.
    Coerce(FieldReference, Template),
    Rename(Template, Template),
    /// Sets fields that are there.
    Update(FieldReference, Template),
    Replace(FieldReference, Template),
    Convert(Convert),
    Gsub(Gsub),
    Letters(FieldReference, CaseChange),
    Split(FieldReference, String),
    Join(FieldReference, String),
    Merge(FieldReference, FieldReference),
    Copy(FieldReference, FieldReference),
}

#[derive(Clone, Copy, Debug)]
enum CaseChange {
    Upper,
    Capital,
    Lower,
    Strip,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let mut operations = Vec::new();
    templates(
        &mut options,
        "coerce",
        |field, value| Ok(Operation::Coerce(reference(&field)?, value)),
        &mut operations,
    );
    let rename = |from: String, to: Template| {
        let from = Template::parse(&from);
        // What no event can change is wrong for all.
        for name in [&from, &to].into_iter().filter(|name| name.is_constant()) {
            reference(name.as_str())?;
        }
        Ok(Operation::Rename(from, to))
    };
    templates(&mut options, "rename", rename, &mut operations);
    templates(
        &mut options,
        "update",
        |field, value| Ok(Operation::Update(reference(&field)?, value)),
        &mut operations,
    );
    templates(
        &mut options,
        "replace",
        |field, value| Ok(Operation::Replace(reference(&field)?, value)),
        &mut operations,
    );
    texts(
        &mut options,
        "convert",
        |field, kind| Ok(Operation::Convert(Convert::parse(reference(field)?, kind)?)),
        &mut operations,
    );
    substitutions(&mut options, &mut operations);
    for (name, letters) in [
        ("uppercase", CaseChange::Upper),
        ("capitalize", CaseChange::Capital),
        ("lowercase", CaseChange::Lower),
        ("strip", CaseChange::Strip),
    ] {
        for field in options.texts(name) {
            match reference(&field) {
                Ok(field) => operations.push(Operation::Letters(field, letters)),
                Err(fault) => options.fault_here(fault),
            }
        }
    }
    let split = |field: &str, by: &str| Ok(Operation::Split(reference(field)?, by.to_owned()));
    texts(&mut options, "split", split, &mut operations);
    let join = |field: &str, by: &str| Ok(Operation::Join(reference(field)?, by.to_owned()));
    texts(&mut options, "join", join, &mut operations);
    texts(
        &mut options,
        "merge",
        |to, from| Ok(Operation::Merge(reference(to)?, reference(from)?)),
        &mut operations,
    );
    texts(
        &mut options,
        "copy",
        |from, to| Ok(Operation::Copy(reference(from)?, reference(to)?)),
        &mut operations,
    );
    let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_mutate_error"]);
    options.finish()?;
    Ok(Arc::new(Mutate { operations, tags_on_failure }))
}

fn reference(field: &str) -> Result<FieldReference, String> {
    FieldReference::parse(field)
}

/// Takes a hash of fields and formats.
fn templates(
    options: &mut Options,
    name: &'static str,
    operation: impl Fn(String, Template) -> Result<Operation, String>,
    operations: &mut Vec<Operation>,
) {
    texts(options, name, |field, value| operation(field.to_owned(), Template::parse(value)), operations);
}

/// Takes a hash of fields and texts; an array of texts counts as one entry for each.
fn texts(
    options: &mut Options,
    name: &'static str,
    operation: impl Fn(&str, &str) -> Result<Operation, String>,
    operations: &mut Vec<Operation>,
) {
    for (field, value) in options.hash(name) {
        let values: Option<Vec<String>> = match &value {
            Setting::Array(values) if name == "merge" => values.iter().map(Setting::as_text).collect(),
            // The text of the array, as in Logstash.
            Setting::Array(values) if matches!(name, "update" | "replace") => {
                let texts: Option<Vec<Value>> = values
                    .iter()
                    .map(|value| match value {
                        Setting::Number(number) => Some(Value::Number(number.clone())),
                        other => other.as_text().map(Value::String),
                    })
                    .collect();
                texts.map(|texts| vec![inspected(&Value::Array(texts))])
            }
            single => single.as_text().map(|text| vec![text]),
        };
        let Some(values) = values else {
            options
                .fault_here(format!("option [{name}] of [mutate] must have a text for the field [{field}]"));
            continue;
        };
        for value in values {
            match operation(&field, &value) {
                Ok(operation) => operations.push(operation),
                Err(fault) => options.fault_here(fault),
            }
        }
    }
}

fn substitutions(options: &mut Options, operations: &mut Vec<Operation>) {
    let given = options.texts("gsub");
    if !given.len().is_multiple_of(3) {
        options.fault_here(
            "option [gsub] of [mutate] must have a field, an expression and a replacement in turns",
        );
    }
    for three in given.chunks_exact(3) {
        let [field, expression, replacement] = three else { continue };
        match reference(field).and_then(|field| Gsub::parse(field, expression, replacement)) {
            Ok(gsub) => operations.push(Operation::Gsub(gsub)),
            Err(fault) => options.fault_here(fault),
        }
    }
}

impl Filter for Mutate {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        for operation in &self.operations {
            if operation.apply(event).is_err() {
                self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
                return Outcome::Unmatched;
            }
        }
        Outcome::Matched
    }
}

impl Operation {
    /// # Errors
    /// What stands in the way.
    fn apply(&self, event: &mut Event) -> Result<(), String> {
        match self {
            Self::Coerce(field, value) => {
                if event.get(field).is_some_and(|value| value.is_null()) {
                    event.set(field, Value::String(value.render(event)))?;
                }
                Ok(())
            }
            Self::Rename(from, to) => rename(event, &from.render(event), &to.render(event)),
            Self::Update(field, value) => {
                if event.get(field).is_some() {
                    event.set(field, Value::String(value.render(event)))?;
                }
                Ok(())
            }
            Self::Replace(field, value) => event.set(field, Value::String(value.render(event))),
            Self::Convert(convert) => convert.apply(event),
            Self::Gsub(gsub) => gsub.apply(event),
            Self::Letters(field, letters) => each_text(event, field, |text| letters.apply(text)),
            Self::Split(field, by) => match event.get(field).as_deref() {
                Some(Value::String(text)) => {
                    let parts = split(text, by);
                    event.set(field, Value::Array(parts))
                }
                _ => Ok(()),
            },
            Self::Join(field, by) => match event.get(field).as_deref() {
                Some(Value::Array(elements)) => {
                    let joined = elements.iter().map(text_of).collect::<Vec<_>>().join(by);
                    event.set(field, Value::String(joined))
                }
                _ => Ok(()),
            },
            Self::Merge(to, from) => merge(event, to, from),
            Self::Copy(from, to) => match event.get(from).map(|value| value.into_owned()) {
                Some(value) if !value.is_null() => event.set(to, value),
                _ => Ok(()),
            },
        }
    }
}

impl CaseChange {
    fn apply(self, text: &str) -> String {
        match self {
            Self::Upper => text.to_uppercase(),
            Self::Lower => text.to_lowercase(),
            Self::Strip => {
                text.trim_matches(|letter: char| letter.is_ascii_whitespace() || letter == '\0').to_owned()
            }
            Self::Capital => {
                let mut letters = text.chars();
                let first = letters.next().map(|first| first.to_uppercase().collect::<String>());
                first.unwrap_or_default() + &letters.as_str().to_lowercase()
            }
        }
    }
}

/// Changes a text, or the texts of an array.
fn each_text(
    event: &mut Event,
    field: &FieldReference,
    change: impl Fn(&str) -> String,
) -> Result<(), String> {
    let changed = match event.get(field).as_deref() {
        Some(Value::String(text)) => Value::String(change(text)),
        Some(Value::Array(elements)) => Value::Array(
            elements
                .iter()
                .map(|element| match element {
                    Value::String(text) => Value::String(change(text)),
                    other => other.clone(),
                })
                .collect(),
        ),
        _ => return Ok(()),
    };
    event.set(field, changed)
}

fn rename(event: &mut Event, from: &str, to: &str) -> Result<(), String> {
    let (from, to) = (reference(from)?, reference(to)?);
    if from == to {
        return Ok(());
    }
    let Some(value) = event.remove(&from) else { return Ok(()) };
    let kept = value.clone();
    event.set(&to, value).inspect_err(|_| {
        // It was there before, so it can be put there again.
        let _ = event.set(&from, kept);
    })
}

/// Splits as Ruby does: without the empty parts at the end; by a space, at any white space; by nothing, into
/// characters.
fn split(text: &str, by: &str) -> Vec<Value> {
    let mut parts: Vec<&str> = match by {
        "" => text.char_indices().filter_map(|(at, letter)| text.get(at..at + letter.len_utf8())).collect(),
        " " => text.split_ascii_whitespace().collect(),
        by => text.split(by).collect(),
    };
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts.into_iter().map(|part| Value::String(part.to_owned())).collect()
}

/// Adds what one field has to another: to an array, or members to an object. An object does not go
/// together with anything else, and both stay as they are.
fn merge(event: &mut Event, to: &FieldReference, from: &FieldReference) -> Result<(), String> {
    let added = match event.get(from).as_deref() {
        None | Some(Value::Null) => return Ok(()),
        Some(value) => value.clone(),
    };
    let have = event.get(to).map(|value| value.into_owned()).unwrap_or(Value::Null);
    let merged = match (have, added) {
        (Value::Object(mut have), Value::Object(added)) => {
            have.extend(added);
            Value::Object(have)
        }
        (Value::Object(_), _) | (_, Value::Object(_)) => return Ok(()),
        (have, added) => {
            let mut elements = elements(have);
            elements.extend(self::elements(added));
            Value::Array(elements)
        }
    };
    event.set(to, merged)
}

fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(elements) => elements,
        other => vec![other],
    }
}
