//! The format `raw`: values separated by `|`.

use datafusion::arrow::array::RecordBatch;

use super::value;
use crate::bind::OutColumn;
use crate::error::Result;
use crate::types::SqlType;

/// Writes the format.
#[derive(Debug)]
pub(crate) struct Raw {
    types: Vec<SqlType>,
    sanitize: bool,
    out: String,
}

impl Raw {
    pub(super) fn new(columns: &[OutColumn], sanitize: bool) -> Self {
        let mut writer =
            Self { types: columns.iter().map(|column| column.ty).collect(), sanitize, out: String::new() };
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                writer.out.push('|');
            }
            writer.cell(column.alias.as_deref().unwrap_or(&column.name));
        }
        writer
    }

    fn cell(&mut self, text: &str) {
        match self.sanitize && text.contains(['|', '"', '\n', '\r']) {
            false => self.out.push_str(text),
            true => {
                self.out.push('"');
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
                if at > 0 {
                    self.out.push('|');
                }
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
