//! Immutable segments: Parquet rows beside an inverted index, in memory or in the object store.
//!
//! [`Segment`] hides where the rows lie. Row numbers are `0..rows`; the document number of the
//! inverted index is the row number of the Parquet file. Deleted rows are not the segment's
//! business: a [`SegmentView`] pairs a segment with the rows that are deleted as of a snapshot.
//! The shard makes segments at refresh, flush and compaction; `millrace-query` reads them. The
//! files are described in `docs/internals/segment-format.md`.

mod batch;
mod cache;
mod checked;
mod columns;
mod copied;
mod count_cache;
mod damage;
mod deletes;
mod documents;
mod elements;
mod file;
mod history;
mod ids;
mod interleave;
pub mod layout;
mod list_rows;
mod lookup;
mod memory;
mod merge;
mod minutes;
mod nested;
mod opened;
mod order;
mod paged;
mod pages;
mod parsed;
mod range;
mod row_selection;
mod rows;
mod runs;
mod source;
mod sparse_file;
mod sparse_group;
mod stored;
mod stored_rows;
mod tally;
mod union;
mod values;
mod verify;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::DataType;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use millrace_catalog::description::{self, directory_path};
use millrace_mapping::PathId;
use millrace_runtime::{Compute, Priority, Result};
use roaring::RoaringBitmap;
use uuid::Uuid;

pub use self::cache::FileCache;
pub use self::damage::is_damage;
pub use self::deletes::{DeletesFile, decode as decode_deletes};
pub use self::documents::Document;
pub use self::file::BlockCache;
pub use self::history::{FrameRangeRows, RequestedRows, RowOrigin};
pub use self::ids::Fingerprint;
pub use self::layout::{
    PRIMARY_TERM, SEQ_NO, bundle as bundle_path, data as data_path, deletes_generation, files,
    ids as ids_path, parse_deletes_name,
};
pub use self::layout::{SegmentFile, file_path};
pub use self::list_rows::list_rows;
pub use self::memory::Memory;
pub use self::merge::{MergeInput, MergeOutput, MergeTarget, merge};
pub use self::minutes::Minutes;
pub use self::nested::Nested;
pub use self::opened::{CacheFigures, OpenedCache};
pub use self::paged::{PagedRange, WINDOW_ROWS, WindowBits};
pub use self::parsed::{ColumnPath, ParsedDocuments};
pub use self::range::{NumberBounds, PageBounds, ValueRange};
pub use self::rows::{MemChunk, StringBuffer};
pub use self::stored::{Env, StoredSegment};
pub use self::tally::Tally;
pub use self::verify::verify_file;
use crate::bundle::Bundle;
use crate::objects::Objects;

/// Keys of segments are unique in the process.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// Returns a key for a segment that no other segment of the process has.
pub fn next_key() -> u64 {
    NEXT_KEY.fetch_add(1, Ordering::Relaxed)
}

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
        self.segment.rows().saturating_sub(u32::try_from(self.deleted.len()).unwrap_or(u32::MAX))
    }
}

/// The files of a stored segment, which this does not keep.
#[derive(Clone, Debug)]
pub struct StoredFiles {
    /// Number of the segment, unique in the process.
    pub key: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    kind: Weak<Kind>,
}

impl StoredFiles {
    /// Returns whether only those who still use them keep them: another segment has taken their place, or the index is deleted.
    pub fn are_replaced(&self) -> bool {
        let kind = self.kind.upgrade();
        kind.is_some_and(|kind| matches!(&*kind, Kind::Stored(stored) if stored.is_discarded()))
    }
}

/// An immutable segment. Row numbers are `0..rows`. Clones share it.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Identity within the process, for maps of locations.
    key: u64,
    compute: Compute,
    kind: Arc<Kind>,
}

#[derive(Debug)]
enum Kind {
    Memory(Memory),
    Stored(Box<StoredSegment>),
}

/// Rows of some columns. `rows[i]` is the row number of element `i` of every column.
#[derive(Clone, Debug)]
pub struct ColumnBatch {
    /// Row numbers, ascending.
    pub rows: Vec<u32>,
    /// One array a requested column: its element type where the segment holds it as a scalar,
    /// `List` of it where it holds several values, all nulls (of Arrow's null type) where it has none.
    pub columns: Vec<ArrayRef>,
}

/// Parts of a row that are read beside `_id`, `_routing` and `_ignored`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowParts {
    /// `_source`.
    pub source: bool,
    /// `_version`, `_seq_no` and `_primary_term`.
    pub versions: bool,
}

