//! `csv`: takes a row of separated values apart.

use std::sync::Arc;

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use millrace_ingest::csv::CsvDialect;
use millrace_ingest::event::time_format::{Zone, iso8601};
use millrace_ingest::{Event, Fault, FieldReference, Options};
use parking_lot::Mutex;
use serde_json::{Number, Value};

use super::settings::field_or;
use super::{Filter, Outcome};

/// Tag of events whose row is malformed.
const FAILURE: &str = "_csvparsefailure";
/// Tag of events whose row is empty.
const EMPTY: &str = "_csvskippedemptyfield";
/// Most names of columns that `autodetect_column_names` keeps.
const MAX_COLUMNS: usize = 10_000;
/// Formats of dates that Ruby's `CSV` converts.
const DATES: [&str; 6] = ["%Y-%m-%d", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y", "%A %B %d, %Y"];
/// Formats of times that Ruby's `CSV` converts.
const TIMES: [&str; 3] = ["%Y-%m-%d %H:%M:%S", "%b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %Y"];

#[derive(Debug)]
struct Csv {
    dialect: CsvDialect,
    source: FieldReference,
    /// Reference of the target in brackets, empty without one.
    target: String,
    columns: Vec<String>,
    /// Columns of the first row, where they are to be detected.
    detected: Option<Mutex<Arc<[String]>>>,
    conversions: Vec<(String, Conversion)>,
    autogenerate: bool,
    skip_header: bool,
    skip_empty_columns: bool,
    skip_empty_rows: bool,
}

#[derive(Clone, Copy, Debug)]
enum Conversion {
    Integer,
    Float,
    Date,
    DateTime,
    Boolean,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let _ = options.ecs_compatibility();
    let dialect = CsvDialect::take(&mut options);
    let source = field_or(&mut options, "source", "message");
    let target = options.field("target").map(|target| bracketed(&target.to_string())).unwrap_or_default();
    let columns = options.texts("columns");
    for column in columns.iter().filter(|column| !column.is_empty()) {
        if let Err(fault) = FieldReference::parse(&format!("{target}{}", bracketed(column))) {
            options.fault_here(fault);
        }
    }
    let mut conversions = Vec::new();
    for (column, kind) in options.hash("convert") {
        let kind = kind.as_text().unwrap_or_default();
        match Conversion::named(&kind) {
            Some(conversion) => conversions.push((column, conversion)),
            None => options.fault_here(format!(
                "option [convert] of [csv]: [{kind}] is not one of [integer, float, date, date_time, boolean]"
            )),
        }
    }
    let detect = options.boolean("autodetect_column_names").unwrap_or(false) && columns.is_empty();
    let csv = Csv {
        dialect,
        source,
        target,
        columns,
        detected: detect.then(Mutex::default),
        conversions,
        autogenerate: options.boolean("autogenerate_column_names").unwrap_or(true),
        skip_header: options.boolean("skip_header").unwrap_or(false),
        skip_empty_columns: options.boolean("skip_empty_columns").unwrap_or(false),
        skip_empty_rows: options.boolean("skip_empty_rows").unwrap_or(false),
    };
    options.finish()?;
    Ok(Arc::new(csv))
}

fn bracketed(name: &str) -> String {
    if name.starts_with('[') { name.to_owned() } else { format!("[{name}]") }
}

impl Conversion {
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
    fn apply(self, text: &str) -> Option<Value> {
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

fn time(time: chrono::DateTime<chrono::Utc>) -> Value {
    Value::String(Event::new(time).timestamp_text())
}

impl Csv {
    /// Sets the values of a row.
    ///
    /// # Errors
    /// A value that cannot be set.
    fn set(&self, event: &mut Event, columns: &[String], values: Vec<Option<String>>) -> Result<(), String> {
        for (at, value) in values.into_iter().enumerate() {
            if self.skip_empty_columns && value.as_ref().is_none_or(String::is_empty) {
                continue;
            }
            let generated;
            let column = match columns.get(at).filter(|column| !column.is_empty()) {
                Some(column) => column,
                None if !self.autogenerate => continue,
                None => {
                    generated = format!("column{}", at + 1);
                    &generated
                }
            };
            let conversion = self.conversions.iter().find(|(name, _)| name == column);
            let value = match value {
                None => Value::Null,
                Some(text) => conversion
                    .and_then(|(_, conversion)| conversion.apply(&text))
                    .unwrap_or(Value::String(text)),
            };
            let reference = FieldReference::parse(&format!("{}{}", self.target, bracketed(column)))?;
            event.set(&reference, value)?;
        }
        Ok(())
    }
}

impl Filter for Csv {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let values = match event.get(&self.source).as_deref() {
            None | Some(Value::Null) => return Outcome::Unmatched,
            Some(Value::String(text)) => self.dialect.parse_row(text),
            Some(_) => {
                event.tag(FAILURE);
                return Outcome::Unmatched;
            }
        };
        let values = match values {
            Ok(Some(values)) => values,
            Ok(None) if self.skip_empty_rows => {
                event.tag(EMPTY);
                return Outcome::Unmatched;
            }
            Ok(None) | Err(_) => {
                event.tag(FAILURE);
                return Outcome::Unmatched;
            }
        };
        let detected = match &self.detected {
            None => None,
            Some(detected) => {
                let mut detected = detected.lock();
                if detected.is_empty() {
                    *detected = values.into_iter().take(MAX_COLUMNS).map(Option::unwrap_or_default).collect();
                    return Outcome::Dropped;
                }
                Some(Arc::clone(&detected))
            }
        };
        let columns = detected.as_deref().unwrap_or(&self.columns);
        let is_header =
            || columns.iter().map(|column| Some(column.as_str())).eq(values.iter().map(Option::as_deref));
        if self.skip_header && !columns.is_empty() && is_header() {
            return Outcome::Dropped;
        }
        match self.set(event, columns, values) {
            Ok(()) => Outcome::Matched,
            Err(_) => {
                event.tag(FAILURE);
                Outcome::Unmatched
            }
        }
    }
}
