//! Conversions of columns, as Ruby's `CSV` has them. The filter and the codec `csv` share them.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use serde_json::{Number, Value};

use crate::event::time_format::{Zone, iso8601};
use crate::{Event, Options};

/// Formats of dates that Ruby's `CSV` converts.
const DATES: [&str; 6] = ["%Y-%m-%d", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y", "%A %B %d, %Y"];
/// Formats of times that Ruby's `CSV` converts.
const TIMES: [&str; 3] = ["%Y-%m-%d %H:%M:%S", "%b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %Y"];

/// Conversion of the texts of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvConversion {
    /// A whole number.
    Integer,
    /// A number.
    Float,
    /// A date, as an instant.
    Date,
    /// A time, as an instant.
    DateTime,
    /// `true` or `false`.
    Boolean,
}

impl CsvConversion {
    /// Takes the option `convert`: columns with their conversions.
    pub fn take(options: &mut Options) -> Vec<(String, Self)> {
        let mut conversions = Vec::new();
        for (column, kind) in options.hash("convert") {
            let kind = kind.as_text().unwrap_or_default();
            match Self::named(&kind) {
                Some(conversion) => conversions.push((column, conversion)),
                None => options.fault_here(format!(
                    "option [convert] of [csv]: [{kind}] is not one of [integer, float, date, date_time, boolean]"
                )),
            }
        }
        conversions
    }

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "integer" => Self::Integer,
            "float" => Self::Float,
            "date" => Self::Date,
            "date_time" => Self::DateTime,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// Converts a value; `None` leaves it as it is.
    pub fn apply(self, text: &str) -> Option<Value> {
        let trimmed = text.trim();
        match self {
            Self::Integer => {
                let digits = trimmed.replace('_', "");
                let hexadecimal =
                    digits.strip_prefix("0x").and_then(|digits| i64::from_str_radix(digits, 16).ok());
                hexadecimal.or_else(|| digits.parse().ok()).map(|number: i64| Value::Number(number.into()))
            }
            Self::Float => {
                let number: f64 = trimmed.replace('_', "").parse().ok()?;
                Number::from_f64(number).map(Value::Number)
            }
            Self::Date => {
                let date = DATES.iter().find_map(|format| NaiveDate::parse_from_str(trimmed, format).ok())?;
                // Ruby takes the midnight of the machine's zone.
                Zone::Local.instant(date.and_time(NaiveTime::MIN)).map(time)
            }
            Self::DateTime => {
                let parsed =
                    TIMES.iter().find_map(|format| NaiveDateTime::parse_from_str(trimmed, format).ok());
                parsed.map(|time| time.and_utc()).or_else(|| iso8601(trimmed, Zone::UTC)).map(time)
            }
            Self::Boolean => match trimmed.to_lowercase().as_str() {
                "true" => Some(Value::Bool(true)),
                "false" => Some(Value::Bool(false)),
                other => Some(Value::String(other.to_owned())),
            },
        }
    }
}

fn time(time: DateTime<Utc>) -> Value {
    Value::String(Event::new(time).timestamp_text())
}
