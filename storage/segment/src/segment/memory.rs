//! In-memory segments: what a refresh makes of the memtable's tail.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, new_null_array};
use arrow::datatypes::{DataType, UInt64Type};
use bytes::Bytes;
use millrace_mapping::document::Chunk;
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::Result;
use roaring::RoaringBitmap;

use super::columns::Sparse;
use super::range::ValueRange;
use super::rows::{MemChunk, Rows};
use super::{ColumnBatch, DocumentLocation, StoredRow, layout};
use crate::bundle::{self, Bundle};

/// Rows and inverted index in memory.
#[derive(Debug)]
pub struct Memory {
    pub(crate) rows: Rows,
    pub(crate) bundle: Arc<Bundle>,
    /// The bundle's bytes, which a flush of this segment alone writes as they are.
    pub(crate) bundle_bytes: Bytes,
    /// `true` if all ids were generated here and ascend.
    pub(crate) generated: bool,
    /// Rows with generated ids, in runs in which they ascend.
    runs: Vec<Range<usize>>,
    /// Bytes of memory.
    pub heap_bytes: u64,
}

impl Memory {
    /// Builds the segment of the given chunks.
    pub fn build(mapping: &Mapping, chunks: &[Arc<MemChunk>]) -> Result<Self> {
        Self::build_fields(mapping, chunks, None)
    }

    /// As [`Memory::build`], of some of the fields, and their columns, alone.
    pub(crate) fn build_fields(
        mapping: &Mapping,
        chunks: &[Arc<MemChunk>],
        fields: Option<&BTreeSet<PathId>>,
    ) -> Result<Self> {
        let parts: Vec<&Chunk> = chunks.iter().map(|c| &c.chunk).collect();
        let mut merged = Chunk::concat(&parts, &|_, _| true)?;
        if let Some(fields) = fields {
            let columns = fields.iter().filter_map(|id| mapping.field_by_id(*id)).map(|field| field.column);
            let columns: BTreeSet<PathId> = columns.chain(fields.iter().copied()).collect();
            merged.columns.retain(|column| columns.contains(&column.id));
            for nested in &mut merged.nested {
                nested.chunk.columns.retain(|column| columns.contains(&column.id));
            }
        }
        let rows = Rows::build(chunks, &merged)?;
        let bundle_bytes = Bytes::from(bundle::build_some(mapping, &merged, fields)?);
        drop(merged);
        let bundle = Arc::new(Bundle::open(owned(&bundle_bytes), "in-memory segment", false)?);
        let heap_bytes = rows.heap_bytes() as u64 + bundle_bytes.len() as u64;
        let runs = runs(chunks);
        let generated = chunks.iter().all(|c| c.generated) && runs.len() <= 1;
        Ok(Self { rows, bundle, bundle_bytes, generated, runs, heap_bytes })
    }

