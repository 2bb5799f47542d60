//! `csv`: rows of separated values, read and written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::Utc;
use serde_json::{Map, Value};

use super::charset::Charset;
use super::lines::{Lines, MAX_LINE_BYTES, TOO_LONG};
use super::plain::text_event;
use super::{Codec, Decoder, Events, OriginalText};
use crate::csv::{CsvConversion, CsvDialect};
use crate::event::{TIMESTAMP, text_of};
use crate::{Event, Fault, FieldReference, Options};

/// Tag of events whose row is malformed.
const FAILURE: &str = "_csvparsefailure";
/// Most names of columns that `autodetect_column_names` keeps.
const MAX_COLUMNS: usize = 10_000;

#[derive(Debug)]
struct Csv {
    rows: Arc<RowReader>,
    fields: Vec<FieldReference>,
    include_headers: bool,
    has_headers: AtomicBool,
}

#[derive(Debug)]
struct RowReader {
    charset: Charset,
    original: OriginalText,
    dialect: CsvDialect,
    columns: Vec<String>,
    autodetect: bool,
    autogenerate: bool,
    skip_empty: bool,
    conversions: Vec<(String, CsvConversion)>,
    target: Option<FieldReference>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let original = OriginalText::take(&mut options);
    let charset = Charset::take(&mut options);
    let dialect = CsvDialect::take(&mut options);
    let columns = options.texts("columns");
    let mut fields = Vec::new();
    for column in &columns {
        match FieldReference::parse(column) {
            Ok(field) => fields.push(field),
            Err(fault) => options.fault_here(fault),
        }
    }
    let rows = RowReader {
        charset,
        original,
        dialect,
        autodetect: options.boolean("autodetect_column_names").unwrap_or(false) && columns.is_empty(),
        columns,
        autogenerate: options.boolean("autogenerate_column_names").unwrap_or(true),
        skip_empty: options.boolean("skip_empty_columns").unwrap_or(false),
        conversions: CsvConversion::take(&mut options),
        target: options.field("target"),
    };
    let include_headers = options.boolean("include_headers").unwrap_or(false);
    options.finish()?;
    let has_headers = AtomicBool::new(false);
    Ok(Arc::new(Csv { rows: Arc::new(rows), fields, include_headers, has_headers }))
}

impl RowReader {
    /// Appends the event of a row. The first row may have the names of `detected` columns.
    fn read(&self, text: &str, detected: &mut Vec<String>, too_long: bool, events: &mut Events) {
        let event = match self.dialect.parse_row(text.strip_suffix('\r').unwrap_or(text)) {
            // An empty line has no columns.
            Ok(None) => return,
            Ok(Some(values)) if self.autodetect && detected.is_empty() => {
                detected.extend(values.into_iter().take(MAX_COLUMNS).map(Option::unwrap_or_default));
                return;
            }
            Ok(Some(values)) => self.event(values, detected).map(|mut event| {
                self.original.keep(&mut event, text);
                event
            }),
            Err(_) => None,
        };
        let mut event = event.unwrap_or_else(|| {
            let mut event = text_event(text, OriginalText::default());
            event.tag(FAILURE);
            event
        });
        if too_long {
            event.tag(TOO_LONG);
        }
        events.push(event);
    }

    fn event(&self, values: Vec<Option<String>>, detected: &[String]) -> Option<Event> {
        let columns = if self.autodetect { detected } else { &self.columns };
        let mut fields = Map::new();
        for (at, value) in values.into_iter().enumerate() {
            if self.skip_empty && value.as_ref().is_none_or(String::is_empty) {
                continue;
            }
            let column = match columns.get(at) {
                Some(column) => column.clone(),
                None if self.autogenerate => format!("column{}", at + 1),
                None => continue,
            };
            let conversion = self.conversions.iter().find(|(name, _)| *name == column);
            let value = value.map_or(Value::Null, |text| {
                let converted = conversion.and_then(|(_, conversion)| conversion.apply(&text));
                converted.unwrap_or(Value::String(text))
            });
            fields.insert(column, value);
        }
        match &self.target {
            None => Some(Event::from_fields(fields, Utc::now())),
            Some(target) => {
                let mut event = Event::new(Utc::now());
                event.set(target, Value::Object(fields)).ok()?;
                Some(event)
            }
        }
    }
}

impl Csv {
    fn write(&self, values: Vec<Option<String>>, out: &mut Vec<u8>) {
        let mut row = String::new();
        self.rows.dialect.write_row(values.iter().map(Option::as_deref), &mut row);
        out.extend_from_slice(row.as_bytes());
    }

    fn values(&self, event: &Event) -> Vec<Option<String>> {
        let text = |value: &Value| match value {
            Value::Null => None,
            Value::Object(_) | Value::Array(_) => Some(value.to_string()),
            single => Some(text_of(single)),
        };
        if self.fields.is_empty() {
            let time = Some(event.timestamp_text());
            return std::iter::once(time).chain(event.fields().values().map(text)).collect();
        }
        self.fields.iter().map(|field| event.get(field).as_deref().and_then(text)).collect()
    }

    fn headers(&self, event: &Event) -> Vec<Option<String>> {
        if self.fields.is_empty() {
            let time = Some(TIMESTAMP.to_owned());
            return std::iter::once(time).chain(event.fields().keys().cloned().map(Some)).collect();
        }
        self.rows.columns.iter().cloned().map(Some).collect()
    }
}

impl Codec for Csv {
    fn decoder(&self) -> Box<dyn Decoder> {
        self.rows.charset.stream(|charset| RowStream {
            charset,
            rows: Arc::clone(&self.rows),
            lines: Lines::new("\n", MAX_LINE_BYTES),
            detected: Vec::new(),
        })
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(RowPerCall { rows: Arc::clone(&self.rows), detected: Vec::new() })
    }

    fn charset(&self) -> Charset {
        self.rows.charset
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        if self.include_headers && !self.has_headers.swap(true, Ordering::Relaxed) {
            self.write(self.headers(event), out);
        }
        self.write(self.values(event), out);
    }
}

/// A stream of bytes, with a row in each line.
struct RowStream {
    charset: Charset,
    rows: Arc<RowReader>,
    lines: Lines,
    detected: Vec<String>,
}

impl Decoder for RowStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let Self { charset, rows, lines, detected } = self;
        lines.push(bytes, |line, too_long| rows.read(&charset.decode(line), detected, too_long, events));
    }

    fn finish(&mut self, events: &mut Events) {
        let Self { charset, rows, lines, detected } = self;
        lines.finish(|line| rows.read(&charset.decode(line), detected, false, events));
    }

    fn holds(&self) -> bool {
        !self.lines.is_empty()
    }
}

/// A row in each call.
struct RowPerCall {
    rows: Arc<RowReader>,
    detected: Vec<String>,
}

impl Decoder for RowPerCall {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        self.rows.read(&self.rows.charset.decode(bytes), &mut self.detected, false, events);
    }

    fn finish(&mut self, _events: &mut Events) {}
}