impl RowParts {
    /// Everything.
    pub const ALL: Self = Self { source: true, versions: true };
}

/// A row's metadata and source.
#[derive(Clone, Debug)]
pub struct StoredRow {
    /// Row number.
    pub row: u32,
    /// `_id`.
    pub id: String,
    /// `_version`; this and the next two are of no meaning unless asked for.
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

/// Location of a document, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentLocation {
    /// Row number.
    pub row: u32,
    /// Version of the document.
    pub version: u64,
    /// Sequence number of the last operation.
    pub seq_no: u64,
    /// Primary term of that operation.
    pub primary_term: u64,
}

/// Deletes a segment's files. The description goes first: what is left of the others says nothing, should this end
/// before it is done.
///
/// # Errors
/// The object store's.
pub async fn delete_files(objects: &Objects, index: Uuid, shard: u32, segment: Uuid) -> Result<()> {
    objects.delete_durably(&description::segment_path(index, shard, segment)).await?;
    objects.delete_all(&directory_path(index, shard, segment)).await
}

impl Segment {
    /// Makes a segment of rows in memory.
    pub fn memory(key: u64, compute: Compute, memory: Memory) -> Self {
        Self { key, compute, kind: Arc::new(Kind::Memory(memory)) }
    }

    /// Makes a segment of files.
    pub fn stored(key: u64, compute: Compute, stored: StoredSegment) -> Self {
        Self { key, compute, kind: Arc::new(Kind::Stored(Box::new(stored))) }
    }

    /// Returns the key, which no other segment of the process has.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Has the files of a stored segment deleted once nobody uses it any more.
    pub fn discard(&self) {
        if let Kind::Stored(stored) = &*self.kind {
            stored.discard();
        }
    }

    /// Has the files of a stored segment of a deleted index deleted once nobody uses it any more; they count as unfreed until then.
    pub fn discard_with_index(&self) {
        if let Kind::Stored(stored) = &*self.kind {
            stored.discard_with_index();
        }
    }

    /// Returns the rows in memory, if it has such.
    pub fn as_memory(&self) -> Option<&Memory> {
        match &*self.kind {
            Kind::Memory(memory) => Some(memory),
            Kind::Stored(_) => None,
        }
    }

    /// Returns the files, if it has such.
    pub fn as_stored(&self) -> Option<&StoredSegment> {
        match &*self.kind {
            Kind::Memory(_) => None,
            Kind::Stored(stored) => Some(stored),
        }
    }

    /// Returns the number, unique in the process, and the bytes of a segment that lies in memory.
    pub fn in_memory(&self) -> Option<(u64, u64)> {
        self.as_memory().map(|memory| (self.key, memory.heap_bytes))
    }

    /// Returns the files of a stored segment.
    pub fn stored_files(&self) -> Option<StoredFiles> {
        let record = &self.as_stored()?.record;
        let bytes = record.data_bytes.saturating_add(record.bundle_bytes).saturating_add(record.ids_bytes);
        Some(StoredFiles { key: self.key, bytes, kind: Arc::downgrade(&self.kind) })
    }

    /// Estimates the bytes that a row takes once it is read, on average.
    pub fn row_bytes(&self) -> u64 {
        match &*self.kind {
            Kind::Memory(memory) => memory.heap_bytes / u64::from(self.rows().max(1)),
            Kind::Stored(stored) => stored.row_bytes(),
        }
    }

    /// Counts rows, deleted ones included.
    pub fn rows(&self) -> u32 {
        match &*self.kind {
            Kind::Memory(memory) => u32::try_from(memory.rows.batch.num_rows()).unwrap_or(u32::MAX),
            Kind::Stored(stored) => stored.record.rows,
        }
    }

    /// Finds the rows of an id as [`Segment::find`] does, but nothing else about them: that costs less.
    pub fn rows_of(&self, id: &str, fingerprint: Fingerprint) -> Result<RoaringBitmap> {
        match &*self.kind {
            Kind::Memory(memory) => Ok(memory.find(id).iter().map(|located| located.row).collect()),
            Kind::Stored(stored) => stored.rows_of(id, fingerprint),
        }
    }

    /// Returns the inverted index on the calling thread, which may block on a remote store.
    pub fn bundle_blocking(&self) -> Result<Arc<Bundle>> {
        match &*self.kind {
            Kind::Memory(memory) => Ok(Arc::clone(&memory.bundle)),
            Kind::Stored(stored) => stored.bundle(),
        }
    }

