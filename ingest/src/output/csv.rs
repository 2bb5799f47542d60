//! `csv`: rows of separated values in files.

use std::sync::Arc;

use serde_json::Value;

use super::file;
use crate::codec::{self, Codec, Decoder};
use crate::csv::CsvDialect;
use crate::event::text_of;
use crate::output::Output;
use crate::{Event, Fault, FieldReference, Options, Setting};

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
    let (mut writes_header, mut names) = (false, None);
    for (name, value) in options.hash("csv_options") {
        if let ("headers", Setting::Array(elements)) = (name.as_str(), &value) {
            names = elements.iter().map(Setting::as_text).collect::<Option<Vec<_>>>();
            if names.is_none() {
                options.fault_here("[headers] of [csv_options] must be an array of texts");
            }
            continue;
        }
        let value = value.as_text().unwrap_or_default();
        match name.as_str() {
            "write_headers" if matches!(value.as_str(), "true" | "false") => writes_header = value == "true",
            "col_sep" if !value.is_empty() => separator = value.replace("\\t", "\t"),
            "row_sep" if !value.is_empty() => row_end = value.replace("\\r", "\r").replace("\\n", "\n"),
            "quote_char" if value.chars().count() == 1 => quote = value.chars().next(),
            other => options.fault_here(format!(
                "[csv_options] has [{other}] of an unknown name or type: known are [col_sep, row_sep, quote_char, write_headers, \
                 headers]"
            )),
        }
    }
    let plain = codec::take(&mut options, "plain");
    let dialect = CsvDialect::new(separator, quote);
    let mut header = Vec::new();
    if writes_header {
        let names = names.unwrap_or_else(|| fields.iter().map(ToString::to_string).collect());
        write_row(&dialect, names.iter().map(|name| Some(name.as_str())), &row_end, &mut header);
    }
    let rows = plain.map(|plain| {
        Arc::new(CsvRows { fields, dialect, row_end, spreadsheet_safe, plain }) as Arc<dyn Codec>
    });
    file::build_with_codec(options, rows, header)
}

fn write_row<'v>(
    dialect: &CsvDialect,
    values: impl Iterator<Item = Option<&'v str>>,
    row_end: &str,
    out: &mut Vec<u8>,
) {
    let mut row = String::new();
    dialect.write_row(values, &mut row);
    out.extend_from_slice(row.strip_suffix('\n').unwrap_or(&row).as_bytes());
    out.extend_from_slice(row_end.as_bytes());
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
        write_row(&self.dialect, values.iter().map(Option::as_deref), &self.row_end, out);
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
    async fn a_file_begins_with_the_header() {
        let dir = tempfile::tempdir().unwrap();
        let names = Setting::Array(vec![Setting::Text("first".to_owned()), Setting::Text("s;2".to_owned())]);
        let write = Setting::Text("true".to_owned());
        for (number, (names, header)) in
            [(Some(names), "first;\"s;2\"\n"), (None, "a;[b][c]\n")].into_iter().enumerate()
        {
            let path = dir.path().join(format!("{number}.csv"));
            let mut given: Vec<_> = names.map(|names| ("headers".to_owned(), names)).into_iter().collect();
            given.push(("col_sep".to_owned(), Setting::Text(";".to_owned())));
            given.push(("write_headers".to_owned(), write.clone()));
            let at = crate::Location::default();
            let build = || {
                let fields = ["a", "[b][c]"].map(|field| Setting::Text(field.to_owned()));
                let given = [
                    ("path", Setting::Text(path.display().to_string())),
                    ("fields", Setting::Array(fields.to_vec())),
                    ("csv_options", Setting::Hash(given.clone())),
                ];
                let given = given.map(|(name, setting)| (name.to_owned(), at, setting));
                let Output::Sink(sink) = super::build(Options::new("csv", at, given)).unwrap() else {
                    panic!()
                };
                sink
            };
            let event = || (Arc::new(Event::new(DateTime::UNIX_EPOCH)), None);
            for _ in 0..2 {
                let sink = build();
                for round in 0..4 {
                    if round == 2 {
                        assert_eq!(std::fs::read_to_string(&path).unwrap().matches(header).count(), 1);
                        // As a rotation by `copytruncate` does.
                        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
                    }
                    let stopping = watch::Sender::new(false).subscribe();
                    assert_eq!(sink.send(&[event()], stopping, OrderTicket::new().0).await, Ok(Vec::new()));
                }
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{header}{}", ";\n".repeat(2)));
        }
    }

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
