//! Source of an aggregation's values: a field, with a value for documents without one, and the form of keys.

use millrace_time::Zone;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::zone::unknown;

/// The members that aggregations over values share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValuesSource {
    /// Field path.
    pub field: Option<String>,
    /// Value that documents without one are taken to have, a JSON scalar.
    pub missing: Option<Value>,
    /// Format of keys and values: a number pattern or a date format.
    pub format: Option<String>,
    /// Type that a field is taken to have where it is not mapped.
    pub value_type: Option<ValueType>,
    /// Time zone of dates, for rounding and writing.
    pub time_zone: Option<Zone>,
}

/// Types of `value_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ValueType {
    Boolean,
    Date,
    Double,
    Ip,
    Long,
    Numeric,
    String,
    UnsignedLong,
}

/// Shared members that an aggregation takes beside `field`, `missing` and `value_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedMembers {
    /// No others.
    Plain,
    /// `format`.
    Format,
    /// `format` and `time_zone`.
    FormatAndZone,
}

impl AcceptedMembers {
    /// Lists the members.
    pub(super) fn known(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["field", "missing", "script", "value_type"],
            Self::Format => &["field", "format", "missing", "script", "value_type"],
            Self::FormatAndZone => &["field", "format", "missing", "script", "time_zone", "value_type"],
        }
    }
}

impl ValuesSource {
    /// Takes one of the shared members; returns whether it is one.
    pub(super) fn take(
        &mut self,
        part: ErrorLabel<'_>,
        takes: AcceptedMembers,
        key: &str,
        value: &Value,
    ) -> Result<bool> {
        if !takes.known().contains(&key) {
            return Ok(false);
        }
        match key {
            "field" => self.field = Some(part.text(key, value)?),
            "missing" => {
                if value.is_null() {
                    return Err(part.refused(key, format!("[missing] must not be null: [{}]", part.name)));
                }
                self.missing = Some(part.scalar(key, value)?);
            }
            "format" => self.format = Some(part.text(key, value)?),
            "value_type" => {
                let text = part.text(key, value)?;
                let found = ValueType::parse(&text);
                self.value_type =
                    Some(found.ok_or_else(|| part.refused(key, format!("Unknown value type [{text}]")))?);
            }
            "time_zone" => self.time_zone = Some(zone(part, key, value)?),
            _ => return Err(part.script()),
        }
        Ok(true)
    }

    /// Parses an object that has shared members only.
    pub(super) fn parse_only(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut source = Self::default();
        for (key, value) in members {
            if !source.take(part, AcceptedMembers::Format, key, value)? {
                return Err(part.unknown(key, AcceptedMembers::Format.known()));
            }
        }
        source.required(part)
    }

    /// Checks that there is a field.
    pub(super) fn required(self, part: ErrorLabel<'_>) -> Result<Self> {
        if self.field.is_none() { Err(part.no_field()) } else { Ok(self) }
    }
}

impl ValueType {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            "double" | "float" => Self::Double,
            "ip" => Self::Ip,
            "long" | "integer" | "short" | "byte" => Self::Long,
            "numeric" | "number" => Self::Numeric,
            "string" => Self::String,
            "unsigned_long" => Self::UnsignedLong,
            _ => return None,
        })
    }
}

/// Reads a time zone: a text, or a number of hours.
pub(super) fn zone(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Zone> {
    match value {
        Value::String(text) => Zone::parse(text).ok_or_else(|| part.unread(key, unknown(text))),
        Value::Number(number) => match number.as_i64() {
            Some(hours @ -18..=18) => Ok(Zone::Fixed(hours as i32 * 3600)),
            _ => Err(part.unread(
                key,
                Error::Exception {
                    kind: "date_time_exception",
                    status: 500,
                    reason: format!(
                        "Zone offset hours not in valid range: value {number} is not in the range -18 to 18"
                    ),
                },
            )),
        },
        _ => Err(part.wrong_type(key, value)),
    }
}
