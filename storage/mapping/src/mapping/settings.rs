//! The index settings that mappings obey: limits, defaults, and what happens beyond them.

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

/// Deepest object nesting whatever `index.mapping.depth.limit` says: parsing recurses once a level.
const MAX_DEPTH: usize = 100;

/// Mapping settings of an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// `index.mapping.total_fields.limit`: leaves, multi-fields, objects and aliases.
    pub(crate) total_fields: usize,
    /// `index.mapping.depth.limit`.
    pub(crate) depth: usize,
    /// `index.mapping.nested_fields.limit`: mapped nested objects.
    pub(crate) nested_fields: usize,
    /// `index.mapping.nested_objects.limit`: nested objects of one document.
    pub(crate) nested_objects: usize,
    /// `index.mapping.field_name_length.limit`.
    pub(crate) field_name_length: usize,
    /// `index.mapping.ignore_malformed`.
    pub(crate) ignore_malformed: bool,
    /// `index.mapping.coerce`.
    pub(crate) coerce: bool,
    /// `index.mapping.overflow: store`.
    pub(crate) overflow: bool,
    /// `true` if `index.sort.field` names any: rows of such an index have no nested objects.
    pub(crate) sorted: bool,
    /// `index.data_stream.timestamp_field`: each document has one value of it.
    pub(crate) timestamp_field: Option<String>,
    /// `true` if `index.analysis` defines an analyzer called `default`.
    pub(crate) default_analyzer: bool,
    /// `true` if it defines one called `default_search`.
    pub(crate) default_search_analyzer: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            total_fields: 1000,
            depth: 20,
            nested_fields: 50,
            nested_objects: 10_000,
            field_name_length: 50_000,
            ignore_malformed: false,
            coerce: true,
            overflow: false,
            sorted: false,
            timestamp_field: None,
            default_analyzer: false,
            default_search_analyzer: false,
        }
    }
}

impl Settings {
    /// Reads flattened settings; values are strings, numbers or booleans.
    pub(crate) fn read(settings: &Map<String, Value>) -> Result<Self> {
        let defaults = Self::default();
        let limit = |key: &str, default: usize| -> Result<usize> {
            let Some(value) = settings.get(key) else { return Ok(default) };
            let text = text_of(value);
            text.parse::<u64>().map(|n| usize::try_from(n).unwrap_or(usize::MAX)).map_err(|_| {
                Error::IllegalArgument(format!("Failed to parse value [{text}] for setting [{key}]"))
            })
        };
        let flag = |key: &str, default: bool| -> Result<bool> {
            let Some(value) = settings.get(key) else { return Ok(default) };
            match text_of(value).as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                other => Err(Error::IllegalArgument(format!(
                    "Failed to parse value [{other}] as only [true] or [false] are allowed."
                ))),
            }
        };
        let overflow = match settings.get("index.mapping.overflow").map(text_of).as_deref() {
            None | Some("refuse" | "error") => false,
            Some("store") => true,
            Some(other) => {
                return Err(Error::IllegalArgument(format!(
                    "Failed to parse value [{other}] for setting [index.mapping.overflow] as only [refuse] or [store] are allowed."
                )));
            }
        };
        let defines = |name: &str| {
            let prefix = format!("index.analysis.analyzer.{name}.");
            settings.keys().any(|key| key.starts_with(&prefix))
        };
        Ok(Self {
            total_fields: limit("index.mapping.total_fields.limit", defaults.total_fields)?,
            depth: limit("index.mapping.depth.limit", defaults.depth)?.min(MAX_DEPTH),
            nested_fields: limit("index.mapping.nested_fields.limit", defaults.nested_fields)?,
            nested_objects: limit("index.mapping.nested_objects.limit", defaults.nested_objects)?,
            field_name_length: limit("index.mapping.field_name_length.limit", defaults.field_name_length)?,
            ignore_malformed: flag("index.mapping.ignore_malformed", false)?,
            coerce: flag("index.mapping.coerce", true)?,
            overflow,
            sorted: settings.get("index.sort.field").is_some_and(|fields| match fields {
                Value::Array(fields) => !fields.is_empty(),
                Value::String(fields) => fields.split(',').any(|field| !field.trim().is_empty()),
                _ => false,
            }),
            timestamp_field: settings.get("index.data_stream.timestamp_field").map(text_of),
            default_analyzer: defines("default"),
            default_search_analyzer: defines("default_search"),
        })
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
