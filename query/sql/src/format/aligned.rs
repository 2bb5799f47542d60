//! The format `raw` for people (`pretty`): each cell is as wide as the widest of its column, so all rows are held until the last one.

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use millrace_work::QueryContext;

use super::{ChunkWriter, LineEnd, LineFormat, ROWS_AT_A_TIME, TextReservation, check_size, value};
use crate::bind::OutColumn;
use crate::error::Result;
use crate::types::SqlType;

/// Writes rows as lines whose cells are aligned.
#[derive(Debug)]
pub(crate) struct AlignedLines {
    format: LineFormat,
    end: LineEnd,
    types: Vec<SqlType>,
    /// Cells, line by line; the first line has the names.
    cells: Vec<String>,
    /// Characters of the widest cell of each column.
    widths: Vec<usize>,
    /// Bytes that the cells take.
    bytes: usize,
    reservation: TextReservation,
}

impl AlignedLines {
    /// Starts an answer, whose memory is a part of the work's.
    pub(crate) fn new(format: LineFormat, end: LineEnd, columns: &[OutColumn], work: &QueryContext) -> Self {
        let types = columns.iter().map(|column| column.ty).collect();
        let (widths, reservation) = (vec![0; columns.len()], TextReservation::new(work));
        let mut lines = Self { format, end, types, cells: Vec::new(), widths, bytes: 0, reservation };
        for (at, column) in columns.iter().enumerate() {
            lines.push(at, column.alias.as_deref().unwrap_or(&column.name));
        }
        lines
    }

    fn push(&mut self, column: usize, text: &str) {
        let mut cell = String::new();
        self.format.cell(text, &mut cell);
        if let Some(width) = self.widths.get_mut(column) {
            *width = cell.chars().count().max(*width);
        }
        self.bytes += size_of::<String>() + cell.capacity();
        self.cells.push(cell);
    }

    /// Counts the bytes of the text, whose cells have blanks behind them.
    fn text_bytes(&self) -> usize {
        let columns = self.widths.len().max(1);
        let lines = self.cells.len() / columns;
        let line = self.widths.iter().sum::<usize>() + columns + self.end.text().len();
        lines.saturating_mul(line).saturating_add(self.bytes)
    }
}

impl ChunkWriter for AlignedLines {
    type Chunk = Bytes;

    fn is_full(&self) -> bool {
        false
    }

    fn write(&mut self, batch: &RecordBatch, from: usize) -> Result<usize> {
        let mut shown = String::new();
        for row in from..batch.num_rows() {
            if row.is_multiple_of(ROWS_AT_A_TIME) {
                self.reservation.check()?;
                self.reservation.grow_to(self.bytes)?;
                check_size(self.text_bytes())?;
            }
            for (at, array) in batch.columns().iter().enumerate() {
                shown.clear();
                let ty = self.types.get(at).copied().unwrap_or(SqlType::Keyword);
                value::text(array, row, ty, &mut shown);
                self.push(at, &shown);
            }
        }
        Ok(batch.num_rows())
    }

    fn take(&mut self) -> Result<Bytes> {
        Ok(Bytes::new())
    }

    fn finish(mut self) -> Result<Bytes> {
        let bytes = self.text_bytes();
        check_size(bytes)?;
        self.reservation.grow_to(self.bytes.saturating_add(bytes))?;
        let mut text = String::with_capacity(bytes);
        for line in self.cells.chunks(self.widths.len().max(1)) {
            for (at, (cell, width)) in line.iter().zip(&self.widths).enumerate() {
                if at > 0 {
                    text.push(self.format.separator());
                }
                text.push_str(cell);
                text.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
            }
            text.push_str(self.end.text());
        }
        Ok(self.reservation.until_dropped(text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, StringViewArray};

    use super::*;

    #[test]
    fn cells_are_as_wide_as_their_columns() {
        let column = |name: &str| OutColumn {
            name: name.to_owned(),
            alias: None,
            ty: SqlType::Keyword,
            list: false,
            shown: "keyword",
            element: None,
        };
        let columns = [column("name"), column("c")];
        let format = LineFormat::Raw { sanitize: true };
        let work = QueryContext::default();
        let mut lines = AlignedLines::new(format, LineEnd::default(), &columns, &work);
        let texts = |texts: [Option<&str>; 2]| Arc::new(StringViewArray::from_iter(texts)) as ArrayRef;
        let columns = [("c0", texts([Some("Zoë"), Some("a|b|c")])), ("c1", texts([None, Some("longer")]))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        assert_eq!(lines.write(&batch, 0).unwrap(), 2);
        let text = lines.finish().unwrap();
        let expected = "name   |c     \nZoë    |      \n\"a|b|c\"|longer\n";
        assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
    }
}
