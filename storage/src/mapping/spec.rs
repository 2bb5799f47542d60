//! A mapping body, parsed: what a request asks for, before it meets the mapping that is there.
//!
//! [`RootSpec`] is made of a body (or, for single fields, of a dynamic template), checked as far as it
//! can be on its own. [`super::tree`] puts it into a mapping, giving numbers to new paths.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::coerce::{self, Token};
use super::date::DateFormat;
use super::params;
use super::template::Template;
use super::{FieldType, geo, java};
use crate::analysis::Analyzers;
use crate::{Error, Result};

/// Deepest nesting of a body's objects, `fields` included.
const MAX_BODY_DEPTH: usize = 128;
/// Format of dates where a mapping names none.
pub(super) const DEFAULT_DATE_FORMAT: &str = "strict_date_optional_time||epoch_millis";
/// Format of date_nanos where a mapping names none.
const DEFAULT_NANOS_FORMAT: &str = "strict_date_optional_time_nanos||epoch_millis";

/// What happens to fields that a mapping does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dynamic {
    True,
    False,
    Strict,
}

impl Dynamic {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::False => "false",
            Self::Strict => "strict",
        }
    }
}

/// Options of a nested object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nested {
    pub(crate) include_in_parent: bool,
    pub(crate) include_in_root: bool,
}

/// What a body says of one name.
#[derive(Clone, Debug)]
pub(crate) enum Spec {
    Leaf(LeafSpec),
    Object(ObjectSpec),
    Alias(String),
}

impl Spec {
    /// Whether it is a leaf of a type.
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

/// What parsing a body needs to know of the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) analyzers: &'a dyn AnalyzerNames,
}

/// Which analyzers and normalizers an index has.
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

