//! Columns of some rows in one piece.

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use millrace_mapping::PathId;
use millrace_segment::ColumnBatch;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::reader::SegmentReader;

/// Reads columns of rows as one batch: the rows, ascending, and an array of what they have for each column. `None` where
/// nothing is read.
///
/// # Errors
/// As [`SegmentReader::read`].
pub fn read_rows(
    reader: &dyn SegmentReader,
    columns: &[PathId],
    rows: RoaringBitmap,
) -> Result<Option<ColumnBatch>> {
    let mut batches: Vec<ColumnBatch> = Vec::new();
    reader.read(columns, Some(rows), &mut |batch| {
        batches.push(batch);
        true
    })?;
    if batches.len() < 2 {
        return Ok(batches.pop());
    }
    let column = |at: usize| {
        let parts: Vec<&dyn Array> =
            batches.iter().filter_map(|batch| batch.columns.get(at)).map(AsRef::as_ref).collect();
        concat(&parts)
    };
    let columns: Vec<ArrayRef> = (0..columns.len()).map(column).collect::<Result<_, _>>()?;
    let rows = batches.into_iter().flat_map(|batch| batch.rows).collect();
    Ok(Some(ColumnBatch { rows, columns }))
}
