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

/// Options that keep an output from data streams, beside those that contradict them, where nothing says whether it is to use one.
const INDEX_OPTIONS: [&str; 18] = [
    "document_id",
    "document_type",
    "ilm_enabled",
    "ilm_pattern",
    "ilm_policy",
    "ilm_rollover_alias",
    "join_field",
    "legacy_template",
    "parent",
    "script",
    "script_lang",
    "script_type",
    "script_var_name",
    "scripted_upsert",
    "template",
    "template_api",
    "template_name",
    "template_overwrite",
];

/// Returns whether all options go with data streams.
pub(super) fn is_possible(options: &Options) -> bool {
    options.given().all(|(name, setting)| match name {
        "action" => setting.as_text().as_deref() == Some("create"),
        "manage_template" => setting.as_text().as_deref() == Some("false"),
        name => !INDEX_OPTIONS.contains(&name) && !CONTRADICTIONS.contains(&name),
    })
}

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
    /// Takes the options of data streams; `None` for an output that uses none. `is_preferred` decides where they do not.
    pub(super) fn take(options: &mut Options, is_preferred: bool) -> Option<Self> {
        let is_used = match options.one_of("data_stream", &["true", "false", "auto"]) {
            Some("true") => true,
            Some("false") => false,
            _ => is_preferred,
        };
        if !is_used {
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
        if self.is_routed {
            "*-*-*".to_owned()
        } else {
            self.parts.each_ref().map(|(_, part)| part.as_str()).join("-")
        }
    }

    /// Makes the name of a stream. Members of an event's field come first where they are texts or numbers.
    ///
    /// # Errors
    /// A member is no part of a name.
    fn name(&self, given: Option<&Map<String, Value>>) -> Result<String, String> {
        let mut name = String::new();
        for (member, part) in &self.parts {
            let own = match given.and_then(|given| given.get(*member)) {
                Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
                Some(Value::Number(number)) => Some(number.to_string()),
                _ => None,
            };
            if let Some(own) = &own {
                let is_part =
                    if *member == "type" { TYPES.contains(&own.as_str()) } else { is_part(own, false) };
                if !is_part {
                    let shown: String = own.chars().take(MAX_PART).collect();
                    return Err(format!(
                        "[{FIELD}][{member}] is [{shown}], no part of the name of a data stream"
                    ));
                }
            }
            if !name.is_empty() {
                name.push('-');
            }
            name.push_str(own.as_ref().unwrap_or(part));
        }
        Ok(name)
    }

    /// Returns the name of the stream of an event, and the event with its field, where that is another than it was.
    ///
    /// # Errors
    /// The event's field names no data stream.
    pub(super) fn resolve(&self, event: &Event) -> Result<(String, Option<Event>), String> {
        let given = self.field.as_ref().and_then(|field| event.get(field));
        let members = given.as_deref().and_then(Value::as_object);
        let name = self.name(members.filter(|_| self.is_routed))?;
        let is_wrong = |member: &str, part: &str| match members.and_then(|members| members.get(member)) {
            Some(value @ Value::String(text)) if !text.is_empty() => !self.is_routed && value != part,
            Some(Value::Number(_)) => !self.is_routed,
            _ => true,
        };
        if !self.is_synced || !self.parts.iter().any(|(member, part)| is_wrong(member, part)) {
            return Ok((name, None));
        }
        let mut synced = members.cloned().unwrap_or_default();
        for (member, part) in &self.parts {
            if is_wrong(member, part) {
                synced.insert((*member).to_owned(), json!(part));
            }
        }
        let mut event = event.clone();
        event.fields_mut().insert(FIELD.to_owned(), Value::Object(synced));
        Ok((name, Some(event)))
    }
}

/// Returns whether a text may be a dataset or a namespace.
fn is_part(text: &str, allows_dash: bool) -> bool {
    let is_allowed = |c: char| {
        !c.is_uppercase() && !c.is_control() && (allows_dash || c != '-') && !r#"\/*?"<>| ,#:"#.contains(c)
    };
    !text.is_empty() && text.len() <= MAX_PART && text.chars().all(is_allowed)
}

/// Takes a part of the name.
fn take_part(options: &mut Options, option: &'static str, default: &str) -> String {
    let Some(part) = options.text(option) else { return default.to_owned() };
    if !is_part(&part, true) {
        options.fault_here(format!(
            "[{option}] is [{part}], not a part of a name in lower case of at most {MAX_PART} bytes"
        ));
    }
    part
}

#[cfg(test)]
mod tests {
    use crate::Event;
    use crate::input::testing::{OptionValue, options};
    use crate::output::{Output, build};

    #[test]
    fn the_schema_chooses_data_streams_where_options_let_it() {
        let mut event = Event::new(chrono::DateTime::from_timestamp(1_700_000_000, 0).unwrap());
        event.set_text("message", "x");
        let ecs = ("ecs_compatibility", OptionValue::from("v8"));
        for (given, expected) in [
            (vec![], "logs-generic-default"),
            (vec![("data_stream", "auto".into()), ("pipeline", "p".into())], "logs-generic-default"),
            (vec![("data_stream_dataset", "nginx".into())], "logs-nginx-default"),
            (vec![("action", "create".into())], "logs-generic-default"),
            (vec![("action", "index".into())], "ecs-logstash-2023.11.14"),
            (vec![("data_stream", "false".into())], "ecs-logstash-2023.11.14"),
            (vec![("document_id", "1".into())], "ecs-logstash-2023.11.14"),
            (vec![("index", "a".into())], "a"),
        ] {
            let given = [given, vec![ecs.clone()]].concat();
            let Output::Local(local) = build(options("opensearch", &given)).unwrap() else { panic!() };
            let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
            assert_eq!(&*local.operation(&event, None).unwrap().op.index, expected, "{names:?}");
        }
    }
}
