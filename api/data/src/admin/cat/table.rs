//! Tables of `_cat`: columns, cells, and rendering as text, JSON, YAML or help.
//!
//! A handler lists its columns once ([`Column`]) and fills rows of typed [`Cell`]s; `h`, `s`, `v`,
//! `help`, `bytes`, `time`, `size` and `format` are dealt with here, for every table alike.

use std::cmp::Ordering;

use millrace_mapping::pattern::matches;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Params, Response};

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Full name.
    pub(super) name: &'static str,
    /// Short names, comma-separated.
    pub(super) aliases: &'static str,
    /// Description of its content.
    pub(super) about: &'static str,
    /// `true` if its cells are aligned to the right.
    pub(super) right: bool,
    /// `true` if it is shown where `h` does not ask for columns.
    pub(super) shown: bool,
}

/// Makes a column that is shown, aligned to the left.
pub(super) const fn column(name: &'static str, aliases: &'static str, about: &'static str) -> Column {
    Column { name, aliases, about, right: false, shown: true }
}

impl Column {
    /// Aligns the column to the right.
    pub(super) const fn right(self) -> Self {
        Self { right: true, ..self }
    }

    /// Shows the column only where `h` asks for it.
    pub(super) const fn on_request(self) -> Self {
        Self { shown: false, ..self }
    }

    fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.split(',').any(|alias| alias == name)
    }
}