    /// Returns the elements of a nested path (its number is [`Mapping::nested_id`](millrace_mapping::Mapping::nested_id))
    /// on the calling thread, which may block on a remote store; `None` where the segment has none.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn nested_blocking(&self, path: PathId) -> Result<Option<Arc<Nested>>> {
        let bundle = self.bundle_blocking()?;
        Ok(bundle.nested_of(path).map(|nested| Arc::new(Nested::new(self.clone(), nested))))
    }

    /// Finds the rows with any value in the range on the calling thread; see [`Segment::range_rows`].
    pub fn range_rows_blocking(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap> {
        if range.is_empty() {
            return Ok(RoaringBitmap::new());
        }
        match &*self.kind {
            Kind::Memory(memory) => Ok(memory.range_rows(column, range, among)),
            Kind::Stored(stored) => stored.range_rows(column, range, among),
        }
    }

    /// Finds the rows of ids on the calling thread.
    pub fn id_rows_blocking(&self, ids: &[String]) -> Result<RoaringBitmap> {
        if let (Kind::Memory(memory), true) = (&*self.kind, ids.len() > 1) {
            return Ok(memory.rows_of(ids));
        }
        let mut rows = RoaringBitmap::new();
        for id in ids {
            rows |= self.rows_of(id, Fingerprint::new(id))?;
        }
        Ok(rows)
    }

    /// Returns the inverted index, fetching it into the local cache first where it is remote.
    pub async fn bundle(&self) -> Result<Arc<Bundle>> {
        if let Kind::Memory(memory) = &*self.kind {
            return Ok(Arc::clone(&memory.bundle));
        }
        let this = self.clone();
        self.compute.run(Priority::Foreground, move || this.bundle_blocking()).await
    }

    /// Finds the rows with any value in the range, among `among` if given. Uses catalog and page
    /// statistics before it decodes.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub async fn range_rows(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap> {
        let (this, range, among) = (self.clone(), range.clone(), among.cloned());
        self.compute
            .run(Priority::Foreground, move || this.range_rows_blocking(column, &range, among.as_ref()))
            .await
    }

    /// Reads columns for the selected rows (all rows without a selection), in batches of about 8,192, or fewer where they are wide.
    pub fn scan(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
    ) -> BoxStream<'static, Result<ColumnBatch>> {
        let this = self.clone();
        let compute = self.compute.clone();
        let columns = columns.to_vec();
        let start = Scan::Start { columns, rows };
        stream::try_unfold((this, start), move |(this, scan)| {
            let compute = compute.clone();
            async move {
                compute
                    .run(Priority::Foreground, move || {
                        Ok(scan.next(&this)?.map(|(batch, scan)| (batch, (this, scan))))
                    })
                    .await
            }
        })
        .boxed()
    }

    /// Reads columns batch by batch on the calling thread until `sink` returns false.
    pub fn scan_blocking(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
        mut sink: impl FnMut(ColumnBatch) -> bool,
    ) -> Result<()> {
        let mut scan = Scan::Start { columns: columns.to_vec(), rows };
        while let Some((batch, next)) = scan.next(self)? {
            if !sink(batch) {
                break;
            }
            scan = next;
        }
        Ok(())
    }

    /// Finds the rows of the given document ids (for the `ids` query); deleted rows included.
    pub async fn id_rows(&self, ids: &[String]) -> Result<RoaringBitmap> {
        let (this, ids) = (self.clone(), ids.to_vec());
        self.compute.run(Priority::Foreground, move || this.id_rows_blocking(&ids)).await
    }

    /// Returns whether a row may have several values of a column.
    pub fn is_list(&self, column: PathId) -> bool {
        match &*self.kind {
            Kind::Memory(memory) => memory.rows.column(column).is_some_and(|found| found.shape.list),
            Kind::Stored(stored) => stored.column_record(column).is_some_and(|record| record.list),
        }
    }

    /// Returns what the catalog knows of a column over the whole segment.
    pub fn column_bounds(&self, column: PathId) -> PageBounds {
        let rows = 0..self.rows();
        match &*self.kind {
            Kind::Memory(memory) => match memory.rows.column(column) {
                Some(_) => PageBounds { rows, values: NumberBounds::Unknown, full: false },
                None => PageBounds { rows, values: NumberBounds::Empty, full: false },
            },
            Kind::Stored(stored) => match stored.column_record(column) {
                Some(record) if record.present > 0 => PageBounds {
                    values: NumberBounds::of_record(&record.min, &record.max),
                    full: record.present == rows.end,
                    rows,
                },
                _ => PageBounds { rows, values: NumberBounds::Empty, full: false },
            },
        }
    }

    /// Returns what the file knows of a column page by page, in row order, on the calling thread.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn pages_blocking(&self, column: PathId) -> Result<Vec<PageBounds>> {
        match &*self.kind {
            Kind::Memory(_) => Ok(vec![self.column_bounds(column)]),
            Kind::Stored(stored) => {
                Ok(stored.pages(column)?.unwrap_or_else(|| vec![self.column_bounds(column)]))
            }
        }
    }

    /// Returns whether the file has many strings of a column, of which few are equal. It may block on a remote store.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn hardly_repeats_blocking(&self, column: PathId) -> Result<bool> {
        match &*self.kind {
            Kind::Memory(_) => Ok(false),
            Kind::Stored(stored) => Ok(stored.repetition(column)?.is_some_and(|own| own.is_distinct())),
        }
    }

    /// Returns the rows of each page of the sources, in their order; none of a segment in memory. It may block on a remote store.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn source_pages_blocking(&self) -> Result<Vec<std::ops::Range<u32>>> {
        match &*self.kind {
            Kind::Memory(_) => Ok(Vec::new()),
            Kind::Stored(stored) => stored.source_pages(),
        }
    }
}

