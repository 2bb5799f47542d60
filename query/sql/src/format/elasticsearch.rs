//! Pages as Elasticsearch's SQL lays them out: JSON by rows or by columns, CSV, TSV, and a table of text.
//!
//! Times are ISO 8601 in UTC, with a millisecond at least. A row has one value in each column. Several values of a field are refused,
//! unless the request takes the first.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use serde_json::{Value, json};

use super::{TextReservation, check_size, value};
use crate::bind::OutColumn;
use crate::error::{Result, SqlError};
use crate::types::SqlType;

/// Least letters of a column in a table of text.
const MIN_WIDTH: usize = 15;

/// Layout of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLayout {
    /// JSON with an array for each row.
    Rows,
    /// JSON with an array for each column.
    Columns,
    /// Values between delimiters.
    Csv {
        /// The delimiter.
        delimiter: char,
        /// True if the names of columns stand first.
        header: bool,
    },
    /// Values between tabulators, which values have as `\t`.
    Tsv {
        /// True if the names of columns stand first.
        header: bool,
    },
    /// A table of text.
    Text,
}

impl PageLayout {
    /// Returns the media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Rows | Self::Columns => "application/json",
            Self::Csv { header: true, .. } => "text/csv; charset=utf-8; header=present",
            Self::Csv { header: false, .. } => "text/csv; charset=utf-8; header=absent",
            Self::Tsv { .. } => "text/tab-separated-values; charset=utf-8",
            Self::Text => "text/plain; charset=UTF-8",
        }
    }

    /// Tells JSON, which has the cursor in it, from text.
    pub fn is_json(self) -> bool {
        matches!(self, Self::Rows | Self::Columns)
    }
}

/// The way a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOptions {
    /// Its layout.
    pub layout: PageLayout,
    /// True if the first of several values stands for all of them.
    pub takes_first: bool,
}

/// Writes a page.
#[derive(Debug)]
pub(crate) struct TablePage {
    columns: Arc<[OutColumn]>,
    options: PageOptions,
    /// Rows or lines so far.
    out: String,
    /// Values of each column so far, for a layout by columns.
    values: Vec<String>,
    /// Cells of a table of text, row by row.
    cells: Vec<String>,
    rows: u64,
    /// True if an earlier page had the names of columns.
    is_later: bool,
}

impl TablePage {
    pub(super) fn new(columns: Arc<[OutColumn]>, options: PageOptions, is_later: bool) -> Self {
        let values =
            vec![String::new(); if options.layout == PageLayout::Columns { columns.len() } else { 0 }];
        let (out, cells) = (String::new(), Vec::new());
        let mut page = Self { columns, options, out, values, cells, rows: 0, is_later };
        if let PageLayout::Csv { header: true, .. } | PageLayout::Tsv { header: true } = options.layout
            && !is_later
        {
            let columns = Arc::clone(&page.columns);
            page.line(columns.iter().map(|column| name(column).to_owned()));
        }
        page
    }

    /// Writes rows; returns how many bytes they take by now.
    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<usize> {
        let columns = Arc::clone(&self.columns);
        let mut cells = Vec::with_capacity(columns.len());
        for row in 0..batch.num_rows() {
            cells.clear();
            for (array, column) in batch.columns().iter().zip(columns.iter()) {
                cells.push(self.cell(array, row, column)?);
            }
            match self.options.layout {
                PageLayout::Rows => {
                    self.out.push_str(if self.rows > 0 { ",[" } else { "[" });
                    self.out.push_str(&cells.join(","));
                    self.out.push(']');
                }
                PageLayout::Columns => {
                    for (values, cell) in self.values.iter_mut().zip(&cells) {
                        if self.rows > 0 {
                            values.push(',');
                        }
                        values.push_str(cell);
                    }
                }
                PageLayout::Csv { .. } | PageLayout::Tsv { .. } => self.line(cells.drain(..)),
                PageLayout::Text => self.cells.append(&mut cells),
            }
            self.rows += 1;
        }
        Ok(self.bytes())
    }

    /// Counts the bytes that the page takes.
    pub(super) fn bytes(&self) -> usize {
        let of =
            |texts: &[String]| texts.iter().map(|text| text.capacity() + size_of::<String>()).sum::<usize>();
        self.out.capacity() + of(&self.values) + of(&self.cells)
    }

