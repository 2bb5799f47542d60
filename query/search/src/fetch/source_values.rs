//! Values of a field as a document's source has them, read the way the mapping reads them.

use std::net::IpAddr;

use millrace_dsl::fields::check_format;
use millrace_mapping::{DateFormat, Field, FieldType, Mapping, RangeType, Scalar, parse_ip_range};
use millrace_matching::order::number;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

/// Format of the values of a type with several forms.
#[derive(Clone, Debug)]
enum ValueFormat {
    Usual,
    Date(DateFormat),
    WellKnownText,
}

/// A field whose values are taken from sources.
#[derive(Clone, Debug)]
pub(crate) struct SourceField<'a> {
    mapping: &'a Mapping,
    field: &'a Field,
    /// Path of the values in the source: a multi-field has those of the field that it is of.
    path: Vec<String>,
    /// `true` if a place inside of a flat_object is meant.
    inside: bool,
    form: ValueFormat,
}

impl<'a> SourceField<'a> {
    /// Finds a field by its path; `None` where the index has none.
    ///
    /// # Errors
    /// A format that the type does not have.
    pub(crate) fn find(mapping: &'a Mapping, path: &str, format: Option<&str>) -> Result<Option<Self>> {
        let (field, inside) = match mapping.field(path) {
            Some(field) => (field, false),
            None => match mapping.flat_object(path) {
                Some((field, _)) => (field, true),
                None => return Ok(None),
            },
        };
        let own = if inside { path } else { source_path(mapping, &field.path) };
        let path = own.split('.').map(str::to_owned).collect();
        let form = form(mapping, field, format)?;
        Ok(Some(Self { mapping, field, path, inside, form }))
    }

