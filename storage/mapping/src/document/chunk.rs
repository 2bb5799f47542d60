//! Documents in columnar form: [`Chunk`], [`Column`] and their values.

use std::sync::Arc;

use crate::mapping::{ColumnKind, PathId};

/// Documents in columnar form, sparse: a column names the rows that have a value.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Number of documents.
    pub rows: u32,
    /// Columns that have any value, ascending by id.
    pub columns: Vec<Column>,
    /// Nested paths that have any element, ascending by number.
    pub nested: Vec<Elements>,
    /// `(row, field path)` of values that were kept in `_source` but not indexed (`_ignored`),
    /// ascending by row.
    pub ignored: Vec<(u32, Arc<str>)>,
}

/// The elements of a nested path, each a row of a chunk of their own.
#[derive(Clone, Debug)]
pub struct Elements {
    /// Number of the nested path.
    pub path: PathId,
    /// Number of the nested path that it lies in.
    pub outer: Option<PathId>,
    /// Document of each element, ascending.
    pub parents: Vec<u32>,
    /// Element of the outer path that each element lies in, ascending; empty without an outer path.
    pub within: Vec<u32>,
    /// Values of the elements; `nested` and `ignored` are empty in it.
    pub chunk: Chunk,
}

/// The values of one column: `rows` is ascending; a row that repeats has several values.
#[derive(Clone, Debug)]
pub struct Column {
    /// The column's path number.
    pub id: PathId,
    /// Kind of the column.
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
    /// Finds a column by its number.
    pub fn column(&self, id: PathId) -> Option<&Column> {
        self.columns.binary_search_by_key(&id, |column| column.id).ok().map(|at| &self.columns[at])
    }

    /// Estimates the bytes held on the heap.
    pub fn heap_bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(Column::heap_bytes).sum();
        let nested: usize = self.nested.iter().map(Elements::heap_bytes).sum();
        columns
            + nested
            + self.columns.capacity() * size_of::<Column>()
            + self.ignored.capacity() * size_of::<(u32, Arc<str>)>()
    }
}

impl Elements {
    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + (self.parents.capacity() + self.within.capacity()) * 4 + self.chunk.heap_bytes()
    }
}

impl Column {
    fn heap_bytes(&self) -> usize {
        let values = match &self.values {
            Values::Str(strings) => {
                strings.bytes.capacity() + (strings.ends.capacity() + strings.keys.capacity()) * 4
            }
            Values::I64(values) => values.capacity() * 8,
            Values::U64(values) => values.capacity() * 8,
            Values::F64(values) => values.capacity() * 8,
            Values::Bool(values) => values.capacity(),
            Values::Ip(values) => values.capacity() * 16,
            Values::GeoPoint(values) => values.capacity() * 16,
        };
        values + self.rows.capacity() * 4
    }

    /// Returns whether any row has several values.
    pub fn is_multi_valued(&self) -> bool {
        self.rows.windows(2).any(|pair| pair[0] == pair[1])
    }
}

impl Values {
    /// Makes an empty list for a kind of column.
    pub(super) fn empty(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Str => Self::Str(Strings::default()),
            ColumnKind::Int(_) | ColumnKind::DateMs | ColumnKind::DateNanos => Self::I64(Vec::new()),
            ColumnKind::U64 => Self::U64(Vec::new()),
            ColumnKind::F32 | ColumnKind::F64 => Self::F64(Vec::new()),
            ColumnKind::Bool => Self::Bool(Vec::new()),
            ColumnKind::Ip => Self::Ip(Vec::new()),
            ColumnKind::GeoPoint => Self::GeoPoint(Vec::new()),
        }
    }

    /// Removes all values from a length on. Distinct strings stay.
    pub(super) fn truncate(&mut self, len: usize) {
        match self {
            Self::Str(strings) => strings.keys.truncate(len),
            Self::I64(values) => values.truncate(len),
            Self::U64(values) => values.truncate(len),
            Self::F64(values) => values.truncate(len),
            Self::Bool(values) => values.truncate(len),
            Self::Ip(values) => values.truncate(len),
            Self::GeoPoint(values) => values.truncate(len),
        }
    }

    /// Gives back memory that is not used.
    pub(super) fn shrink(&mut self) {
        match self {
            Self::Str(strings) => {
                strings.bytes.shrink_to_fit();
                strings.ends.shrink_to_fit();
                strings.keys.shrink_to_fit();
            }
            Self::I64(values) => values.shrink_to_fit(),
            Self::U64(values) => values.shrink_to_fit(),
            Self::F64(values) => values.shrink_to_fit(),
            Self::Bool(values) => values.shrink_to_fit(),
            Self::Ip(values) => values.shrink_to_fit(),
            Self::GeoPoint(values) => values.shrink_to_fit(),
        }
    }
}

impl Strings {
    /// Counts the distinct values.
    pub fn distinct(&self) -> usize {
        self.ends.len()
    }

    /// Returns the bytes (UTF-8) of a distinct value by its key.
    pub fn get(&self, key: u32) -> &[u8] {
        let start = if key == 0 { 0 } else { self.ends[key as usize - 1] as usize };
        &self.bytes[start..self.ends[key as usize] as usize]
    }

    /// Returns the bytes (UTF-8) of the value at a position.
    pub fn value(&self, position: usize) -> &[u8] {
        self.get(self.keys[position])
    }
}
