//! `de_dot`: replaces dots in names of fields.

use std::sync::Arc;

use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::{Map, Value};

use super::{Filter, Outcome};

#[derive(Debug)]
struct DeDot {
    separator: String,
    nested: bool,
    recursive: bool,
    /// `None` for all fields.
    fields: Option<Vec<FieldReference>>,
    tag_on_failure: String,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let separator = options.text("separator").unwrap_or_else(|| "_".to_owned());
    if separator.contains('.') {
        options.fault_here("option [separator] of [de_dot] cannot have a dot");
    }
    let is_given = options.given().any(|(name, _)| name == "fields");
    let mut fields = Vec::new();
    for field in options.texts("fields") {
        match FieldReference::parse(&field) {
            Ok(field) => fields.push(field),
            Err(fault) => options.fault_here(fault),
        }
    }
    let filter = DeDot {
        separator,
        nested: options.boolean("nested").unwrap_or(false),
        recursive: options.boolean("recursive").unwrap_or(false),
        fields: is_given.then_some(fields),
        tag_on_failure: options.text("tag_on_failure").unwrap_or_else(|| "_de_dot_error".to_owned()),
    };
    options.finish()?;
    Ok(Arc::new(filter))
}

impl DeDot {
    /// Returns the names that a name becomes.
    fn names(&self, name: &str) -> Vec<String> {
        if !name.contains('.') {
            vec![name.to_owned()]
        } else if self.nested {
            let names: Vec<String> =
                name.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            // Nothing is left of a name of dots, which stays as it is.
            if names.is_empty() { vec![name.to_owned()] } else { names }
        } else {
            vec![name.replace('.', &self.separator)]
        }
    }

    /// Renames the members of an object.
    fn rename_members(&self, value: Value) -> Value {
        match value {
            Value::Object(members) if self.recursive => {
                let mut renamed = Map::new();
                for (name, value) in members {
                    insert(&mut renamed, &self.names(&name), self.rename_members(value));
                }
                Value::Object(renamed)
            }
            other => other,
        }
    }

    fn rename(&self, event: &mut Event, field: &FieldReference) -> Result<(), String> {
        let has_dot = field.path().iter().any(|name| name.contains('.'));
        if !has_dot && !self.recursive {
            return Ok(());
        }
        if !has_dot {
            let Some(value) = event.get(field).map(|value| value.into_owned()) else { return Ok(()) };
            return event.set(field, self.rename_members(value));
        }
        let path: String =
            field.path().iter().flat_map(|name| self.names(name)).map(|name| format!("[{name}]")).collect();
        let target = FieldReference::parse(&path)?;
        let Some(value) = event.remove(field) else { return Ok(()) };
        event.set(&target, self.rename_members(value.clone())).inspect_err(|_| {
            // It was there before, so it can be put there again.
            let _ = event.set(field, value);
        })
    }
}

/// Inserts a value at a path; objects on the way join.
fn insert(members: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => match (members.get_mut(name), value) {
            (Some(Value::Object(have)), Value::Object(more)) => have.extend(more),
            (_, value) => drop(members.insert(name.clone(), value)),
        },
        [name, rest @ ..] => {
            let member = members.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new()));
            if !member.is_object() {
                *member = Value::Object(Map::new());
            }
            if let Value::Object(members) = member {
                insert(members, rest, value);
            }
        }
    }
}

impl Filter for DeDot {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let all: Vec<FieldReference>;
        let fields = match &self.fields {
            Some(fields) => fields,
            None => {
                // Names with brackets cannot be addressed, and stay.
                all = event
                    .fields()
                    .keys()
                    .filter_map(|name| FieldReference::parse(&format!("[{name}]")).ok())
                    .collect();
                &all
            }
        };
        for field in fields {
            if self.rename(event, field).is_err() {
                event.tag(&self.tag_on_failure);
                return Outcome::Unmatched;
            }
        }
        Outcome::Matched
    }
}
