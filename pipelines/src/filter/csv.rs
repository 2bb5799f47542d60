//! `csv`: takes a row of separated values apart.

use std::sync::Arc;

use millrace_ingest::csv::{CsvConversion, CsvDialect};
use millrace_ingest::{Event, Fault, FieldReference, Options};
use parking_lot::Mutex;
use serde_json::Value;

use super::settings::field_or;
use super::{Filter, Outcome};

/// Tag of events whose row is malformed.
const FAILURE: &str = "_csvparsefailure";
/// Tag of events whose row is empty.
const EMPTY: &str = "_csvskippedemptyfield";
/// Most names of columns that `autodetect_column_names` keeps.
const MAX_COLUMNS: usize = 10_000;
#[derive(Debug)]
struct Csv {
    dialect: CsvDialect,
    source: FieldReference,
    /// Reference of the target in brackets, empty without one.
    target: String,
    columns: Vec<String>,
    /// Columns of the first row, where they are to be detected.
    detected: Option<Mutex<Arc<[String]>>>,
    conversions: Vec<(String, CsvConversion)>,
    autogenerate: bool,
    skip_header: bool,
    skip_empty_columns: bool,
    skip_empty_rows: bool,
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
    let conversions = CsvConversion::take(&mut options);
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