/// A value in a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// Nothing: blank in text, null in JSON.
    Empty,
    Text(String),
    /// A whole number.
    Number(i64),
    /// A decimal number, shown with two digits.
    Decimal(f64),
    /// Bytes, shown with a unit.
    Bytes(u64),
    /// Milliseconds, shown with a unit.
    Millis(u64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Number(i64::from(number))
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

const BYTE_UNITS: [(&str, u64); 6] =
    [("b", 1), ("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30), ("tb", 1 << 40), ("pb", 1 << 50)];

const TIME_UNITS: [(&str, f64); 7] =
    [("nanos", 1e-6), ("micros", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6), ("d", 8.64e7)];

/// Format of a table: the parameters that all `_cat` endpoints share.
#[derive(Clone, Debug)]
pub(super) struct Format {
    headers: Option<Vec<String>>,
    sort: Vec<(String, bool)>,
    verbose: bool,
    help: bool,
    bytes: Option<u64>,
    time: Option<f64>,
    structured: bool,
}

impl Format {
    /// Returns whether the columns are asked for, not the rows.
    pub(super) fn is_help(&self) -> bool {
        self.help
    }

    /// Takes the shared parameters.
    pub(super) fn take(params: &mut Params) -> Result<Self, Error> {
        let list = |text: String| -> Vec<String> {
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let unit_of = |name: &str, text: &str| {
            Error::illegal_argument(format!("unknown unit [{text}] of parameter [{name}]"))
        };
        let bytes = match params.take("bytes") {
            None => None,
            Some(text) => {
                let short = |unit: &str| unit == text || (unit.len() == 2 && unit[..1] == text);
                let found = BYTE_UNITS.iter().find(|(unit, _)| short(unit));
                Some(found.ok_or_else(|| unit_of("bytes", &text))?.1)
            }
        };
        let time = match params.take("time") {
            None => None,
            Some(text) => {
                let found = TIME_UNITS.iter().find(|(unit, _)| *unit == text);
                Some(found.ok_or_else(|| unit_of("time", &text))?.1)
            }
        };
        let sort = params
            .take("s")
            .map(list)
            .unwrap_or_default()
            .into_iter()
            .map(|key| match key.rsplit_once(':') {
                Some((name, "desc")) => (name.to_owned(), true),
                Some((name, "asc")) => (name.to_owned(), false),
                _ => (key, false),
            })
            .collect();
        let structured = match params.take("format").as_deref() {
            None | Some("text" | "txt" | "") => false,
            Some("json" | "yaml" | "smile" | "cbor" | "application/json" | "application/yaml") => true,
            Some(other) => {
                return Err(Error::illegal_argument(format!("unknown format [{other}] of a table")));
            }
        };
        Ok(Self {
            headers: params.take("h").map(list),
            sort,
            verbose: params.take_bool("v")?.unwrap_or(false),
            help: params.take_bool("help")?.unwrap_or(false),
            bytes,
            time,
            structured,
        })
    }

    fn text(&self, cell: &Cell) -> String {
        match cell {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => number.to_string(),
            Cell::Decimal(number) => format!("{number:.2}"),
            Cell::Bytes(bytes) => match self.bytes {
                Some(unit) => (bytes / unit).to_string(),
                None => scaled(*bytes as f64, &BYTE_UNITS.map(|(name, size)| (name, size as f64))),
            },
            Cell::Millis(millis) => match self.time {
                Some(unit) => ((*millis as f64 / unit) as u64).to_string(),
                None => scaled(*millis as f64, &TIME_UNITS[2..]),
            },
        }
    }
}

/// Renders a quantity in the greatest unit that fits, with one decimal, cut off.
fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let (unit, size) = units.iter().rev().find(|(_, size)| value >= *size).unwrap_or(&units[0]);
    let tenths = (value / size * 10.0).floor();
    if tenths % 10.0 == 0.0 {
        format!("{}{unit}", tenths / 10.0)
    } else {
        format!("{:.1}{unit}", tenths / 10.0)
    }
}

/// Rows under columns.
#[derive(Debug)]
pub(super) struct Table {
    columns: &'static [Column],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes an empty table.
    pub(super) fn new(columns: &'static [Column]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Appends a row: a cell for each column, missing ones at the end are empty.
    pub(super) fn push(&mut self, mut row: Vec<Cell>) {
        row.resize(self.columns.len(), Cell::Empty);
        self.rows.push(row);
    }

    /// Renders the table.
    pub(super) fn render(mut self, format: &Format) -> Result<Response, Error> {
        if format.help {
            return Ok(Response::text(200, self.help()));
        }
        self.sort(format)?;
        let picked = self.pick(format);
        if format.structured {
            let rows: Vec<Value> = self
                .rows
                .iter()
                .map(|row| {
                    let members: Map<String, Value> = picked
                        .iter()
                        .map(|(at, name)| {
                            let value = match &row[*at] {
                                Cell::Empty => Value::Null,
                                cell => format.text(cell).into(),
                            };
                            (name.clone(), value)
                        })
                        .collect();
                    members.into()
                })
                .collect();
            return Ok(Response::json(200, rows.into()));
        }
        Ok(Response::text(200, self.text(format, &picked)))
    }

    /// Picks columns with the names under which they are shown, each once under a name.
    fn pick(&self, format: &Format) -> Vec<(usize, String)> {
        let Some(headers) = &format.headers else {
            return (0..self.columns.len())
                .filter(|at| self.columns[*at].shown)
                .map(|at| (at, self.columns[at].name.to_owned()))
                .collect();
        };
        let mut picked: Vec<(usize, String)> = Vec::new();
        for header in headers {
            if header.contains('*') {
                for (at, column) in self.columns.iter().enumerate() {
                    let known = picked.iter().any(|(had, _)| *had == at);
                    if matches(header, column.name) && !known {
                        picked.push((at, column.name.to_owned()));
                    }
                }
            } else if let Some(at) = self.columns.iter().position(|column| column.answers_to(header))
                && !picked.iter().any(|(had, name)| *had == at && name == header)
            {
                picked.push((at, header.clone()));
            }
        }
        picked
    }

    fn sort(&mut self, format: &Format) -> Result<(), Error> {
        let mut keys = Vec::new();
        for (name, descending) in &format.sort {
            let at = self.columns.iter().position(|column| column.answers_to(name)).ok_or_else(|| {
                Error::new(
                    400,
                    "unsupported_operation_exception",
                    format!("Unable to sort by unknown sort key `{name}`"),
                )
            })?;
            keys.push((at, *descending));
        }
        if !keys.is_empty() {
            self.rows.sort_by(|a, b| {
                keys.iter()
                    .map(|(at, descending)| {
                        let order = compare(&a[*at], &b[*at]);
                        if *descending { order.reverse() } else { order }
                    })
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            });
        }
        Ok(())
    }

    fn text(&self, format: &Format, picked: &[(usize, String)]) -> String {
        let mut lines: Vec<Vec<String>> = Vec::with_capacity(self.rows.len() + 1);
        if format.verbose {
            lines.push(picked.iter().map(|(_, name)| name.clone()).collect());
        }
        for row in &self.rows {
            lines.push(picked.iter().map(|(at, _)| format.text(&row[*at])).collect());
        }
        let length = |text: &String| text.chars().count();
        let widths: Vec<usize> = (0..picked.len())
            .map(|at| lines.iter().map(|line| length(&line[at])).max().unwrap_or(0))
            .collect();
        let mut out = String::new();
        for line in &lines {
            for (at, text) in line.iter().enumerate() {
                let last = at + 1 == line.len();
                let padding = widths[at] - length(text);
                if self.columns[picked[at].0].right {
                    out.extend(std::iter::repeat_n(' ', padding));
                    out.push_str(text);
                } else {
                    out.push_str(text);
                    if !last {
                        out.extend(std::iter::repeat_n(' ', padding));
                    }
                }
                if !last {
                    out.push(' ');
                }
            }
            out.push('\n');
        }
        out
    }

    fn help(&self) -> String {
        let width = |pick: fn(&Column) -> &'static str| {
            self.columns.iter().map(|column| pick(column).chars().count()).max().unwrap_or(0)
        };
        let (names, aliases) = (width(|column| column.name), width(|column| column.aliases));
        let mut out = String::new();
        for column in self.columns {
            out.push_str(&format!(
                "{:names$} | {:aliases$} | {}\n",
                column.name, column.aliases, column.about
            ));
        }
        out
    }
}

/// Compares cells by value; empty ones come last.
fn compare(left: &Cell, right: &Cell) -> Ordering {
    let number = |cell: &Cell| match cell {
        Cell::Number(number) => Some(*number as f64),
        Cell::Decimal(number) => Some(*number),
        Cell::Bytes(number) | Cell::Millis(number) => Some(*number as f64),
        Cell::Empty | Cell::Text(_) => None,
    };
    match (left, right) {
        (Cell::Empty, Cell::Empty) => Ordering::Equal,
        (Cell::Empty, _) => Ordering::Greater,
        (_, Cell::Empty) => Ordering::Less,
        (Cell::Text(left), Cell::Text(right)) => left.cmp(right),
        _ => match (number(left), number(right)) {
            (Some(left), Some(right)) => left.total_cmp(&right),
            (left, right) => left.is_some().cmp(&right.is_some()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Body;

    const COLUMNS: &[Column] = &[
        column("index", "i,idx", "the index"),
        column("docs.count", "dc", "documents").right(),
        column("store.size", "ss", "bytes").right(),
        column("tm", "", "memory").right().on_request(),
    ];

    fn shown(query: &str) -> String {
        let mut table = Table::new(COLUMNS);
        table.push(vec!["b".into(), 5u64.into(), Cell::Bytes(1536), Cell::Bytes(10)]);
        table.push(vec!["long-name".into(), Cell::Empty, Cell::Bytes(225), Cell::Bytes(9)]);
        table.push(vec!["a".into(), 12u64.into(), Cell::Bytes(3 << 20), Cell::Bytes(200)]);
        let mut params = Params::parse(query).unwrap();
        match Format::take(&mut params).and_then(|format| table.render(&format)) {
            Ok(Response { body: Body::Text(text), .. }) => text,
            Ok(Response { body: Body::Json(value), .. }) => value.to_string(),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("! {}", error.reason()),
        }
    }

    #[test]
    fn tables_render() {
        for (query, expected) in [
            ("", "b          5 1.5kb\nlong-name     225b\na         12   3mb\n"),
            (
                "v",
                "index     docs.count store.size\nb                  5      1.5kb\nlong-name                  225b\na                 12        3mb\n",
            ),
            ("h=i,tm&s=tm:desc", "a         200b\nb          10b\nlong-name   9b\n"),
            ("h=i&s=dc", "b\na\nlong-name\n"),
            ("h=i,i,idx,i&s=i", "a         a\nb         b\nlong-name long-name\n"),
            ("h=i&s=dc:desc", "long-name\na\nb\n"),
            ("h=nope,docs.*&s=index", "12\n 5\n  \n"),
            ("v&h=idx&s=i", "idx\na\nb\nlong-name\n"),
            ("bytes=kb&h=ss&s=i", "3072\n   1\n   0\n"),
            ("s=nope", "! Unable to sort by unknown sort key `nope`"),
            ("bytes=x", "! unknown unit [x] of parameter [bytes]"),
            (
                "format=json&h=i,dc&s=i:desc",
                r#"[{"i":"long-name","dc":null},{"i":"b","dc":"5"},{"i":"a","dc":"12"}]"#,
            ),
            (
                "help",
                "index      | i,idx | the index\ndocs.count | dc    | documents\nstore.size | ss    | bytes\ntm         |       | memory\n",
            ),
        ] {
            assert_eq!(shown(query), expected, "{query}");
        }
    }

    #[test]
    fn quantities_are_cut_to_one_decimal() {
        let format = Format::take(&mut Params::default()).unwrap();
        for (cell, expected) in [
            (Cell::Bytes(0), "0b"),
            (Cell::Bytes(1023), "1023b"),
            (Cell::Bytes(1024), "1kb"),
            (Cell::Bytes(1_999_999), "1.9mb"),
            (Cell::Millis(0), "0ms"),
            (Cell::Millis(1_500), "1.5s"),
            (Cell::Millis(90_000), "1.5m"),
            (Cell::Decimal(0.5), "0.50"),
        ] {
            assert_eq!(format.text(&cell), expected);
        }
    }
}
