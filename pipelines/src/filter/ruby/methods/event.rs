//! Methods of events.

use millrace_ingest::event::METADATA;
use millrace_ingest::{Event, FieldReference, Template};
use serde_json::Value;

use super::super::interpreter::{Evaluated, Flow, Interpreter};
use super::super::value::{Key, RaisedError, Val};
use super::{NO_METHOD, arg, text_arg};

/// Methods of events.
pub(super) const NAMES: &[&str] = &[
    "get",
    "set",
    "remove",
    "tag",
    "cancel",
    "cancelled?",
    "uncancel",
    "include?",
    "to_hash",
    "to_hash_with_metadata",
    "to_json",
    "to_s",
    "sprintf",
    "timestamp",
    "timestamp=",
    "[]",
    "[]=",
    "clone",
    "dup",
    "overwrite",
    "append",
    "tags",
];

fn reference(args: &[Val]) -> Result<FieldReference, RaisedError> {
    let text = text_arg(args, 0)?;
    FieldReference::parse(&text).map_err(RaisedError::argument)
}

/// Calls a method of an event.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    number: usize,
    name: &'static str,
    args: &[Val],
) -> Option<Evaluated> {
    let answer = match name {
        "get" | "[]" => get(run, number, args),
        "set" | "[]=" => set(run, number, args),
        "clone" | "dup" => match run.events.get(number).cloned() {
            Some(event) => run.add_event(event),
            None => Ok(Val::Nil),
        },
        "cancel" => {
            run.is_cancelled |= number == 0;
            Ok(Val::Bool(true))
        }
        "uncancel" => {
            run.is_cancelled &= number != 0;
            Ok(Val::Bool(false))
        }
        "cancelled?" => Ok(Val::Bool(number == 0 && run.is_cancelled)),
        "to_hash" | "to_hash_with_metadata" => to_hash(run, number, name),
        "to_json" => {
            let mut json = Vec::new();
            if let Some(event) = run.events.get(number) {
                event.write_json(&mut json);
            }
            run.text(String::from_utf8_lossy(&json))
        }
        "to_s" => {
            let line = run.events.get(number).map_or_else(String::new, Event::line);
            run.text(line)
        }
        "sprintf" => text_arg(args, 0).map_err(Flow::from).and_then(|text| {
            let template = Template::parse(&text);
            let rendered = run.events.get(number).map_or_else(String::new, |event| template.render(event));
            run.text(rendered)
        }),
        _ => {
            if let ("overwrite" | "append", Some(fields)) = (name, args.first())
                && let Err(flow) = run.allocate_copy(fields)
            {
                return Some(Err(flow));
            }
            let event = run.events.get_mut(number)?;
            match change(event, name, args) {
                Err(error) if error.class == NO_METHOD => return None,
                other => other.map_err(Flow::from),
            }
        }
    };
    Some(answer)
}

fn get(run: &mut Interpreter<'_>, number: usize, args: &[Val]) -> Evaluated {
    let reference = reference(args)?;
    let Some(event) = run.events.get(number) else { return Ok(Val::Nil) };
    if matches!(reference.path(), [name] if name == "@timestamp") {
        return Ok(Val::Timestamp(event.timestamp()));
    }
    let value = event.get(&reference).map_or(Val::Nil, |value| Val::from_json(&value));
    run.allocate_copy(&value)?;
    Ok(value)
}

fn set(run: &mut Interpreter<'_>, number: usize, args: &[Val]) -> Evaluated {
    let reference = reference(args)?;
    let value = arg(args, 1)?;
    let json = run.json(value)?;
    if let Some(event) = run.events.get_mut(number) {
        event.set(&reference, json).map_err(RaisedError::argument)?;
    }
    Ok(value.clone())
}

fn to_hash(run: &mut Interpreter<'_>, number: usize, name: &str) -> Evaluated {
    let Some(event) = run.events.get(number) else { return Ok(Val::Nil) };
    let mut members: super::super::value::Members = event
        .fields()
        .iter()
        .map(|(name, value)| (Key::Text(name.as_str().into()), Val::from_json(value)))
        .collect();
    members.insert(Key::Text("@timestamp".into()), Val::Timestamp(event.timestamp()));
    if name == "to_hash_with_metadata" && !event.metadata().is_empty() {
        let metadata = Val::from_json(&Value::Object(event.metadata().clone()));
        members.insert(Key::Text(METADATA.into()), metadata);
    }
    for value in members.values() {
        run.allocate_copy(value)?;
    }
    run.hash(members)
}

/// Methods that change an event or look at it.
fn change(event: &mut Event, name: &str, args: &[Val]) -> Result<Val, RaisedError> {
    Ok(match name {
        "remove" => event.remove(&reference(args)?).map_or(Val::Nil, |value| Val::from_json(&value)),
        "include?" => Val::Bool(event.get(&reference(args)?).is_some()),
        "tag" => {
            event.tag(&text_arg(args, 0)?);
            Val::Nil
        }
        "tags" => event.fields().get("tags").map_or(Val::Nil, Val::from_json),
        "timestamp" => Val::Timestamp(event.timestamp()),
        "timestamp=" => {
            let value = arg(args, 0)?;
            let time = value
                .instant()
                .ok_or_else(|| RaisedError::type_error("the timestamp of an event is a time"))?;
            event.set_timestamp(time);
            value.clone()
        }
        "overwrite" | "append" => {
            let Val::Hash(_) = arg(args, 0)? else {
                return Err(RaisedError::type_error("fields are given as a hash"));
            };
            let Value::Object(fields) = args[0].to_json()? else { return Ok(Val::Nil) };
            if name == "overwrite" {
                *event = Event::from_fields(fields, event.timestamp());
            } else {
                event.fields_mut().extend(fields);
            }
            Val::Nil
        }
        _ => return Err(RaisedError { class: NO_METHOD, message: String::new() }),
    })
}