    /// Returns the field.
    pub(crate) fn field(&self) -> &'a Field {
        self.field
    }

    /// Returns whether the field is stored beside the source.
    pub(crate) fn is_stored(&self) -> bool {
        self.field.params.get("store").is_some_and(|store| *store == true || *store == "true")
    }

    /// Returns whether a document's value was malformed, by the fields that it ignored. Strings are ignored for their length,
    /// which leaves the others.
    pub(crate) fn was_malformed(&self, ignored: &[String]) -> bool {
        let string =
            matches!(self.field.field_type, FieldType::Keyword | FieldType::Wildcard | FieldType::FlatObject);
        !string && ignored.iter().any(|ignored| *ignored == *self.field.path)
    }

    /// Lists the values in a source. What does not fit the type is left out.
    pub(crate) fn values(&self, source: &Value) -> Vec<Value> {
        let mut found = Vec::new();
        if let ExtractedValue::Found(value) = extract(source, &self.path, self.null_value()) {
            if self.field.field_type == FieldType::GeoPoint && is_position(&value) {
                found.push(value);
            } else {
                flatten(value, self.field.field_type == FieldType::GeoPoint, &mut found);
            }
        }
        let mut values: Vec<Value> = found.iter().filter_map(|value| self.value(value)).collect();
        if self.field.field_type == FieldType::TokenCount {
            // Counts are shown as columns hold them.
            values.sort_by_key(Value::as_i64);
        }
        values
    }

    fn null_value(&self) -> Option<&Value> {
        self.field.params.get("null_value").filter(|_| !self.inside)
    }

    fn value(&self, value: &Value) -> Option<Value> {
        self.value_of(&self.field.field_type, value)
    }

    /// Returns a value as one of a type, which is the field's or that of the ends of its ranges.
    fn value_of(&self, field_type: &FieldType, value: &Value) -> Option<Value> {
        if value.is_null() {
            return None;
        }
        let field = self.field;
        match field_type {
            FieldType::Text
            | FieldType::MatchOnlyText
            | FieldType::SearchAsYouType(_)
            | FieldType::Binary => Some(Value::String(text(value))),
            FieldType::ConstantKeyword => field.params.get("value").cloned(),
            FieldType::TokenCount => {
                let positions = field.params.get("enable_position_increments") != Some(&Value::Bool(false));
                let analyzer = self.mapping.analyzers().get(&field.analyzer)?;
                Some(json!(analyzer.count(&text(value), positions)))
            }
            FieldType::RankFeature | FieldType::RankFeatures | FieldType::Completion => Some(value.clone()),
            FieldType::FlatObject if !self.inside => Some(Value::String(text(value))),
            FieldType::FlatObject => (!value.is_object()).then(|| Value::String(text(value))),
            FieldType::Keyword | FieldType::Wildcard => {
                let text = text(value);
                if field.ignores(&text) {
                    return None;
                }
                let normalized = field.normalizer.as_deref();
                let normalized = normalized.and_then(|name| self.mapping.analyzers().normalize(name, &text));
                Some(Value::String(normalized.unwrap_or(text)))
            }
            FieldType::Byte | FieldType::Short | FieldType::Integer | FieldType::Long => whole(value),
            FieldType::UnsignedLong => unsigned(value),
            FieldType::HalfFloat | FieldType::Float => Some(number(float(value)?, true)),
            FieldType::Double => Some(number(float(value)?, false)),
            FieldType::ScaledFloat { scaling_factor } => {
                let scaled = (float(value)? * scaling_factor + 0.5).floor();
                Some(number(scaled / scaling_factor, false))
            }
            FieldType::Boolean => match value {
                Value::Bool(flag) => Some(json!(flag)),
                Value::String(text) => match text.as_str() {
                    "true" => Some(json!(true)),
                    "false" | "" => Some(json!(false)),
                    _ => None,
                },
                _ => None,
            },
            FieldType::Date | FieldType::DateNanos => {
                let Ok(Scalar::I64(instant)) = self.mapping.parse_value(field, value, 0, false) else {
                    return None;
                };
                let ValueFormat::Date(format) = &self.form else { return None };
                Some(Value::String(format.format_nanos(nanos(field, instant))))
            }
            FieldType::Range(range_type) => match value {
                Value::Object(members) => {
                    let end_type = range_type.value_type();
                    let end = |(name, end): (&String, &Value)| {
                        (name.clone(), self.value_of(&end_type, end).unwrap_or(Value::Null))
                    };
                    Some(Value::Object(members.iter().map(end).collect()))
                }
                Value::String(block) if *range_type == RangeType::Ip => {
                    let (address, prefix) = block.split_once('/')?;
                    let address: IpAddr = address.parse().ok()?;
                    parse_ip_range(block).map(|_| json!(format!("{address}/{prefix}")))
                }
                _ => None,
            },
            FieldType::Ip => text(value).parse::<IpAddr>().ok().map(|ip| Value::String(ip.to_string())),
            FieldType::GeoPoint => {
                let Ok(Scalar::GeoPoint { lat, lon }) = self.mapping.parse_value(field, value, 0, false)
                else {
                    return None;
                };
                Some(match self.form {
                    ValueFormat::WellKnownText => json!(format!("POINT ({lon:?} {lat:?})")),
                    _ => json!({"coordinates": [lon, lat], "type": "Point"}),
                })
            }
        }
    }
}

/// Nanoseconds since the epoch of what a date column holds.
pub(super) fn nanos(field: &Field, value: i64) -> i128 {
    match field.field_type {
        FieldType::DateNanos => i128::from(value),
        _ => i128::from(value) * 1_000_000,
    }
}

/// Returns the format in which dates of a field are shown where the request says none.
pub(super) fn default_date_format(mapping: &Mapping, field: &Field) -> Result<DateFormat> {
    match mapping.date_format(field) {
        Some(format) => Ok(format.clone()),
        None => date_format("strict_date_optional_time"),
    }
}

/// Compiles a date format of a request.
pub(super) fn date_format(text: &str) -> Result<DateFormat> {
    DateFormat::parse(check_format(text)?).map_err(Error::IllegalArgument)
}

