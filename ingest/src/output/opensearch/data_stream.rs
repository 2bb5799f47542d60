//! Data streams that events go to: `<type>-<dataset>-<namespace>`, from the options or from the field `data_stream` of an event.

use serde_json::{Map, Value, json};

use crate::{Event, FieldReference, Options};

/// Field with the parts of the name.
const FIELD: &str = "data_stream";
/// Types of data streams.
const TYPES: [&str; 4] = ["logs", "metrics", "synthetics", "traces"];
/// Longest dataset or namespace, in bytes.
const MAX_PART: usize = 100;
/// Options that need data streams.
const OPTIONS: [&str; 5] = [
    "data_stream_auto_routing",
    "data_stream_dataset",
    "data_stream_namespace",
    "data_stream_sync_fields",
    "data_stream_type",
];
/// Options that contradict data streams, whose documents are only created.
const CONTRADICTIONS: [&str; 5] = ["doc_as_upsert", "index", "upsert", "version", "version_type"];

/// The data stream of an output, and its use of the field `data_stream`.
#[derive(Debug)]
pub(super) struct DataStreamTarget {
    /// Members of the field, with the values of the options.
    parts: [(&'static str, String); 3],
    /// `true`: the members of an event's field come before the options.
    is_routed: bool,
    /// `true`: documents have the field, as their stream is named.
    is_synced: bool,
    field: Option<FieldReference>,
}

impl DataStreamTarget {
    /// Takes the options of data streams; `None` without `data_stream => true`.
    pub(super) fn take(options: &mut Options) -> Option<Self> {
        if options.one_of("data_stream", &["true", "false", "auto"]) != Some("true") {
            for name in OPTIONS {
                if let Some((at, _)) = options.take(name) {
                    options.fault(at, format!("option [{name}] needs [data_stream => true]"));
                }
            }
            return None;
        }
        for name in CONTRADICTIONS {
            if let Some((at, _)) = options.take(name) {
                let instead = "give [data_stream_dataset] and the like";
                options
                    .fault(at, format!("option [{name}] does not go with [data_stream => true]: {instead}"));
            }
        }
        let kind = options.one_of("data_stream_type", &TYPES).unwrap_or("logs").to_owned();
        let dataset = take_part(options, "data_stream_dataset", "generic");
        let namespace = take_part(options, "data_stream_namespace", "default");
        Some(Self {
            parts: [("type", kind), ("dataset", dataset), ("namespace", namespace)],
            is_routed: options.boolean("data_stream_auto_routing").unwrap_or(true),
            is_synced: options.boolean("data_stream_sync_fields").unwrap_or(true),
            field: FieldReference::parse(FIELD).ok(),
        })
    }

    /// Returns the names of the streams of all events, as a pattern.
    pub(super) fn pattern(&self) -> String {
        if self.is_routed { "*-*-*".to_owned() } else { self.name(None) }
    }

    /// Makes the name of a stream. Members of an event's field come first where they are texts or numbers.
    fn name(&self, given: Option<&Map<String, Value>>) -> String {
        let parts =
            self.parts.each_ref().map(|(member, part)| match given.and_then(|given| given.get(*member)) {
                Some(Value::String(text)) if !text.is_empty() => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => part.clone(),
            });
        parts.join("-")
    }

    /// Returns the name of the stream of an event, and the event with its field, where that is another than it was.
    pub(super) fn resolve(&self, event: &Event) -> (String, Option<Event>) {
        let given = self.field.as_ref().and_then(|field| event.get(field));
        let members = given.as_deref().and_then(Value::as_object);
        let name = self.name(members.filter(|_| self.is_routed));
        let is_wrong = |member: &str, part: &str| match members.and_then(|members| members.get(member)) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) if text.is_empty() => true,
            Some(value) => !self.is_routed && value != part,
        };
        if !self.is_synced || !self.parts.iter().any(|(member, part)| is_wrong(member, part)) {
            return (name, None);
        }
        let mut synced = members.cloned().unwrap_or_default();
        for (member, part) in &self.parts {
            if is_wrong(member, part) {
                synced.insert((*member).to_owned(), json!(part));
            }
        }
        let mut event = event.clone();
        event.fields_mut().insert(FIELD.to_owned(), Value::Object(synced));
        (name, Some(event))
    }
}

/// Takes a part of the name.
fn take_part(options: &mut Options, option: &'static str, default: &str) -> String {
    let Some(part) = options.text(option) else { return default.to_owned() };
    let is_allowed = |c: char| !c.is_uppercase() && !r#"\/*?"<>| ,#:"#.contains(c);
    if part.is_empty() || part.len() > MAX_PART || !part.chars().all(is_allowed) {
        options.fault_here(format!(
            "[{option}] is [{part}], not a part of a name in lower case of at most {MAX_PART} bytes"
        ));
    }
    part
}
