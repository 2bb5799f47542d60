//! A mapping body, parsed: what a request asks for, before it meets the mapping that is there.
//!
//! [`RootSpec`] is made of a body (or, for single fields, of a dynamic template), checked as far as it
//! can be on its own. [`super::tree`] puts it into a mapping, giving numbers to new paths.

use std::sync::Arc;

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::date::DateFormat;
use super::leaf_spec::parse_leaf;
use super::template::Template;
use super::{FieldType, java};
use crate::analysis::Analyzers;

/// Deepest nesting of a body's objects, `fields` included.
const MAX_BODY_DEPTH: usize = 128;
/// Format of dates where a mapping names none.
pub(super) const DEFAULT_DATE_FORMAT: &str = "strict_date_optional_time||epoch_millis";

/// Treatment of fields that a mapping does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dynamic {
    True,
    False,
    Strict,
    /// Fields that a dynamic template makes are added; others refuse the document.
    StrictAllowTemplates,
}

impl Dynamic {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::False => "false",
            Self::Strict => "strict",
            Self::StrictAllowTemplates => "strict_allow_templates",
        }
    }
}

/// Options of a nested object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nested {
    pub(crate) include_in_parent: bool,
    pub(crate) include_in_root: bool,
}

/// Specification of one name in a body.
#[derive(Clone, Debug)]
pub(crate) enum Spec {
    Leaf(LeafSpec),
    Object(ObjectSpec),
    Alias(String),
}

impl Spec {
    /// Returns whether it is a leaf of a type.
    pub(crate) fn is_leaf_of(&self, field_type: &FieldType) -> bool {
        matches!(self, Self::Leaf(leaf) if leaf.field_type == *field_type)
    }
}

/// A leaf as asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeafSpec {
    pub(crate) field_type: FieldType,
    /// Parameters in their own form, defaults left out.
    pub(crate) params: Map<String, Value>,
    pub(crate) copy_to: Vec<Arc<str>>,
    /// Multi-fields by name.
    pub(crate) fields: Vec<(String, LeafSpec)>,
}

/// An object as asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectSpec {
    pub(crate) dynamic: Option<Dynamic>,
    pub(crate) enabled: Option<bool>,
    pub(crate) nested: Option<Nested>,
    pub(crate) properties: Vec<(String, Spec)>,
}

/// A whole body as asked for; `None` where it says nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootSpec {
    pub(crate) object: ObjectSpec,
    pub(crate) templates: Option<Vec<Template>>,
    pub(crate) date_detection: Option<bool>,
    pub(crate) numeric_detection: Option<bool>,
    pub(crate) date_formats: Option<Vec<DateFormat>>,
    pub(crate) source: Option<Map<String, Value>>,
    pub(crate) routing_required: Option<bool>,
    pub(crate) data_stream_timestamp: Option<bool>,
    pub(crate) meta: Option<Map<String, Value>>,
}

/// Context of parsing a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) analyzers: &'a dyn AnalyzerNames,
}

/// Names of the analyzers and normalizers of an index.
pub(crate) trait AnalyzerNames: std::fmt::Debug {
    fn has_analyzer(&self, name: &str) -> bool;
    fn has_normalizer(&self, name: &str) -> bool;
}

