//! Immutable segments: Parquet rows beside an inverted index.
// CONTRACT STUB
use std::sync::Arc;

use arrow::array::ArrayRef;
use bytes::Bytes;
use futures::stream::BoxStream;
use roaring::RoaringBitmap;

use crate::Result;
use crate::bundle::Bundle;
use crate::mapping::PathId;

/// A segment and the rows that are deleted in it, as of a snapshot.
#[derive(Clone, Debug)]
pub struct SegmentView {
    /// The immutable segment.
    pub segment: Arc<Segment>,
    /// Rows that are deleted.
    pub deleted: Arc<RoaringBitmap>,
}

impl SegmentView {
    /// Counts the rows that are not deleted.
    pub fn live_rows(&self) -> u32 {
        todo!()
    }
}

/// An immutable segment, in memory or in the object store. Row numbers are `0..rows`.
#[derive(Debug)]
pub struct Segment {}

/// Bounds of a range over a column's values; the variant fits the column.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueRange {
    /// Integers, dates (epoch milliseconds) and date_nanos (epoch nanoseconds), inclusive.
    I64(i64, i64),
    /// unsigned_long, inclusive.
    U64(u64, u64),
    /// Floating point, inclusive; use infinities for open ends.
    F64(f64, f64),
    /// Booleans (false < true), inclusive.
    Bool(bool, bool),
    /// Addresses as 16 big-endian bytes, inclusive.
    Ip([u8; 16], [u8; 16]),
    /// Strings in byte order: bound and whether it is included; `None` is open.
    Str(Option<(String, bool)>, Option<(String, bool)>),
}

/// Rows of some columns. `rows[i]` is the row number of element `i` of every column.
#[derive(Clone, Debug)]
pub struct ColumnBatch {
    /// Row numbers, ascending.
    pub rows: Vec<u32>,
    /// One array a requested column: its element type where the segment holds it as a scalar,
    /// `List` of it where it holds several values, all nulls of the element type where it has none.
    pub columns: Vec<ArrayRef>,
}

/// A row's metadata and source.
#[derive(Clone, Debug)]
pub struct StoredRow {
    /// Row number.
    pub row: u32,
    /// `_id`.
    pub id: String,
    /// `_version`.
    pub version: u64,
    /// `_seq_no`.
    pub seq_no: u64,
    /// `_primary_term`.
    pub primary_term: u64,
    /// `_routing`.
    pub routing: Option<String>,
    /// `_source` verbatim; empty unless asked for.
    pub source: Bytes,
    /// `_ignored`: names of fields whose value was not indexed.
    pub ignored: Vec<String>,
}

impl Segment {
    /// Counts rows, deleted ones included.
    pub fn rows(&self) -> u32 {
        todo!()
    }
    /// Returns the inverted index, fetching it into the local cache first where it is remote.
    pub async fn bundle(&self) -> Result<Arc<Bundle>> {
        todo!()
    }
    /// Finds the rows with any value in the range, among `among` if given. Uses catalog, row-group
    /// and page statistics before it decodes.
    pub async fn range_rows(
        &self,
        _column: PathId,
        _range: &ValueRange,
        _among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap> {
        todo!()
    }
    /// Reads columns for the selected rows (all rows without a selection).
    pub fn scan(
        &self,
        _columns: &[PathId],
        _rows: Option<RoaringBitmap>,
    ) -> BoxStream<'static, Result<ColumnBatch>> {
        todo!()
    }
    /// Finds the rows of the given document ids (for the `ids` query); deleted rows included.
    pub async fn id_rows(&self, _ids: &[String]) -> Result<RoaringBitmap> {
        todo!()
    }
    /// Reads metadata (and the source where asked) of a few rows, in the order given.
    pub async fn fetch(&self, _rows: &[u32], _with_source: bool) -> Result<Vec<StoredRow>> {
        todo!()
    }
}