fn form(mapping: &Mapping, field: &Field, format: Option<&str>) -> Result<ValueFormat> {
    match (&field.field_type, format) {
        (dates, Some(format)) if dates.has_date_format() => date_format(format).map(ValueFormat::Date),
        (dates, None) if dates.has_date_format() => {
            default_date_format(mapping, field).map(ValueFormat::Date)
        }
        (_, None) => Ok(ValueFormat::Usual),
        (FieldType::GeoPoint, Some("geojson")) => Ok(ValueFormat::Usual),
        (FieldType::GeoPoint, Some("wkt")) => Ok(ValueFormat::WellKnownText),
        (FieldType::GeoPoint, Some(other)) => {
            Err(Error::IllegalArgument(format!("Unrecognized geometry format [{other}].")))
        }
        (FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_), Some(_)) => {
            Err(Error::IllegalArgument(format!("Field [{}] doesn't support formats.", field.path)))
        }
        (_, Some(_)) => Err(Error::IllegalArgument(format!(
            "Field [{}] of type [{}] doesn't support formats.",
            field.path,
            field.type_name()
        ))),
    }
}

/// The path in the source: the part in front of a multi-field's own name is a field, not an object.
fn source_path<'p>(mapping: &Mapping, path: &'p str) -> &'p str {
    match path.rsplit_once('.') {
        Some((parent, _)) if mapping.field(parent).is_some() => parent,
        _ => path,
    }
}

enum ExtractedValue {
    Found(Value),
    Missing,
}

/// Finds a path in a source, whose keys may be dotted; over lists, the values of all elements.
fn extract(value: &Value, path: &[String], null_value: Option<&Value>) -> ExtractedValue {
    let or_null_value = || match null_value {
        Some(value) => ExtractedValue::Found(value.clone()),
        None => ExtractedValue::Missing,
    };
    match value {
        Value::Array(items) => ExtractedValue::Found(Value::Array(
            items
                .iter()
                .filter_map(|item| match extract(item, path, null_value) {
                    ExtractedValue::Found(value) => Some(value),
                    ExtractedValue::Missing => None,
                })
                .collect(),
        )),
        Value::Null if path.is_empty() => or_null_value(),
        other if path.is_empty() => ExtractedValue::Found(other.clone()),
        Value::Object(members) => {
            let mut key = String::new();
            for (at, part) in path.iter().enumerate() {
                if at > 0 {
                    key.push('.');
                }
                key.push_str(part);
                match members.get(&key) {
                    None => {}
                    Some(Value::Null) => return or_null_value(),
                    Some(inner) => {
                        if let ExtractedValue::Found(value) = extract(inner, &path[at + 1..], null_value) {
                            return ExtractedValue::Found(value);
                        }
                    }
                }
            }
            ExtractedValue::Missing
        }
        _ => ExtractedValue::Missing,
    }
}

/// Returns whether a value is a point as an array of numbers.
fn is_position(value: &Value) -> bool {
    matches!(value, Value::Array(items) if items.len() >= 2 && items.iter().all(Value::is_number))
}

fn flatten(value: Value, positions: bool, found: &mut Vec<Value>) {
    match value {
        Value::Array(items) => {
            for item in items {
                if positions && is_position(&item) {
                    found.push(item);
                } else {
                    flatten(item, positions, found);
                }
            }
        }
        other => found.push(other),
    }
}

/// Renders a value as Java's `toString` does.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(key, value)| format!("{key}={}", text(value))).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn whole(value: &Value) -> Option<Value> {
    let exact = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    match exact {
        Some(exact) => Some(json!(exact)),
        None => Some(json!(float(value)?.trunc() as i64)),
    }
}

fn unsigned(value: &Value) -> Option<Value> {
    let exact = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    match exact {
        Some(exact) => Some(json!(exact)),
        None => Some(json!(float(value)?.trunc() as u64)),
    }
}
