//! The format `csv`: a line of names, then a line a row.

use datafusion::arrow::array::RecordBatch;

use super::value;
use crate::bind::OutColumn;
use crate::error::Result;
use crate::types::SqlType;

/// Writes the format.
#[derive(Debug)]
pub(crate) struct Csv {
    types: Vec<SqlType>,
    sanitize: bool,
    out: String,
}

impl Csv {
    pub(super) fn new(columns: &[OutColumn], sanitize: bool) -> Self {
        let mut writer =
            Self { types: columns.iter().map(|column| column.ty).collect(), sanitize, out: String::new() };
        for (at, column) in columns.iter().enumerate() {
            writer.separate(at);
            writer.cell(column.alias.as_deref().unwrap_or(&column.name));
        }
        writer
    }

    fn separate(&mut self, at: usize) {
        if at > 0 {
            self.out.push(',');
        }
    }

    /// Writes a cell: what a spreadsheet would take for a formula is made harmless.
    fn cell(&mut self, text: &str) {
        if !self.sanitize {
            self.out.push_str(text);
            return;
        }
        let formula = if text.starts_with(['+', '-', '=', '@']) { "'" } else { "" };
        match text.contains([',', '"', '\n', '\r']) {
            false => {
                self.out.push_str(formula);
                self.out.push_str(text);
            }
            true => {
                self.out.push('"');
                self.out.push_str(formula);
                self.out.push_str(&text.replace('"', "\"\""));
                self.out.push('"');
            }
        }
    }

    /// Writes rows; returns how many bytes they take by now.
    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<usize> {
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            self.out.push('\n');
            for (at, array) in batch.columns().iter().enumerate() {
                self.separate(at);
                text.clear();
                value::text(array, row, self.types.get(at).copied().unwrap_or(SqlType::Keyword), &mut text);
                self.cell(&text);
            }
        }
        Ok(self.out.capacity())
    }

    pub(super) fn finish(mut self) -> String {
        self.out.push('\n');
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_made_harmless() {
        let column = |name: &str| OutColumn {
            name: name.to_owned(),
            alias: None,
            ty: SqlType::Keyword,
            list: false,
            shown: "keyword",
        };
        let columns = ["=a", "b,c", "+d,e", "f\"g", "h"].map(column);
        assert_eq!(Csv::new(&columns, true).finish(), "'=a,\"b,c\",\"'+d,e\",\"f\"\"g\",h\n");
        assert_eq!(Csv::new(&columns, false).finish(), "=a,b,c,+d,e,f\"g,h\n");
    }
}