    /// Finds the row of an id that was generated here.
    pub fn find_generated(&self, id: &str) -> Option<DocumentLocation> {
        let ids = self.rows.metadata(layout::ID)?.as_string_view();
        self.runs.iter().find_map(|run| {
            let (mut low, mut high) = (run.start, run.end);
            while low < high {
                let middle = low + (high - low) / 2;
                if ids.value(middle) < id {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            (low < run.end && ids.value(low) == id).then(|| self.located(low as u32))
        })
    }

    fn u64_at(&self, column: &str, row: usize) -> u64 {
        self.rows.metadata(column).map_or(0, |a| a.as_primitive::<UInt64Type>().value(row))
    }

    /// Returns whether a deleted row is that of an operation that was refused: it never had a version.
    pub fn is_refused(&self, row: u32) -> bool {
        self.u64_at(layout::VERSION, row as usize) == 0
    }

    /// Returns what the write path needs to know of a row.
    pub(crate) fn located(&self, row: u32) -> DocumentLocation {
        let at = row as usize;
        DocumentLocation {
            row,
            version: self.u64_at(layout::VERSION, at),
            seq_no: self.u64_at(layout::SEQ_NO, at),
            primary_term: self.u64_at(layout::PRIMARY_TERM, at),
        }
    }

    /// Finds the rows of an id.
    pub(crate) fn find(&self, id: &str) -> Vec<DocumentLocation> {
        let Some(ids) = self.rows.metadata(layout::ID) else { return Vec::new() };
        let ids = ids.as_string_view();
        if self.generated {
            return self.find_generated(id).into_iter().collect();
        }
        (0..ids.len()).filter(|&row| ids.value(row) == id).map(|row| self.located(row as u32)).collect()
    }

    /// Finds the rows of any of several ids.
    pub(crate) fn rows_of(&self, ids: &[String]) -> RoaringBitmap {
        let Some(column) = self.rows.metadata(layout::ID).filter(|_| !self.generated) else {
            return ids.iter().flat_map(|id| self.find(id)).map(|located| located.row).collect();
        };
        let (column, wanted): (_, HashSet<&str>) =
            (column.as_string_view(), ids.iter().map(String::as_str).collect());
        (0..column.len()).filter(|row| wanted.contains(column.value(*row))).map(|row| row as u32).collect()
    }

    /// Returns rows with their metadata and, where asked, source.
    pub(crate) fn fetch(&self, rows: &[u32], with_source: bool) -> Vec<StoredRow> {
        rows.iter().map(|&row| stored_row(&self.rows.batch, row as usize, row, with_source)).collect()
    }

    /// Finds the rows with a value in the range.
    pub(crate) fn range_rows(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> RoaringBitmap {
        range_rows(self.rows.column(column), range, among)
    }

    /// Reads columns of the selected rows.
    pub(crate) fn read(&self, columns: &[PathId], rows: Option<&RoaringBitmap>) -> Result<ColumnBatch> {
        let total = self.rows.batch.num_rows() as u32;
        read(&|column| self.rows.column(column), total, columns, rows)
    }
}

/// Finds the rows of a column with a value in the range.
pub(super) fn range_rows(
    column: Option<&Sparse>,
    range: &ValueRange,
    among: Option<&RoaringBitmap>,
) -> RoaringBitmap {
    let mut found = column.map_or_else(RoaringBitmap::new, |column| column.range_rows(range));
    if let Some(among) = among {
        found &= among;
    }
    found
}

/// Reads columns of the selected ones of `total` rows.
pub(super) fn read<'a>(
    column: &dyn Fn(PathId) -> Option<&'a Sparse>,
    total: u32,
    columns: &[PathId],
    rows: Option<&RoaringBitmap>,
) -> Result<ColumnBatch> {
    let numbers: Vec<u32> = match rows {
        None => (0..total).collect(),
        Some(rows) => rows.iter().take_while(|&row| row < total).collect(),
    };
    let columns = columns
        .iter()
        .map(|id| match column(*id) {
            None => Ok(new_null_array(&DataType::Null, numbers.len())),
            Some(column) if rows.is_none() => column.to_array(total, column.shape.list),
            Some(column) => column.read(&numbers),
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(ColumnBatch { rows: numbers, columns })
}

/// Rows of the chunks whose ids were generated, in runs in which the ids ascend.
fn runs(chunks: &[Arc<MemChunk>]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let (mut base, mut last) = (0usize, None);
    for chunk in chunks {
        let rows = chunk.rows() as usize;
        if chunk.generated && rows > 0 {
            match runs.last_mut() {
                Some(run) if run.end == base && last.is_some_and(|last| last < chunk.ids.borrow(0)) => {
                    run.end += rows;
                }
                _ => runs.push(base..base + rows),
            }
            last = Some(chunk.ids.borrow(rows - 1));
        }
        base += rows;
    }
    runs
}

/// Makes tantivy's view of a buffer without copying it.
pub(crate) fn owned(bytes: &Bytes) -> tantivy::directory::OwnedBytes {
    #[derive(Clone)]
    struct Stable(Bytes);
    impl std::ops::Deref for Stable {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            &self.0
        }
    }
    // SAFETY: the bytes behind `Bytes` do not move while a clone of it lives, and `Stable` keeps one.
    unsafe impl stable_deref_trait::StableDeref for Stable {}
    tantivy::directory::OwnedBytes::new(Stable(bytes.clone()))
}

/// Reads one row out of a batch in the segment layout; `row` is its number in the segment.
pub(crate) fn stored_row(
    batch: &arrow::array::RecordBatch,
    at: usize,
    row: u32,
    with_source: bool,
) -> StoredRow {
    let number =
        |name: &str| batch.column_by_name(name).map_or(0, |a| a.as_primitive::<UInt64Type>().value(at));
    let text = |name: &str| {
        batch
            .column_by_name(name)
            .map(|a| a.as_string_view())
            .filter(|a| a.is_valid(at))
            .map(|a| a.value(at).to_owned())
    };
    let source = batch
        .column_by_name(layout::SOURCE)
        .filter(|_| with_source)
        .map_or_else(Bytes::new, |array| Bytes::copy_from_slice(array.as_string_view().value(at).as_bytes()));
    let ignored = batch
        .column_by_name(layout::IGNORED)
        .map(|a| a.as_list::<i32>())
        .filter(|a| a.is_valid(at))
        .map_or_else(Vec::new, |array| {
            array.value(at).as_string_view().iter().flatten().map(str::to_owned).collect()
        });
    StoredRow {
        row,
        id: text(layout::ID).unwrap_or_default(),
        version: number(layout::VERSION),
        seq_no: number(layout::SEQ_NO),
        primary_term: number(layout::PRIMARY_TERM),
        routing: text(layout::ROUTING),
        source,
        ignored,
    }
}