    /// Ends the page; a cursor stands in JSON only. A text that is made of the rows is reserved before it is laid out.
    ///
    /// # Errors
    /// [`millrace_work::error::Error::CircuitBreaking`] where the text is longer than an answer may be, or queries may not hold it.
    pub(super) fn finish(self, cursor: Option<&str>, reservation: &mut TextReservation) -> Result<String> {
        let reserve = |size: usize, reservation: &mut TextReservation| {
            check_size(size)?;
            reservation.grow_to(size)
        };
        let member = match self.options.layout {
            PageLayout::Csv { .. } | PageLayout::Tsv { .. } => return Ok(self.out),
            PageLayout::Text => {
                let table = TextTable::new(&self.columns, &self.cells, !self.is_later);
                reserve(table.bytes(), reservation)?;
                return Ok(table.text());
            }
            PageLayout::Rows => "rows",
            PageLayout::Columns => "values",
        };
        let mut head = "{".to_owned();
        if !self.is_later {
            let column = |column: &OutColumn| json!({"name": name(column), "type": type_name(column)});
            let columns: Vec<Value> = self.columns.iter().map(column).collect();
            head.push_str(&format!("\"columns\":{},", Value::Array(columns)));
        }
        head.push_str(&format!("\"{member}\":["));
        let tail = cursor.map(|cursor| format!(",\"cursor\":{}", json!(cursor))).unwrap_or_default();
        // A column has two brackets and a comma, the text two letters behind its rows.
        let rows = self.out.len() + self.values.iter().map(|values| values.len() + 3).sum::<usize>();
        let size = head.len() + rows + tail.len() + 2;
        reserve(size, reservation)?;
        let mut out = String::with_capacity(size);
        out.push_str(&head);
        out.push_str(&self.out);
        for (at, values) in self.values.into_iter().enumerate() {
            out.push_str(if at > 0 { ",[" } else { "[" });
            out.push_str(&values);
            out.push(']');
        }
        out.push(']');
        out.push_str(&tail);
        out.push('}');
        Ok(out)
    }

    /// Renders one value: as JSON where the layout is, else as text.
    fn cell(&self, array: &ArrayRef, row: usize, column: &OutColumn) -> Result<String> {
        let mut out = String::new();
        let is_json = self.options.layout.is_json();
        let mut single = (Arc::clone(array), row);
        if let DataType::List(_) = array.data_type()
            && array.is_valid(row)
        {
            let values = array.as_list::<i32>().value(row);
            if values.len() > 1 && !self.options.takes_first {
                return Err(SqlError::Evaluation(format!(
                    "the field [{}] has several values in a row; set [field_multi_value_leniency] to take the first",
                    name(column)
                )));
            }
            single = (values, 0);
        }
        let (array, row) = single;
        let is_null = array.is_empty() || array.is_null(row) || *array.data_type() == DataType::Null;
        if is_null {
            let null = if is_json || self.options.layout == PageLayout::Text { "null" } else { "" };
            return Ok(null.to_owned());
        }
        match array.data_type() {
            DataType::Timestamp(..) | DataType::Date32 | DataType::Time64(_) => {
                let mut shown = String::new();
                value::text(&array, row, column.ty, &mut shown);
                let shown = iso_8601(&shown, column.ty);
                if is_json { value::quoted(&shown, &mut out) } else { out = shown }
            }
            _ if is_json => value::json(&array, row, column.ty, &mut out),
            _ => value::text(&array, row, column.ty, &mut out),
        }
        Ok(out)
    }

    /// Writes a line of CSV or TSV.
    fn line(&mut self, cells: impl Iterator<Item = String>) {
        let delimiter = match self.options.layout {
            PageLayout::Csv { delimiter, .. } => Some(delimiter),
            _ => None,
        };
        for (at, cell) in cells.enumerate() {
            match delimiter {
                Some(delimiter) => {
                    if at > 0 {
                        self.out.push(delimiter);
                    }
                    if cell.contains([delimiter, '"', '\n', '\r']) {
                        self.out.push_str(&format!("\"{}\"", cell.replace('"', "\"\"")));
                    } else {
                        self.out.push_str(&cell);
                    }
                }
                None => {
                    if at > 0 {
                        self.out.push('\t');
                    }
                    self.out.push_str(&cell.replace('\t', "\\t").replace('\n', "\\n"));
                }
            }
        }
        self.out.push_str(if delimiter.is_some() { "\r\n" } else { "\n" });
    }
}

/// Returns the name that users see.
fn name(column: &OutColumn) -> &str {
    column.alias.as_deref().unwrap_or(&column.name)
}

/// Returns the name that Elasticsearch has for the type of a column.
fn type_name(column: &OutColumn) -> &'static str {
    match column.ty {
        SqlType::Timestamp(_) => "datetime",
        SqlType::Undefined => "null",
        SqlType::Interval => "interval_day_to_second",
        _ => column.shown,
    }
}

/// Writes a time as ISO 8601; `shown` is its text in other answers.
fn iso_8601(shown: &str, ty: SqlType) -> String {
    let (whole, fraction) = shown.split_once('.').unwrap_or((shown, ""));
    match ty {
        SqlType::Date => format!("{whole}T00:00:00.000Z"),
        _ => format!("{}.{fraction:0<3}Z", whole.replacen(' ', "T", 1)),
    }
}

