//! Converting values to other types.

use millrace_ingest::event::text_of;
use millrace_ingest::number::integer;
use millrace_ingest::{Event, FieldReference};
use serde_json::Value;

/// A field and what it becomes.
#[derive(Debug)]
pub(super) struct Convert {
    field: FieldReference,
    to: TargetType,
}

#[derive(Clone, Copy, Debug)]
enum TargetType {
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
            "integer" => TargetType::Integer,
            "integer_eu" => TargetType::IntegerEu,
            "float" => TargetType::Float,
            "float_eu" => TargetType::FloatEu,
            "string" => TargetType::Text,
            "boolean" => TargetType::Boolean,
            other => {
                return Err(format!(
                    "[{field}] cannot be converted to [{other}]: integer, integer_eu, float, float_eu, string and boolean are known"
                ));
            }
        };
        Ok(Self { field, to })
    }

    /// # Errors
    /// The value is no number.
    pub(super) fn apply(&self, event: &mut Event) -> Result<(), String> {
        let converted = match event.get(&self.field).as_deref() {
            // Objects stay as they are.
            None | Some(Value::Null | Value::Object(_)) => return Ok(()),
            Some(Value::Array(elements)) => Value::Array(
                elements.iter().map(|element| self.to.convert(element)).collect::<Result<_, _>>()?,
            ),
            Some(value) => self.to.convert(value)?,
        };
        event.set(&self.field, converted)
    }
}

impl TargetType {
    fn convert(self, value: &Value) -> Result<Value, String> {
        Ok(match (self, value) {
            (_, Value::Null) => Value::Null,
            (Self::Text, value) => Value::String(text_of(value)),
            (Self::Boolean, value) => boolean(value).map_or_else(|| value.clone(), Value::Bool),
            (Self::Integer | Self::IntegerEu, Value::Bool(value)) => Value::from(u8::from(*value)),
            (Self::Integer | Self::IntegerEu, Value::Number(number)) => match number.as_f64() {
                Some(float) if number.is_f64() => whole(float),
                _ => value.clone(),
            },
            (Self::Integer | Self::IntegerEu, value) => self.integer(&self.plain(&text_of(value)))?,
            (Self::Float | Self::FloatEu, Value::Bool(value)) => Value::from(f64::from(u8::from(*value))),
            (Self::Float | Self::FloatEu, Value::Number(number)) => {
                Value::from(number.as_f64().unwrap_or_default())
            }
            (Self::Float | Self::FloatEu, value) => {
                let text = self.plain(&text_of(value));
                let number = hexadecimal(&text).map(|number| number as f64);
                let number = number.or_else(|| hexadecimal_float(&text)).or_else(|| decimal(&text));
                Value::from(number.ok_or_else(|| format!("[{text}] is no number"))?)
            }
        })
    }

    /// A whole number: in hexadecimal with `0x`, with an exponent, or the digits that a text begins with, 0 where
    /// it begins with none.
    fn integer(self, text: &str) -> Result<Value, String> {
        if let Some(number) = hexadecimal(text) {
            return Ok(Value::from(number));
        }
        if let Some(number) = hexadecimal_float(text) {
            return Ok(whole(number));
        }
        if let Some(number) = shifted(text) {
            return Ok(Value::from(number));
        }
        if text.contains('e') {
            return decimal(text).map(whole).ok_or_else(|| format!("[{text}] is no number"));
        }
        Ok(Value::Number(integer(text)))
    }

    /// A number as text without what separates thousands, and with a point before its fraction.
    fn plain(self, text: &str) -> String {
        let text = text.trim();
        match self {
            Self::IntegerEu | Self::FloatEu => text.replace('.', "").replace(',', "."),
            _ => text.replace(',', ""),
        }
    }
}

fn hexadecimal(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    let number = i64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with(['-', '+']))?;
    Some(if negative { -number } else { number })
}

/// Reads a number in hexadecimal with a fraction or a binary exponent, such as `0x1.edcdp6`.
fn hexadecimal_float(text: &str) -> Option<f64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    let (mantissa, exponent) = digits.split_once(['p', 'P']).unwrap_or((digits, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{before}{behind}");
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u64::from_str_radix(&digits, 16).ok()?;
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(behind.len()).ok()? * 4)?;
    let number = sign * number as f64 * 2.0_f64.powi(exponent);
    number.is_finite().then_some(number)
}

/// Reads a whole number with an exponent, such as `9.007199254740993e+15`, without rounding.
fn shifted(text: &str) -> Option<i64> {
    let (mantissa, exponent) = text.split_once('e')?;
    let exponent = exponent.strip_prefix('+').unwrap_or(exponent).parse::<usize>().ok()?;
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // Longer numbers have more than 64 bits.
    let zeros = exponent.checked_sub(behind.len()).filter(|zeros| *zeros <= 19)?;
    let has_digit = before.bytes().any(|byte| byte.is_ascii_digit());
    if !has_digit || !behind.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{before}{behind}{}", "0".repeat(zeros)).parse().ok()
}

/// A number that the whole text is; names such as `inf` are none.
fn decimal(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    text.bytes().any(|byte| byte.is_ascii_digit()).then_some(number)
}

fn whole(number: f64) -> Value {
    // Beyond 64 bits a number stays what it is.
    if number.abs() < 9.2e18 {
        Value::Number((number.trunc() as i64).into())
    } else {
        Value::from(number.trunc())
    }
}

/// Parses true and false; anything else is neither.
fn boolean(value: &Value) -> Option<bool> {
    match text_of(value).to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" | "1.0" => Some(true),
        "false" | "f" | "no" | "n" | "0" | "0.0" | "" => Some(false),
        _ => None,
    }
}
