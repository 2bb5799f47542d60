//! `csv`: rows of separated values in files.

use std::sync::Arc;

use serde_json::Value;

use super::file;
use crate::codec::{self, Codec, Decoder};
use crate::csv::CsvDialect;
use crate::event::text_of;
use crate::output::Output;
use crate::{Event, Fault, FieldReference, Options};

/// Writes a row for each event.
#[derive(Debug)]
struct CsvRows {
    fields: Vec<FieldReference>,
    dialect: CsvDialect,
    row_end: String,
    /// `true` if values that programs for tables take for formulas get a quote.
    spreadsheet_safe: bool,
    /// Reads, as every codec can.
    plain: Arc<dyn Codec>,
}

/// Makes the output, which has the options of `file`, too.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let mut fields = Vec::new();
    for field in options.texts("fields") {
        match FieldReference::parse(&field) {
            Ok(field) => fields.push(field),
            Err(fault) => options.fault_here(fault),
        }
    }
    if fields.is_empty() {
        options.fault_here("[csv] needs the option [fields], an array of the fields of a row");
    }
    let spreadsheet_safe = options.boolean("spreadsheet_safe").unwrap_or(true);
    let (mut separator, mut quote, mut row_end) = (",".to_owned(), Some('"'), "\n".to_owned());
    for (name, value) in options.hash("csv_options") {
        let value = value.as_text().unwrap_or_default();
        match name.as_str() {
            "col_sep" if !value.is_empty() => separator = value.replace("\\t", "\t"),
            "row_sep" if !value.is_empty() => row_end = value.replace("\\r", "\r").replace("\\n", "\n"),
            "quote_char" if value.chars().count() == 1 => quote = value.chars().next(),
            other => options.fault_here(format!(
                "[csv_options] has [{other}], not one of [col_sep, row_sep, quote_char]"
            )),
        }
    }
    let plain = codec::take(&mut options, "plain");
    let rows = plain.map(|plain| {
        let dialect = CsvDialect::new(separator, quote);
        Arc::new(CsvRows { fields, dialect, row_end, spreadsheet_safe, plain }) as Arc<dyn Codec>
    });
    file::build_with_codec(options, rows)
}

impl CsvRows {
    fn value(&self, event: &Event, field: &FieldReference) -> Option<String> {
        let text = match event.get(field).as_deref() {
            None | Some(Value::Null) => return None,
            Some(value @ (Value::Object(_) | Value::Array(_))) => value.to_string(),
            Some(single) => text_of(single),
        };
        let is_formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
        Some(if self.spreadsheet_safe && is_formula { format!("'{text}") } else { text })
    }
}

impl Codec for CsvRows {
    fn decoder(&self) -> Box<dyn Decoder> {
        self.plain.decoder()
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        let values: Vec<Option<String>> = self.fields.iter().map(|field| self.value(event, field)).collect();
        let mut row = String::new();
        self.dialect.write_row(values.iter().map(Option::as_deref), &mut row);
        out.extend_from_slice(row.strip_suffix('\n').unwrap_or(&row).as_bytes());
        out.extend_from_slice(self.row_end.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::json;
    use tokio::sync::watch;

    use super::*;
    use crate::input::testing::options;
    use crate::output::OrderTicket;

    #[tokio::test]
    async fn rows_have_the_fields() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let given = [
            ("path", path.display().to_string().into()),
            ("fields", ["a", "[b][c]", "d", "e"].into()),
            ("csv_options", [("col_sep", ";")].into()),
        ];
        let Output::Sink(sink) = build(options("csv", &given)).unwrap() else { panic!("it is a sink") };
        let Value::Object(fields) = json!({"a": "x;\"y\"", "b": {"c": -1}, "d": "=1+2", "e": [1]}) else {
            panic!()
        };
        let event = Arc::new(Event::from_fields(fields, DateTime::UNIX_EPOCH));
        let empty = Arc::new(Event::new(DateTime::UNIX_EPOCH));
        let events = [(event, None), (empty, None)];
        let stopping = watch::Sender::new(false).subscribe();
        assert_eq!(sink.send(&events, stopping, OrderTicket::new().0).await, Ok(Vec::new()));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "\"x;\"\"y\"\"\";-1;'=1+2;[1]\n;;;\n");
        assert!(
            build(options("csv", &[("path", "/tmp/x".into())])).unwrap_err()[0].message.contains("[fields]")
        );
    }
}