/// Progress of a scan.
enum Scan {
    Start {
        columns: Vec<PathId>,
        rows: Option<RoaringBitmap>,
    },
    /// Batches of a file: reader, place of each requested column in them, row numbers to come.
    Reading {
        reader: Box<parquet::arrow::arrow_reader::ParquetRecordBatchReader>,
        places: Vec<Option<usize>>,
        numbers: Numbers,
    },
    End,
}

/// Numbers of the rows of a scan that are still to come, ascending.
struct Numbers {
    /// The rows that are read; all where absent.
    rows: Option<RoaringBitmap>,
    /// Row that none is before.
    next: u32,
    /// Rows of the segment.
    total: u32,
}

impl Numbers {
    fn take(&mut self, count: usize) -> Vec<u32> {
        let Some(rows) = &self.rows else {
            let first = self.next;
            self.next = self.total.min(first.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)));
            return (first..self.next).collect();
        };
        let mut taken = Vec::with_capacity(count);
        let mut runs = rows.range(self.next.min(self.total)..self.total);
        while let left @ 1.. = count - taken.len()
            && let Some(run) = runs.next_range()
        {
            taken.extend(run.take(left));
        }
        self.next = taken.last().map_or(self.next, |last| last + 1);
        taken
    }
}

impl Scan {
    fn next(self, segment: &Segment) -> Result<Option<(ColumnBatch, Self)>> {
        match self {
            Self::End => Ok(None),
            Self::Start { columns, rows } => match &*segment.kind {
                Kind::Memory(memory) => Ok(Some((memory.read(&columns, rows.as_ref())?, Self::End))),
                Kind::Stored(stored) => {
                    let roots = stored.roots_of(&columns)?;
                    let mut wanted: Vec<usize> = roots.iter().copied().flatten().collect();
                    wanted.sort_unstable();
                    wanted.dedup();
                    let places =
                        roots.iter().map(|r| r.and_then(|r| wanted.binary_search(&r).ok())).collect();
                    let reader = Box::new(stored.scanner(&wanted, rows.as_ref())?);
                    let numbers = Numbers { rows, next: 0, total: stored.record.rows };
                    Self::Reading { reader, places, numbers }.next(segment)
                }
            },
            Self::Reading { mut reader, places, mut numbers } => {
                let Some(batch) = reader.next() else { return Ok(None) };
                let batch = batch.map_err(|e| match &*segment.kind {
                    Kind::Stored(stored) => stored.read_error(e),
                    Kind::Memory(_) => e.into(),
                })?;
                let rows = numbers.take(batch.num_rows());
                let columns = places
                    .iter()
                    .map(|place| match place {
                        Some(at) => Arc::clone(batch.column(*at)),
                        None => new_null_array(&DataType::Null, rows.len()),
                    })
                    .collect();
                Ok(Some((ColumnBatch { rows, columns }, Self::Reading { reader, places, numbers })))
            }
        }
    }
}