/// Cells of a table of text, and the width of each column in letters.
struct TextTable<'a> {
    columns: &'a [OutColumn],
    cells: &'a [String],
    widths: Vec<usize>,
    /// Bytes of the cells beyond one for each letter.
    excess: usize,
    has_header: bool,
}

impl<'a> TextTable<'a> {
    fn new(columns: &'a [OutColumn], cells: &'a [String], has_header: bool) -> Self {
        let mut widths: Vec<usize> =
            columns.iter().map(|column| name(column).chars().count().max(MIN_WIDTH)).collect();
        let (count, mut excess) = (columns.len().max(1), 0);
        for (at, cell) in cells.iter().enumerate() {
            let letters = cell.chars().count();
            excess += cell.len() - letters;
            if let Some(width) = widths.get_mut(at % count) {
                *width = (*width).max(letters);
            }
        }
        Self { columns, cells, widths, excess, has_header }
    }

    /// Counts the bytes of the text: one line of values makes all lines as long.
    fn bytes(&self) -> usize {
        // Behind each column stands a delimiter or a line feed.
        let line =
            self.widths.iter().fold(0_usize, |sum, width| sum.saturating_add(*width).saturating_add(1));
        let rows = self.cells.len().div_ceil(self.columns.len().max(1));
        let names: usize = self.columns.iter().map(|column| name(column).len()).sum();
        let header = if self.has_header { line.saturating_mul(2).saturating_add(names) } else { 0 };
        // A table without columns has empty lines.
        line.max(1).saturating_mul(rows).saturating_add(self.excess).saturating_add(header)
    }

    fn text(&self) -> String {
        let mut out = String::with_capacity(self.bytes());
        if self.has_header {
            for (at, (column, width)) in self.columns.iter().zip(&self.widths).enumerate() {
                let name = name(column);
                let missing = width.saturating_sub(name.chars().count());
                if at > 0 {
                    out.push('|');
                }
                pad(&mut out, ' ', missing / 2);
                out.push_str(name);
                pad(&mut out, ' ', missing - missing / 2);
            }
            out.push('\n');
            for (at, width) in self.widths.iter().enumerate() {
                if at > 0 {
                    out.push('+');
                }
                pad(&mut out, '-', *width);
            }
            out.push('\n');
        }
        for row in self.cells.chunks(self.columns.len().max(1)) {
            for (at, (cell, width)) in row.iter().zip(&self.widths).enumerate() {
                if at > 0 {
                    out.push('|');
                }
                let mut letters = 0;
                for letter in cell.chars() {
                    // A line feed would break the row.
                    out.push(if matches!(letter, '\n' | '\r') { ' ' } else { letter });
                    letters += 1;
                }
                pad(&mut out, ' ', width.saturating_sub(letters));
            }
            out.push('\n');
        }
        out
    }
}