impl AnalyzerNames for Analyzers {
    fn has_analyzer(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    fn has_normalizer(&self, name: &str) -> bool {
        self.normalize(name, "").is_some()
    }
}

pub(super) fn parsing(reason: impl Into<String>) -> Error {
    Error::mapper_parsing(reason)
}

/// Parses a body.
pub(crate) fn parse_root(body: &Value, context: Context<'_>) -> Result<RootSpec> {
    let members = match body {
        Value::Object(members) => members,
        Value::Null => return Ok(RootSpec::default()),
        other => {
            return Err(parsing(format!("Expected map for mapping but got [{}]", java::to_string(other))));
        }
    };
    let mut root = RootSpec::default();
    let mut unknown: Vec<String> = Vec::new();
    for (key, value) in members {
        match key.as_str() {
            "dynamic_templates" => root.templates = Some(Template::parse_all(value)?),
            "date_detection" => root.date_detection = Some(flag(value)?),
            "numeric_detection" => root.numeric_detection = Some(flag(value)?),
            "dynamic_date_formats" | "date_formats" => root.date_formats = Some(date_formats(value)?),
            "_source" => root.source = Some(source_options(value)?),
            "_routing" => {
                root.routing_required = Some(metadata_flag("_routing", value, "required")?.unwrap_or(false));
            }
            "_data_stream_timestamp" => {
                root.data_stream_timestamp =
                    Some(metadata_flag("_data_stream_timestamp", value, "enabled")?.unwrap_or(false));
            }
            // Deprecated without effect since 7.0: the names of a row's fields are always indexed.
            "_field_names" => {
                metadata_flag("_field_names", value, "enabled")?;
            }
            "_meta" => {
                let Value::Object(meta) = value else {
                    return Err(parsing(format!(
                        "[_meta] must be an object, got [{}]",
                        java::to_string(value)
                    )));
                };
                root.meta = Some(meta.clone());
            }
            _ => {
                if !parse_object_member(key, value, &mut root.object, context, 1)? {
                    unknown.push(format!(" [{key} : {}]", java::to_string(value)));
                }
            }
        }
    }
    if !unknown.is_empty() {
        return Err(parsing(format!(
            "Root mapping definition has unsupported parameters: {}",
            unknown.concat()
        )));
    }
    Ok(root)
}

fn flag(value: &Value) -> Result<bool> {
    java::boolean(value).map_err(Error::IllegalArgument)
}

fn date_formats(value: &Value) -> Result<Vec<DateFormat>> {
    let one = |value: &Value| -> Result<DateFormat> {
        let text = java::to_string(value);
        if text.starts_with("epoch_") {
            return Err(parsing(format!("Epoch [{text}] is not supported as dynamic date format")));
        }
        DateFormat::parse(&text).map_err(Error::IllegalArgument)
    };
    match value {
        Value::Array(items) => items.iter().map(one).collect(),
        Value::String(text) if text == "none" => Ok(Vec::new()),
        other => Ok(vec![one(other)?]),
    }
}

fn metadata_flag(field: &str, value: &Value, key: &str) -> Result<Option<bool>> {
    let Value::Object(members) = value else {
        return Err(parsing(format!("[{field}] config must be an object")));
    };
    let mut result = None;
    let mut unknown = String::new();
    for (name, value) in members {
        if name == key {
            result = Some(flag(value)?);
        } else {
            unknown.push_str(&format!(" [{name} : {}]", java::to_string(value)));
        }
    }
    if unknown.is_empty() {
        Ok(result)
    } else {
        Err(parsing(format!("Mapping definition for [{field}] has unsupported parameters: {unknown}")))
    }
}

fn source_options(value: &Value) -> Result<Map<String, Value>> {
    let Value::Object(members) = value else {
        return Err(parsing("[_source] config must be an object"));
    };
    let mut options = Map::new();
    for (name, value) in members {
        match name.as_str() {
            "enabled" => {
                if !flag(value)? {
                    options.insert(name.clone(), Value::Bool(false));
                }
            }
            "includes" | "excludes" => {
                let patterns: Vec<Value> = match value {
                    Value::Array(items) => items.iter().map(|item| java::to_string(item).into()).collect(),
                    other => vec![java::to_string(other).into()],
                };
                if !patterns.is_empty() {
                    options.insert(name.clone(), Value::Array(patterns));
                }
            }
            _ => {
                return Err(parsing(format!(
                    "Mapping definition for [_source] has unsupported parameters:  [{name} : {}]",
                    java::to_string(value)
                )));
            }
        }
    }
    Ok(options)
}

/// Parses a member that every object may have; false where it is none.
fn parse_object_member(
    key: &str,
    value: &Value,
    object: &mut ObjectSpec,
    context: Context<'_>,
    depth: usize,
) -> Result<bool> {
    match key {
        "dynamic" => {
            object.dynamic = Some(match value {
                Value::String(text) if text.eq_ignore_ascii_case("strict") => Dynamic::Strict,
                Value::String(text) if text.eq_ignore_ascii_case("strict_allow_templates") => {
                    Dynamic::StrictAllowTemplates
                }
                other if flag(other)? => Dynamic::True,
                _ => Dynamic::False,
            });
        }
        "enabled" => object.enabled = Some(flag(value)?),
        "properties" => match value {
            Value::Array(items) if items.is_empty() => {}
            Value::Object(properties) => {
                for (name, body) in properties {
                    parse_property(name, body, object, context, depth)?;
                }
            }
            _ => {
                return Err(Error::MapperParsing {
                    reason: "properties must be a map type".to_owned(),
                    caused_by: Some((
                        "parse_exception".to_owned(),
                        "properties must be a map type".to_owned(),
                    )),
                });
            }
        },
        "include_in_all" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

fn parse_property(
    name: &str,
    body: &Value,
    parent: &mut ObjectSpec,
    context: Context<'_>,
    depth: usize,
) -> Result<()> {
    if depth > MAX_BODY_DEPTH {
        return Err(parsing(format!("mapping is nested deeper than {MAX_BODY_DEPTH} levels at [{name}]")));
    }
    let members = match body {
        Value::Object(members) => members,
        Value::Array(items) if items.is_empty() => return Ok(()),
        other => {
            return Err(parsing(format!(
                "Expected map for property [fields] on field [{name}] but got a {}",
                match other {
                    Value::String(_) => "class java.lang.String",
                    Value::Array(_) => "class java.util.ArrayList",
                    Value::Bool(_) => "class java.lang.Boolean",
                    _ => "class java.lang.Object",
                }
            )));
        }
    };
    let mut parts: Vec<&str> = name.split('.').collect();
    if parts.iter().any(|part| part.trim().is_empty()) {
        return Err(if name.is_empty() {
            Error::IllegalArgument("name cannot be empty string".to_owned())
        } else {
            parsing(format!("Invalid field name {name}"))
        });
    }
    let simple = parts.pop().unwrap_or(name);
    let spec = parse_field(simple, name, members, context, depth)?;
    insert(parent, &parts, simple, spec)
}

/// Puts a property under objects named by the dotted part of its name.
fn insert(parent: &mut ObjectSpec, path: &[&str], name: &str, spec: Spec) -> Result<()> {
    let Some((first, rest)) = path.split_first() else {
        parent.properties.push((name.to_owned(), spec));
        return Ok(());
    };
    let at = match parent.properties.iter().position(|(n, s)| n == first && matches!(s, Spec::Object(_))) {
        Some(at) => at,
        None => {
            parent.properties.push(((*first).to_owned(), Spec::Object(ObjectSpec::default())));
            parent.properties.len() - 1
        }
    };
    match &mut parent.properties[at].1 {
        Spec::Object(object) => insert(object, rest, name, spec),
        _ => Err(Error::Internal(format!("mapping of [{first}] is no object"))),
    }
}

/// Parses what a body says of one field, object or alias. `shown` is the name as the body has it.
pub(super) fn parse_field(
    name: &str,
    shown: &str,
    members: &Map<String, Value>,
    context: Context<'_>,
    depth: usize,
) -> Result<Spec> {
    let type_name = match members.get("type") {
        Some(Value::Null) | None => {
            if members.contains_key("properties") || (members.len() == 1 && members.contains_key("enabled")) {
                "object".to_owned()
            } else {
                return Err(parsing(format!("No type specified for field [{shown}]")));
            }
        }
        Some(value) => java::to_string(value),
    };
    match type_name.as_str() {
        "object" | "nested" => {
            parse_object(shown, members, type_name == "nested", context, depth).map(Spec::Object)
        }
        "alias" => {
            for (key, value) in members {
                if key != "type" && key != "path" {
                    return Err(parsing(format!(
                        "Mapping definition for [{shown}] has unsupported parameters:  [{key} : {}]",
                        java::to_string(value)
                    )));
                }
            }
            match members.get("path") {
                Some(Value::String(path)) if !path.is_empty() => Ok(Spec::Alias(path.clone())),
                _ => Err(parsing(format!("The [path] property must be specified for field [{name}]."))),
            }
        }
        _ => match FieldType::from_name(&type_name) {
            Some(field_type) => parse_leaf(name, field_type, members, context, false).map(Spec::Leaf),
            None => Err(parsing(format!("No handler for type [{type_name}] declared on field [{shown}]"))),
        },
    }
}

fn parse_object(
    name: &str,
    members: &Map<String, Value>,
    nested: bool,
    context: Context<'_>,
    depth: usize,
) -> Result<ObjectSpec> {
    let mut object = ObjectSpec { nested: nested.then(Nested::default), ..ObjectSpec::default() };
    let mut unknown = String::new();
    for (key, value) in members {
        match (key.as_str(), &mut object.nested) {
            ("type", _) => {}
            ("include_in_parent", Some(options)) => options.include_in_parent = flag(value)?,
            ("include_in_root", Some(options)) => options.include_in_root = flag(value)?,
            _ => {
                if !parse_object_member(key, value, &mut object, context, depth + 1)? {
                    unknown.push_str(&format!(" [{key} : {}]", java::to_string(value)));
                }
            }
        }
    }
    if unknown.is_empty() {
        Ok(object)
    } else {
        Err(parsing(format!("Mapping definition for [{name}] has unsupported parameters: {unknown}")))
    }
}