fn parsing(reason: impl Into<String>) -> Error {
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
            "dynamic_templates" => root.templates = Some(Template::parse_all(value, context)?),
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
                return Err(Error::IllegalArgument(format!(
                    "[{name}] of [_source] is not supported: the source is kept exactly as sent, filter it when reading"
                )));
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

fn parse_leaf(
    name: &str,
    mut field_type: FieldType,
    members: &Map<String, Value>,
    context: Context<'_>,
    multi_field: bool,
) -> Result<LeafSpec> {
    let type_name = field_type.name();
    let known = params::of(&field_type);
    let mut leaf = LeafSpec {
        field_type: field_type.clone(),
        params: Map::new(),
        copy_to: Vec::new(),
        fields: Vec::new(),
    };
    for (key, value) in members {
        match key.as_str() {
            "type" => continue,
            "fields" => {
                leaf.fields = parse_multi_fields(name, value, context, multi_field)?;
                continue;
            }
            "copy_to" => {
                if multi_field {
                    return Err(parsing(format!(
                        "copy_to in multi fields is not allowed. Found the copy_to in field [{name}] which is within a multi field."
                    )));
                }
                leaf.copy_to = match value {
                    Value::Array(items) => items.iter().map(|item| java::to_string(item).into()).collect(),
                    other => vec![java::to_string(other).into()],
                };
                continue;
            }
            _ => {}
        }
        let Some(param) = known.iter().find(|param| param.name == key) else {
            return Err(parsing(format!(
                "unknown parameter [{key}] on mapper [{name}] of type [{type_name}]"
            )));
        };
        if value.is_null() {
            if key == "null_value" {
                continue;
            }
            return Err(parsing(format!(
                "[{key}] on mapper [{name}] of type [{type_name}] must not have a [null] value"
            )));
        }
        if key == "meta" {
            check_meta(name, value)?;
        }
        match param.normalise(value) {
            Ok(Some(value)) => {
                leaf.params.insert(key.clone(), value);
            }
            Ok(None) => {}
            Err(reason) if key == "similarity" => {
                return Err(parsing(format!("{reason} for field [{name}]")));
            }
            Err(reason) => return Err(parsing(reason)),
        }
    }
    if let FieldType::ScaledFloat { .. } = field_type {
        let factor = leaf.params.get("scaling_factor").and_then(Value::as_f64);
        let factor = match factor {
            Some(factor) if factor > 0.0 => factor,
            Some(factor) => {
                return Err(Error::IllegalArgument(format!(
                    "[scaling_factor] must be a positive number, got [{factor:?}]"
                )));
            }
            None => return Err(Error::IllegalArgument("Field [scaling_factor] is required".to_owned())),
        };
        field_type = FieldType::ScaledFloat { scaling_factor: factor };
        leaf.field_type = field_type.clone();
    }
    if field_type == FieldType::ConstantKeyword && !leaf.params.contains_key("value") {
        return Err(Error::MapperParsing {
            reason: format!("Field [{name}] is missing required parameter [value]"),
            caused_by: None,
        });
    }
    check_analysis(name, &leaf, context)?;
    if let Some(locale) = leaf.params.get("locale").and_then(Value::as_str) {
        if !matches!(locale.to_ascii_lowercase().as_str(), "en" | "en_us" | "en-us" | "root" | "") {
            return Err(Error::IllegalArgument(format!(
                "locale [{locale}] of field [{name}] is not supported: names of months and days are English"
            )));
        }
    }
    check_null_value(name, &leaf)?;
    Ok(leaf)
}

fn parse_multi_fields(
    name: &str,
    value: &Value,
    context: Context<'_>,
    multi_field: bool,
) -> Result<Vec<(String, LeafSpec)>> {
    if multi_field {
        return Err(parsing(format!(
            "Encountered a multi-field [{name}] which itself contains a multi-field. Defining chained multi-fields is not supported."
        )));
    }
    let members = match value {
        Value::Object(members) => members,
        Value::Array(items) if items.is_empty() => return Ok(Vec::new()),
        _ => return Err(parsing("expected map for property [fields]")),
    };
    let mut fields = Vec::with_capacity(members.len());
    for (sub, body) in members {
        if sub.contains('.') {
            return Err(parsing(format!(
                "Field name [{sub}] which is a multi field of [{name}] cannot contain '.'"
            )));
        }
        let Value::Object(body) = body else {
            return Err(parsing(format!(
                "illegal field [{sub}], only fields can be specified inside fields"
            )));
        };
        let Some(type_name) = body.get("type").map(java::to_string) else {
            return Err(parsing(format!("no type specified for property [{sub}]")));
        };
        if matches!(type_name.as_str(), "object" | "nested" | "alias") {
            return Err(parsing(format!("Type [{type_name}] cannot be used in multi field")));
        }
        let field_type = FieldType::from_name(&type_name)
            .ok_or_else(|| parsing(format!("no handler for type [{type_name}] declared on field [{sub}]")))?;
        if field_type == FieldType::FlatObject {
            return Err(parsing(format!("Type [{type_name}] cannot be used in multi field")));
        }
        fields.push((sub.clone(), parse_leaf(sub, field_type, body, context, true)?));
    }
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(fields)
}

fn check_meta(name: &str, value: &Value) -> Result<()> {
    let Value::Object(meta) = value else {
        return Err(parsing(format!(
            "[meta] must be an object, got [{}] for field [{name}]",
            java::to_string(value)
        )));
    };
    if meta.len() > 5 {
        return Err(parsing(format!(
            "[meta] can't have more than 5 entries, but got {} on field [{name}]",
            meta.len()
        )));
    }
    for (key, value) in meta {
        if key.chars().count() > 20 {
            return Err(parsing(format!(
                "[meta] keys can't be longer than 20 chars, but got [{key}] for field [{name}]"
            )));
        }
        match value {
            Value::String(text) if text.chars().count() <= 50 => {}
            Value::String(text) => {
                return Err(parsing(format!(
                    "[meta] values can't be longer than 50 chars, but got [{text}] for field [{name}]"
                )));
            }
            other => {
                return Err(parsing(format!(
                    "[meta] values can only be strings, but got [{}] for field [{name}]",
                    java::to_string(other)
                )));
            }
        }
    }
    Ok(())
}

fn check_analysis(name: &str, leaf: &LeafSpec, context: Context<'_>) -> Result<()> {
    for key in ["analyzer", "search_analyzer", "search_quote_analyzer"] {
        if let Some(analyzer) = leaf.params.get(key).and_then(Value::as_str)
            && !matches!(analyzer, "standard" | "default")
            && !context.analyzers.has_analyzer(analyzer)
        {
            return Err(parsing(format!("analyzer [{analyzer}] has not been configured in mappings")));
        }
    }
    if let Some(normalizer) = leaf.params.get("normalizer").and_then(Value::as_str)
        && !context.analyzers.has_normalizer(normalizer)
    {
        return Err(parsing(format!("normalizer [{normalizer}] not found for field [{name}]")));
    }
    Ok(())
}

/// The format of a date field's parameters.
pub(super) fn date_format(
    field_type: &FieldType,
    params: &serde_json::Map<String, Value>,
) -> Result<DateFormat> {
    let text = params.get("format").and_then(Value::as_str).unwrap_or(match field_type {
        FieldType::DateNanos => DEFAULT_NANOS_FORMAT,
        _ => DEFAULT_DATE_FORMAT,
    });
    DateFormat::parse(text).map_err(Error::IllegalArgument)
}

/// Checks that a `null_value` is a value of the field's type, and a `format` a format.
fn check_null_value(name: &str, leaf: &LeafSpec) -> Result<()> {
    let format = match leaf.field_type {
        FieldType::Date | FieldType::DateNanos => {
            for key in ["format", "print_format"] {
                if let Some(text) = leaf.params.get(key).and_then(Value::as_str) {
                    DateFormat::parse(text).map_err(|reason| {
                        parsing(format!("Error parsing [{key}] on field [{name}]: {reason}"))
                    })?;
                }
            }
            Some(date_format(&leaf.field_type, &leaf.params)?)
        }
        _ => None,
    };
    let Some(value) = leaf.params.get("null_value") else { return Ok(()) };
    let text = java::to_string(value);
    let token = match value {
        Value::Bool(flag) => Token::Bool(*flag),
        Value::Number(_) => Token::Number(&text),
        _ => Token::Str(&text),
    };
    let checked = match &leaf.field_type {
        FieldType::Byte | FieldType::Short | FieldType::Integer | FieldType::Long => {
            coerce::integer(&leaf.field_type, token, true).map(|_| ())
        }
        FieldType::UnsignedLong => coerce::unsigned_long(token, true).map(|_| ()),
        FieldType::HalfFloat | FieldType::Float | FieldType::Double | FieldType::ScaledFloat { .. } => {
            coerce::float(&leaf.field_type, token, true).map(|_| ())
        }
        FieldType::Boolean => coerce::boolean(token).map(|_| ()),
        FieldType::Ip => coerce::ip(&text).map(|_| ()),
        FieldType::GeoPoint => geo_value(value).map(|_| ()),
        FieldType::Date | FieldType::DateNanos => match &format {
            Some(format) => coerce::date(&leaf.field_type, token, format).map(|_| ()),
            None => Ok(()),
        },
        _ => Ok(()),
    };
    checked
        .map_err(|cause| parsing(format!("Error parsing [null_value] on field [{name}]: {}", cause.reason)))
}

/// Reads a geo_point of a mapping body: an object, an array or a string.
pub(super) fn geo_value(value: &Value) -> std::result::Result<[f64; 2], coerce::Cause> {
    let bad = || coerce::Cause::new("parse_exception", "geo_point expected");
    match value {
        Value::String(text) => geo::parse(text),
        Value::Array(items) => match items.as_slice() {
            [lon, lat] | [lon, lat, _] => Ok([lat.as_f64().ok_or_else(bad)?, lon.as_f64().ok_or_else(bad)?]),
            _ => Err(bad()),
        },
        Value::Object(members) => {
            let number = |key: &str| members.get(key).and_then(Value::as_f64).ok_or_else(bad);
            Ok([number("lat")?, number("lon")?])
        }
        _ => Err(bad()),
    }
}
