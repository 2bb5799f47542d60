//! Formats of keys and values.

use std::sync::Arc;

use millrace_mapping::DateFormat;
use millrace_matching::address::AddressText;
use millrace_search::fetch::decimal::DecimalFormat;
use millrace_time::Zone;
use millrace_work::error::Result;
use serde_json::{Number, Value, json};

use super::Key;

/// Format of an aggregation's keys and values.
#[derive(Clone, Debug, Default)]
pub enum Format {
    /// As JSON has them, without `key_as_string` and `value_as_string`.
    #[default]
    Raw,
    /// By a number pattern.
    Decimal(Arc<DecimalFormat>),
    /// Milliseconds, by a date format in a zone.
    Date(Arc<DateFormat>, Zone),
    /// `true` and `false`.
    Boolean,
    /// Addresses.
    Ip,
}

impl Format {
    /// Makes the format of a number pattern; raw where there is none.
    ///
    /// # Errors
    /// A pattern that is none.
    pub(crate) fn decimal(pattern: Option<&str>) -> Result<Self> {
        match pattern {
            None => Ok(Self::Raw),
            Some(pattern) => Ok(Self::Decimal(Arc::new(DecimalFormat::parse(pattern)?))),
        }
    }

    /// Returns whether keys and values are not written a second time as text.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(self, Self::Raw)
    }

    /// Writes a number.
    pub fn text(&self, number: f64) -> String {
        match self {
            Self::Raw | Self::Ip => java_double(number),
            Self::Decimal(pattern) => pattern.write(number),
            Self::Date(..) if number.is_nan() => "NaN".to_owned(),
            Self::Date(..) => self.long_text(number as i64),
            Self::Boolean => (number != 0.0).to_string(),
        }
    }

    /// Writes a whole number.
    pub(crate) fn long_text(&self, number: i64) -> String {
        match self {
            Self::Raw | Self::Ip => number.to_string(),
            Self::Decimal(pattern) => pattern.write(number as f64),
            Self::Date(format, zone) => {
                let nanos = i128::from(number) * 1_000_000;
                if *zone == Zone::UTC {
                    return format.format_nanos(nanos);
                }
                format.format_nanos_at(nanos, zone.offset_seconds(number), &zone.name())
            }
            Self::Boolean => (number != 0).to_string(),
        }
    }

    /// Writes a key as text.
    pub(crate) fn key_text(&self, key: &Key) -> String {
        match key {
            Key::Null => "null".to_owned(),
            Key::Long(number) => self.long_text(*number),
            Key::Unsigned(number) => match self {
                Self::Decimal(pattern) => pattern.write(*number as f64),
                _ => number.to_string(),
            },
            Key::Double(number) => self.text(*number),
            Key::Text(text) => text.to_string(),
            Key::Ip(bytes) => AddressText::new(*bytes).to_string(),
            Key::List(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| self.key_text(key)).collect();
                keys.join("|")
            }
        }
    }

    /// Writes a part of a key: a number where nothing says how it is written, else its text.
    pub(super) fn part(&self, key: &Key) -> Value {
        match (self, key) {
            (_, Key::Null) => Value::Null,
            (Self::Boolean, Key::Long(number)) => json!(*number != 0),
            (Self::Raw, _) => plain(key),
            _ => json!(self.key_text(key)),
        }
    }
}

/// Makes JSON of a key.
pub(super) fn plain(key: &Key) -> Value {
    match key {
        Key::Null => Value::Null,
        Key::Long(number) => json!(number),
        Key::Unsigned(number) => json!(number),
        Key::Double(number) => double(*number),
        Key::Text(text) => json!(&**text),
        Key::Ip(bytes) => json!(&*AddressText::new(*bytes)),
        Key::List(keys) => keys.iter().map(plain).collect(),
    }
}

/// Makes JSON of a number; a number that JSON lacks becomes a text.
pub(super) fn double(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| json!(java_double(number)), Value::Number)
}

/// Writes a number as `Double.toString` does.
pub(crate) fn java_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let size = number.abs();
    if number == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{number:?}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => format!("{mantissa}E{exponent}"),
        Some((mantissa, exponent)) => format!("{mantissa}.0E{exponent}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_java_writes_them() {
        let cases = [
            (1.0, "1.0"),
            (-0.5, "-0.5"),
            (1e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
            (0.001, "0.001"),
            (0.000_12, "1.2E-4"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (number, expected) in cases {
            assert_eq!(java_double(number), expected);
        }
    }
}