/// Appends a letter so many times. Widths of `format!` end at 65,535.
fn pad(out: &mut String, letter: char, count: usize) {
    out.extend(std::iter::repeat_n(letter, count));
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        Date32Array, Int64Array, ListBuilder, StringViewArray, StringViewBuilder, Time64NanosecondArray,
        TimestampMillisecondArray,
    };

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use millrace_work::QueryContext;

    use super::*;
    use crate::types::Resolution;

    /// Ends a page with as much memory as it asks for.
    fn finished(page: TablePage, cursor: Option<&str>) -> String {
        finished_within(page, cursor, usize::MAX).unwrap()
    }

    fn finished_within(page: TablePage, cursor: Option<&str>, bytes: usize) -> Result<String> {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        page.finish(cursor, &mut TextReservation::new(&QueryContext::new(&pool)))
    }

    fn columns(columns: &[(&str, SqlType, bool)]) -> Arc<[OutColumn]> {
        let column = |(name, ty, list): &(&str, SqlType, bool)| OutColumn {
            name: (*name).to_owned(),
            alias: None,
            ty: *ty,
            list: *list,
            shown: ty.name(),
            element: None,
        };
        columns.iter().map(column).collect()
    }

    fn page(layout: PageLayout, is_later: bool, cursor: Option<&str>) -> String {
        let columns = columns(&[("n", SqlType::Long, false), ("a,b", SqlType::Keyword, false)]);
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["x\"\ty", "a,\nb"]));
        let batch = RecordBatch::try_from_iter([("c0", numbers), ("c1", texts)]).unwrap();
        let mut page = TablePage::new(columns, PageOptions { layout, takes_first: false }, is_later);
        page.rows(&batch).unwrap();
        finished(page, cursor)
    }

    #[test]
    fn every_layout_has_names_types_and_values() {
        let (names, csv) = (
            r#""columns":[{"name":"n","type":"long"},{"name":"a,b","type":"keyword"}]"#,
            PageLayout::Csv { delimiter: ',', header: true },
        );
        let rows = r#""rows":[[1,"x\"\ty"],[null,"a,\nb"]]"#;
        assert_eq!(page(PageLayout::Rows, false, None), format!("{{{names},{rows}}}"));
        assert_eq!(page(PageLayout::Rows, true, Some("t")), format!("{{{rows},\"cursor\":\"t\"}}"));
        let values = r#""values":[[1,null],["x\"\ty","a,\nb"]]"#;
        assert_eq!(page(PageLayout::Columns, false, None), format!("{{{names},{values}}}"));
        assert_eq!(page(csv, false, Some("t")), "n,\"a,b\"\r\n1,\"x\"\"\ty\"\r\n,\"a,\nb\"\r\n");
        assert_eq!(page(csv, true, None), "1,\"x\"\"\ty\"\r\n,\"a,\nb\"\r\n");
        let spaced = page(PageLayout::Csv { delimiter: ';', header: false }, false, None);
        assert_eq!(spaced, "1;\"x\"\"\ty\"\r\n;\"a,\nb\"\r\n");
        assert_eq!(page(PageLayout::Tsv { header: true }, false, None), "n\ta,b\n1\tx\"\\ty\n\ta,\\nb\n");
        let text = page(PageLayout::Text, false, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       n       |      a,b      ");
        assert_eq!(lines[1], "---------------+---------------");
        assert_eq!(lines[3], "null           |a, b           ");
    }

    #[test]
    fn times_are_iso_8601() {
        let batch = RecordBatch::try_from_iter([
            ("c0", Arc::new(TimestampMillisecondArray::from(vec![1_714_564_800_120])) as ArrayRef),
            ("c1", Arc::new(Date32Array::from(vec![0]))),
            ("c2", Arc::new(Time64NanosecondArray::from(vec![3_600_000_000_000]))),
        ]);
        let types = [SqlType::Timestamp(Resolution::Millis), SqlType::Date, SqlType::Time];
        let columns = columns(&types.map(|ty| ("c", ty, false)));
        let options = PageOptions { layout: PageLayout::Rows, takes_first: false };
        let mut page = TablePage::new(columns, options, true);
        page.rows(&batch.unwrap()).unwrap();
        let expected =
            r#"{"rows":[["2024-05-01T12:00:00.120Z","1970-01-01T00:00:00.000Z","01:00:00.000Z"]]}"#;
        assert_eq!(finished(page, None), expected);
    }

    #[test]
    fn several_values_are_refused_or_their_first_is_taken() {
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        for values in [&["a", "b"][..], &["c"], &[]] {
            values.iter().for_each(|value| lists.values().append_value(value));
            lists.append(true);
        }
        let batch = RecordBatch::try_from_iter([("c0", Arc::new(lists.finish()) as ArrayRef)]).unwrap();
        let page = |takes_first| {
            let options = PageOptions { layout: PageLayout::Rows, takes_first };
            let mut page = TablePage::new(columns(&[("tags", SqlType::Keyword, true)]), options, true);
            page.rows(&batch).map(|_| finished(page, None))
        };
        assert_eq!(page(true).unwrap(), r#"{"rows":[["a"],["c"],[null]]}"#);
        let error = page(false).unwrap_err().to_string();
        assert!(error.contains("[tags]") && error.contains("field_multi_value_leniency"), "{error}");
    }
    #[test]
    fn wide_tables_are_refused_before_they_are_laid_out() {
        let column = columns(&[("text", SqlType::Keyword, false)]);
        let table = |width: usize, rows: usize| {
            let mut texts = vec!["é"; rows];
            let wide = "x".repeat(width);
            texts[0] = &wide;
            let texts: ArrayRef = Arc::new(StringViewArray::from(texts));
            let options = PageOptions { layout: PageLayout::Text, takes_first: false };
            let mut page = TablePage::new(Arc::clone(&column), options, false);
            page.rows(&RecordBatch::try_from_iter([("c0", texts)]).unwrap()).unwrap();
            page
        };
        // Such a width is none of `format!`.
        let page = table(70_000, 2);
        let bytes = TextTable::new(&page.columns, &page.cells, true).bytes();
        let text = finished(page, None);
        assert_eq!(text.lines().map(|line| line.chars().count()).collect::<Vec<_>>(), [70_000; 4]);
        assert!(text.len() <= bytes && bytes < text.len() + 16, "{} {bytes}", text.len());
        // A million letters in one row pad 10,000 others.
        let error = finished_within(table(1_000_000, 10_000), None, usize::MAX).unwrap_err().to_string();
        assert!(error.contains("more than"), "{error}");
        let error = finished_within(table(10_000, 1_000), None, 1 << 20).unwrap_err();
        assert_eq!(error.status(), 429, "{error}");
    }
}
