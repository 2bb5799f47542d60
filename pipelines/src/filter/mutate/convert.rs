//! Converting values to other types.

use millrace_ingest::event::text_of;
use millrace_ingest::{Event, FieldReference};
use serde_json::{Number, Value};

use crate::filter::number::{float, integer};

/// A field and what it becomes.
#[derive(Debug)]
pub(super) struct Convert {
    field: FieldReference,
    to: To,
}

#[derive(Clone, Copy, Debug)]
enum To {
    Integer,
    IntegerEu,
    Float,
    FloatEu,
    Text,
    Boolean,
}

impl Convert {
    pub(super) fn parse(field: FieldReference, to: &str) -> Result<Self, String> {
        let to = match to {
            "integer" => To::Integer,
            "integer_eu" => To::IntegerEu,
            "float" => To::Float,
            "float_eu" => To::FloatEu,
            "string" => To::Text,
            "boolean" => To::Boolean,
            other => {
                return Err(format!(
                    "[{field}] cannot be converted to [{other}]: integer, integer_eu, float, float_eu, string and boolean are known"
                ));
            }
        };
        Ok(Self { field, to })
    }

    pub(super) fn apply(&self, event: &mut Event) -> Result<(), String> {
        let converted = match event.get(&self.field).as_deref() {
            // Objects stay as they are.
            None | Some(Value::Null | Value::Object(_)) => return Ok(()),
            Some(Value::Array(elements)) => {
                Value::Array(elements.iter().map(|element| self.to.convert(element)).collect())
            }
            Some(value) => self.to.convert(value),
        };
        event.set(&self.field, converted)
    }
}

impl To {
    fn convert(self, value: &Value) -> Value {
        if value.is_null() {
            return Value::Null;
        }
        match self {
            Self::Text => Value::String(text_of(value)),
            Self::Boolean => boolean(value).map_or_else(|| value.clone(), Value::Bool),
            Self::Integer | Self::IntegerEu => match value {
                Value::Bool(value) => Value::Number(u8::from(*value).into()),
                Value::Number(number) if !number.is_f64() => value.clone(),
                Value::Number(number) => whole(number.as_f64().unwrap_or_default()),
                value => Value::Number(integer(&self.plain(&text_of(value)))),
            },
            Self::Float | Self::FloatEu => {
                let number = match value {
                    Value::Bool(value) => f64::from(u8::from(*value)),
                    Value::Number(number) => number.as_f64().unwrap_or_default(),
                    value => float(&self.plain(&text_of(value))),
                };
                Number::from_f64(number).map_or(Value::Null, Value::Number)
            }
        }
    }

    /// A number as text without what separates thousands, and with a point before its fraction.
    fn plain(self, text: &str) -> String {
        match self {
            Self::IntegerEu | Self::FloatEu => text.replace('.', "").replace(',', "."),
            _ => text.replace(',', ""),
        }
    }
}

fn whole(number: f64) -> Value {
    // Beyond 64 bits a number stays what it is.
    if number.abs() < 9.2e18 {
        Value::Number((number.trunc() as i64).into())
    } else {
        Value::from(number.trunc())
    }
}

/// What stands for true and false; anything else is neither.
fn boolean(value: &Value) -> Option<bool> {
    match text_of(value).to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" | "1.0" => Some(true),
        "false" | "f" | "no" | "n" | "0" | "0.0" | "" => Some(false),
        _ => None,
    }
}
