//! The formats `csv` and `raw`: a line of names, then a line a row, part by part as rows come.

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use millrace_work::QueryContext;

use super::{ChunkWriter, ROWS_AT_A_TIME, TextReservation, value};
use crate::bind::OutColumn;
use crate::error::{Result, SqlError};
use crate::types::SqlType;

/// Bytes of a part, but for those of its last row.
const PART_BYTES: usize = 256 << 10;

/// Format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// Comma-separated values; cells are sanitised if asked.
    Csv {
        /// `true` if cells that a spreadsheet would take for formulas are made harmless.
        sanitize: bool,
    },
    /// Values separated by `|`; cells are quoted if asked.
    Raw {
        /// `true` if cells with a separator are quoted.
        sanitize: bool,
    },
}

/// The end of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// A line feed.
    #[default]
    LineFeed,
    /// A carriage return and a line feed.
    CarriageReturnLineFeed,
}

impl LineEnd {
    /// Reads the value of the parameter `newLine`.
    pub fn new(text: &str) -> Result<Self> {
        match text {
            "\n" | "\\n" => Ok(Self::LineFeed),
            "\r\n" | "\\r\\n" => Ok(Self::CarriageReturnLineFeed),
            other => Err(SqlError::Request(format!(
                "[newLine] is a line feed, or a carriage return and a line feed, but not [{other}]"
            ))),
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::LineFeed => "\n",
            Self::CarriageReturnLineFeed => "\r\n",
        }
    }
}

impl LineFormat {
    pub(super) fn separator(self) -> char {
        match self {
            Self::Csv { .. } => ',',
            Self::Raw { .. } => '|',
        }
    }

    /// Writes a cell.
    pub(super) fn cell(self, text: &str, out: &mut String) {
        let (formula, quoted) = match self {
            Self::Csv { sanitize: true } => {
                (text.starts_with(['+', '-', '=', '@']), text.contains([',', '"', '\n', '\r']))
            }
            Self::Raw { sanitize: true } => (false, text.contains(['|', '"', '\n', '\r'])),
            Self::Csv { sanitize: false } | Self::Raw { sanitize: false } => (false, false),
        };
        let formula = if formula { "'" } else { "" };
        if quoted {
            out.push('"');
            out.push_str(formula);
            out.push_str(&text.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(formula);
            out.push_str(text);
        }
    }
}

/// Writes rows as lines.
#[derive(Debug)]
pub(crate) struct Lines {
    format: LineFormat,
    end: LineEnd,
    types: Vec<SqlType>,
    /// Text that is not taken yet.
    text: String,
    /// A cell, before it is sanitised.
    cell: String,
    held: TextReservation,
}

impl Lines {
    /// Starts an answer, whose memory is a part of the work's.
    pub(crate) fn new(format: LineFormat, columns: &[OutColumn], work: &QueryContext) -> Self {
        let mut text = String::new();
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                text.push(format.separator());
            }
            format.cell(column.alias.as_deref().unwrap_or(&column.name), &mut text);
        }
        let types = columns.iter().map(|column| column.ty).collect();
        let (end, held) = (LineEnd::default(), TextReservation::new(work));
        Self { format, end, types, text, cell: String::new(), held }
    }

    /// Ends lines so.
    pub(crate) fn with_line_end(self, end: LineEnd) -> Self {
        Self { end, ..self }
    }

    fn row(&mut self, batch: &RecordBatch, row: usize) {
        self.text.push_str(self.end.text());
        for (at, array) in batch.columns().iter().enumerate() {
            if at > 0 {
                self.text.push(self.format.separator());
            }
            self.cell.clear();
            let ty = self.types.get(at).copied().unwrap_or(SqlType::Keyword);
            value::text(array, row, ty, &mut self.cell);
            self.format.cell(&self.cell, &mut self.text);
        }
    }
}

impl ChunkWriter for Lines {
    type Chunk = Bytes;

    fn is_full(&self) -> bool {
        self.text.len() >= PART_BYTES
    }

    fn write(&mut self, batch: &RecordBatch, from: usize) -> Result<usize> {
        let mut row = from;
        while row < batch.num_rows() && !self.is_full() {
            self.held.check()?;
            let end = batch.num_rows().min(row + ROWS_AT_A_TIME);
            while row < end && !self.is_full() {
                self.row(batch, row);
                row += 1;
            }
            self.held.grow_to(self.text.capacity())?;
        }
        Ok(row)
    }

    fn take(&mut self) -> Result<Bytes> {
        let text = std::mem::replace(&mut self.text, String::with_capacity(PART_BYTES + PART_BYTES / 8));
        let held = self.held.again();
        Ok(std::mem::replace(&mut self.held, held).until_dropped(text))
    }

    fn finish(mut self) -> Result<Bytes> {
        self.text.push_str(self.end.text());
        self.held.grow_to(self.text.capacity())?;
        Ok(self.held.until_dropped(self.text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, StringViewArray};

    use super::*;

    fn columns(names: &[&str]) -> Vec<OutColumn> {
        let column = |name: &&str| OutColumn {
            name: (*name).to_owned(),
            alias: None,
            ty: SqlType::Keyword,
            list: false,
            shown: "keyword",
            element: None,
        };
        names.iter().map(column).collect()
    }

    fn head(format: LineFormat, names: &[&str]) -> Bytes {
        Lines::new(format, &columns(names), &QueryContext::default()).finish().unwrap()
    }

    #[test]
    fn cells_are_made_harmless() {
        let names = ["=a", "b,c", "+d,e", "f\"g", "h|i"];
        for (format, expected) in [
            (LineFormat::Csv { sanitize: true }, "'=a,\"b,c\",\"'+d,e\",\"f\"\"g\",h|i\n"),
            (LineFormat::Csv { sanitize: false }, "=a,b,c,+d,e,f\"g,h|i\n"),
            (LineFormat::Raw { sanitize: true }, "=a|b,c|+d,e|\"f\"\"g\"|\"h|i\"\n"),
            (LineFormat::Raw { sanitize: false }, "=a|b,c|+d,e|f\"g|h|i\n"),
        ] {
            assert_eq!(head(format, &names), expected, "{format:?}");
        }
    }

    #[test]
    fn parts_together_are_the_text() {
        let cell = "x".repeat(1_000);
        let cells: ArrayRef = Arc::new(StringViewArray::from_iter_values(vec![cell.as_str(); 1_000]));
        let batch = RecordBatch::try_from_iter([("c0", cells)]).unwrap();
        let mut lines =
            Lines::new(LineFormat::Csv { sanitize: true }, &columns(&["c"]), &QueryContext::default());
        let (mut parts, mut row) = (Vec::new(), 0);
        while row < batch.num_rows() {
            row = lines.write(&batch, row).unwrap();
            if lines.is_full() {
                parts.push(lines.take().unwrap());
            }
        }
        parts.push(lines.finish().unwrap());
        assert!(parts.len() > 3 && parts.iter().all(|part| part.len() <= PART_BYTES + 1_001));
        assert_eq!(parts.concat(), format!("c{}\n", format!("\n{cell}").repeat(1_000)).into_bytes());
    }
}
