//! Ids and sequence numbers of documents as columns, for readers of columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringViewArray};
use millrace_mapping::PathId;
use millrace_runtime::Result;
use millrace_segment::{ColumnBatch, NumberBounds, PageBounds, RowParts, StoredRow};
use roaring::RoaringBitmap;

use crate::reader::SegmentReader;

/// Column of the ids of documents.
pub const ID_COLUMN: PathId = PathId(u32::MAX - 1);
/// Column of the sequence numbers of documents.
pub const SEQ_NO_COLUMN: PathId = PathId(u32::MAX - 2);

/// Rows of a batch where only metadata is read.
const BATCH_ROWS: usize = 8_192;

/// Returns true if a column is of metadata.
pub fn is_metadata_column(column: PathId) -> bool {
    column == ID_COLUMN || column == SEQ_NO_COLUMN
}

/// Reads columns that a segment holds, batch by batch until the sink returns false.
pub(super) type ReadColumns<'a> =
    dyn FnOnce(&[PathId], Option<RoaringBitmap>, &mut dyn FnMut(ColumnBatch) -> bool) -> Result<()> + 'a;

/// Reads columns of which some may be of metadata; `plain` reads the others.
pub(super) fn read(
    reader: &dyn SegmentReader,
    columns: &[PathId],
    rows: Option<RoaringBitmap>,
    sink: &mut dyn FnMut(ColumnBatch) -> bool,
    plain: Box<ReadColumns<'_>>,
) -> Result<()> {
    if !columns.iter().any(|column| is_metadata_column(*column)) {
        return plain(columns, rows, sink);
    }
    let held: Vec<PathId> = columns.iter().copied().filter(|column| !is_metadata_column(*column)).collect();
    if held.is_empty() {
        let rows = rows.unwrap_or_else(|| (0..reader.rows()).collect());
        let mut rows = rows.iter();
        loop {
            let batch: Vec<u32> = rows.by_ref().take(BATCH_ROWS).collect();
            let empty = ColumnBatch { rows: batch, columns: Vec::new() };
            if empty.rows.is_empty() || !sink(with_metadata(reader, columns, empty)?) {
                return Ok(());
            }
        }
    }
    let mut done = Ok(());
    plain(&held, rows, &mut |batch| match with_metadata(reader, columns, batch) {
        Ok(batch) => sink(batch),
        Err(error) => {
            done = Err(error);
            false
        }
    })?;
    done
}

/// Adds the columns of metadata to those of a batch, in the order of `columns`.
fn with_metadata(reader: &dyn SegmentReader, columns: &[PathId], batch: ColumnBatch) -> Result<ColumnBatch> {
    let ColumnBatch { rows, columns: held } = batch;
    let wanted = RowParts { source: false, versions: columns.contains(&SEQ_NO_COLUMN) };
    let stored = reader.fetch(&rows, wanted)?;
    // Rows are fetched in their order.
    let of = |row: &u32| -> Option<&StoredRow> {
        stored.binary_search_by_key(row, |stored| stored.row).ok().and_then(|at| stored.get(at))
    };
    let mut held = held.into_iter();
    let column = |column: &PathId| -> Option<ArrayRef> {
        match *column {
            ID_COLUMN => {
                let ids = rows.iter().map(|row| of(row).map(|stored| stored.id.as_str()));
                Some(Arc::new(StringViewArray::from_iter(ids)))
            }
            SEQ_NO_COLUMN => {
                let numbers = rows.iter().map(|row| of(row).map(|stored| stored.seq_no.cast_signed()));
                Some(Arc::new(Int64Array::from_iter(numbers)))
            }
            _ => held.next(),
        }
    };
    let columns = columns.iter().filter_map(column).collect();
    Ok(ColumnBatch { rows, columns })
}

/// Returns the bounds of a column of metadata: every row has a value.
pub(super) fn bounds(reader: &dyn SegmentReader) -> PageBounds {
    PageBounds { rows: 0..reader.rows(), values: NumberBounds::Unknown, full: true }
}
