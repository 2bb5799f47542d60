//! From JSON bytes to columns: documents are parsed once, by the mapping, straight into a chunk.
// CONTRACT STUB (owner: mapping)
use std::sync::Arc;

use arrow::array::ArrayRef;

use crate::Result;
use crate::mapping::{ColumnKind, Mapping, PathId};

/// Parses documents into a [`Chunk`]; grows a private copy of the mapping by dynamic mapping.
#[derive(Debug)]
pub struct ChunkBuilder {}

impl ChunkBuilder {
    /// Starts a chunk over a mapping.
    pub fn new(_mapping: Arc<Mapping>) -> Self {
        todo!()
    }
    /// Appends one document. On error nothing of it stays, neither values nor new fields.
    pub fn push(&mut self, _id: &str, _source: &[u8]) -> Result<()> {
        todo!()
    }
    /// Ends the chunk. `mapping` is the given one (same `Arc`) where no field is new.
    pub fn finish(self) -> (Chunk, Arc<Mapping>) {
        todo!()
    }
}

/// Documents in columnar form, sparse: a column names the rows that have a value.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Number of documents.
    pub rows: u32,
    /// Columns that have any value, ascending by id.
    pub columns: Vec<Column>,
    /// `(row, field path)` of values that were kept in `_source` but not indexed (`_ignored`),
    /// ascending by row.
    pub ignored: Vec<(u32, Arc<str>)>,
}

/// The values of one column: `rows` is ascending; a row that repeats has several values.
#[derive(Clone, Debug)]
pub struct Column {
    /// The column's path number.
    pub id: PathId,
    /// How values are held.
    pub kind: ColumnKind,
    /// Row of each value.
    pub rows: Vec<u32>,
    /// The values, parallel to `rows`.
    pub values: Values,
}

/// Values of one column.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Values {
    Str(Strings),
    /// Integers of every width, dates in ms, date_nanos in ns.
    I64(Vec<i64>),
    U64(Vec<u64>),
    /// Floating point of every width, already rounded to the field's precision.
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Ip(Vec<[u8; 16]>),
    /// `[lat, lon]`.
    GeoPoint(Vec<[f64; 2]>),
}

/// Dictionary-encoded strings: each distinct value once, a key a value.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    /// Distinct values, one after another.
    pub bytes: Vec<u8>,
    /// End offset of each distinct value in `bytes`.
    pub ends: Vec<u32>,
    /// Key (index into `ends`) of each value.
    pub keys: Vec<u32>,
}

impl Chunk {
    /// Concatenates chunks in order, leaving out the rows for which `keep(chunk, row)` is false.
    pub fn concat(_chunks: &[&Chunk], _keep: &dyn Fn(usize, u32) -> bool) -> Chunk {
        todo!()
    }
    /// Estimates the bytes held on the heap.
    pub fn heap_bytes(&self) -> usize {
        todo!()
    }
}

impl Column {
    /// Converts to Arrow over `rows` documents: the element type when no row has two values, else
    /// `List` of it (empty lists never occur: absent is null).
    pub fn to_array(&self, _rows: u32) -> ArrayRef {
        todo!()
    }
}
