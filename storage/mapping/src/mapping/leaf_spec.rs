//! A leaf of a mapping body: its parameters, checked by type, and its multi-fields.

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::coerce::{self, Token};
use super::date::DateFormat;
use super::spec::{Context, DEFAULT_DATE_FORMAT, LeafSpec, parsing};
use super::{AsYouType, Contexts, FieldType, RangeType, geo, java, params};

/// Parses what a body says of one leaf.
pub(super) fn parse_leaf(
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
        // Elasticsearch takes the value of the first document. Until a value is given, the field holds any: nothing is refused
        // or lost by it.
        leaf.field_type = FieldType::Keyword;
    }
    check_special(name, &mut leaf)?;
    check_analysis(name, &leaf, context)?;
    if let Some(locale) = leaf.params.get("locale").and_then(Value::as_str)
        && !matches!(locale.to_ascii_lowercase().as_str(), "en" | "en_us" | "en-us" | "root" | "")
    {
        return Err(Error::IllegalArgument(format!(
            "locale [{locale}] of field [{name}] is not supported: names of months and days are English"
        )));
    }
    check_null_value(name, &leaf)?;
    Ok(leaf)
}

/// Checks what is special about a type.
fn check_special(name: &str, leaf: &mut LeafSpec) -> Result<()> {
    let number = |key: &str, default: i64| leaf.params.get(key).and_then(Value::as_i64).unwrap_or(default);
    match leaf.field_type {
        FieldType::SearchAsYouType(_) => {
            let size = number("max_shingle_size", 3);
            let max = u8::try_from(size).ok().filter(|size| (2..=4).contains(size)).ok_or_else(|| {
                parsing(format!("[max_shingle_size] must be at least [2] and at most [4], got [{size}]"))
            })?;
            if leaf.params.remove("doc_values") == Some(Value::Bool(true)) {
                return Err(parsing("Cannot set [doc_values] on field of type [search_as_you_type]"));
            }
            leaf.field_type = FieldType::SearchAsYouType(AsYouType::Whole { max });
        }
        FieldType::Range(range_type)
            if range_type != RangeType::Date && leaf.params.contains_key("format") =>
        {
            return Err(Error::IllegalArgument(format!(
                "field [{name}] of type [range] should not define a dateTimeFormatter unless it is a DATE type"
            )));
        }
        FieldType::TokenCount if !leaf.params.contains_key("analyzer") => {
            return Err(parsing(format!("Analyzer must be set for field [{name}] but wasn't.")));
        }
        FieldType::Completion => {
            let length = number("max_input_length", 50);
            if length == 0 {
                return Err(Error::IllegalArgument(format!(
                    "[max_input_length] must be > 0 but was [{length}]"
                )));
            }
            if let Some(contexts) = leaf.params.get("contexts") {
                let contexts = Contexts::parse(contexts)?.to_json();
                leaf.params.insert("contexts".to_owned(), contexts);
            }
        }
        _ => {}
    }
    Ok(())
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
pub(super) fn date_format(params: &Map<String, Value>) -> Result<DateFormat> {
    let text = params.get("format").and_then(Value::as_str).unwrap_or(DEFAULT_DATE_FORMAT);
    DateFormat::parse(text).map_err(Error::IllegalArgument)
}

/// Checks that a `null_value` is a value of the field's type, and a `format` a format.
fn check_null_value(name: &str, leaf: &LeafSpec) -> Result<()> {
    let format = match leaf.field_type {
        ref dates if dates.has_date_format() => {
            for key in ["format", "print_format"] {
                if let Some(text) = leaf.params.get(key).and_then(Value::as_str) {
                    DateFormat::parse(text).map_err(|reason| {
                        parsing(format!("Error parsing [{key}] on field [{name}]: {reason}"))
                    })?;
                }
            }
            Some(date_format(&leaf.params)?)
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
        FieldType::Byte | FieldType::Short | FieldType::Integer | FieldType::Long | FieldType::TokenCount => {
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
pub(crate) fn geo_value(value: &Value) -> std::result::Result<[f64; 2], coerce::Cause> {
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
