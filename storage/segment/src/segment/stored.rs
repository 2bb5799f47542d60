//! Segments in the object store, opened lazily: the footer, the sidecar and the bundle are read
//! when first needed. Who asks for one holds it while it uses it; [`OpenedCache`] keeps those that were used last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use millrace_catalog::description::directory_path;
use millrace_catalog::{ColumnRecord, SegmentRecord};
use millrace_mapping::PathId;
use millrace_runtime::disk::MappedPages;
use millrace_runtime::{Compute, Error, Result};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, ProjectionMask};
use parquet::file::metadata::PageIndexPolicy;
use roaring::RoaringBitmap;
use tokio::runtime::Handle;

use super::cache::{FileCache, FileRequest, LocalFile};
use super::checked::{CheckedBytes, Verifier, decode_sums};
use super::count_cache::CountCache;
use super::damage::DamageRecord;
use super::elements::NestedRecord;
use super::file::{BlockCache, DataFile, Remote, beneath, reading};
use super::ids::Ids;
use super::memory::owned;
use super::opened::{CacheFigures, FileKind, OpenedCache, Slot};
use super::row_selection::select_rows;
use super::values::ValueCache;
use super::{delete_files, layout};
use crate::bundle::{Bundle, FrequentCache, FrequentTerms};
use crate::objects::Objects;

/// Rows decoded at a time.
const BATCH_ROWS: usize = 8_192;
/// Rows decoded at a time where documents are very large.
const LEAST_BATCH_ROWS: usize = 8;
/// Bytes decoded at a time, about.
const BATCH_BYTES: u64 = 32 << 20;
/// Bytes of some columns that a scan decodes at a time, about: several such batches wait for who reads them.
const SCAN_BYTES: u64 = 4 << 20;
/// Bytes of a string's view.
const VIEW_BYTES: u64 = 16;
/// Bytes that a root column takes in the schema of an open file, about.
const FIELD_BYTES: usize = 512;

/// Environment that stored segments share: the source of files and their decoders.
#[derive(Clone, Debug)]
pub struct Env {
    /// The object store of the files.
    pub objects: Arc<Objects>,
    /// The threads that decode.
    pub compute: Compute,
    pub(crate) blocks: Arc<BlockCache>,
    /// Files of a remote store that the local disk has.
    pub files: Arc<FileCache>,
    pub(crate) opened: Arc<OpenedCache>,
    pub(crate) values: Arc<ValueCache>,
    pub(crate) counts: Arc<CountCache>,
    pub(crate) frequent: Arc<FrequentCache>,
    pub(crate) runtime: Handle,
    /// Bytes of segments of deleted indices whose files are still there.
    unfreed_bytes: Arc<AtomicU64>,
}

impl Env {
    /// Reads the figures of the caches, by their names.
    pub fn cache_figures(&self) -> [(&'static str, CacheFigures); 2] {
        [("files", self.files.figures()), ("opened_files", self.opened.figures())]
    }

    /// Returns the bytes of files of deleted indices that go once their last user lets go of them. Those of replaced segments do not count:
    /// a reader that stays would keep retention from any deletion.
    pub fn unfreed_bytes(&self) -> u64 {
        self.unfreed_bytes.load(Ordering::Relaxed)
    }

    /// Makes empty caches, and opens the one of files in a directory. Requests run on the calling task's runtime.
    ///
    /// # Errors
    /// A directory that is of no use.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn open(
        objects: Arc<Objects>,
        compute: Compute,
        cache_dir: std::path::PathBuf,
        cache_bytes: u64,
    ) -> Result<Self> {
        let opened = Arc::new(OpenedCache::default());
        Ok(Self {
            objects,
            compute,
            blocks: Arc::new(BlockCache::default()),
            files: Arc::new(FileCache::open(cache_dir, cache_bytes, Arc::clone(&opened))?),
            opened,
            values: Arc::default(),
            counts: Arc::default(),
            frequent: Arc::default(),
            runtime: Handle::current(),
            unfreed_bytes: Arc::default(),
        })
    }
}

/// The Parquet file of a segment, and its footer.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) file: DataFile,
    pub(super) metadata: ArrowReaderMetadata,
    /// Root columns by path number.
    roots: HashMap<u32, usize>,
}

impl Data {
    /// File and footer.
    pub(super) fn parts(&self) -> (&DataFile, &ArrowReaderMetadata) {
        (&self.file, &self.metadata)
    }

    fn open(file: DataFile) -> Result<(Self, usize)> {
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        let metadata = ArrowReaderMetadata::load(&file, options).map_err(|e| reading(&file.name(), e))?;
        let field_id = |field: &arrow::datatypes::Field| -> Option<u32> {
            field.metadata().get(PARQUET_FIELD_ID_META_KEY)?.parse().ok()
        };
        let fields = metadata.schema().fields().iter().enumerate();
        let roots: HashMap<u32, usize> = fields.filter_map(|(i, f)| Some((field_id(f)?, i))).collect();
        let bytes = metadata.metadata().memory_size() + metadata.schema().fields().len() * FIELD_BYTES;
        Ok((Self { file, metadata, roots }, bytes))
    }
}

/// A segment in the object store.
#[derive(Debug)]
pub struct StoredSegment {
    /// The record of the catalog.
    pub record: SegmentRecord,
    env: Env,
    data: Slot<Data>,
    bundle: Slot<Bundle>,
    ids: Slot<Ids>,
    /// Pages of the files that were mapped last, by kind.
    pages: Mutex<[MappedPages; FileKind::ALL.len()]>,
    /// Set once the bundle of a local store was found to be as it was written.
    verified: Arc<AtomicBool>,
    pub(super) nested: OnceLock<Vec<NestedRecord>>,
    /// `_version` and `_primary_term` where all rows have the same.
    pub(super) constants: OnceLock<[Option<u64>; 2]>,
    /// Bytes of a decoded row, about.
    row_bytes: OnceLock<u64>,
    /// `true` if the columns of the record ascend, as every writer has them.
    ascending: OnceLock<bool>,
    /// Set if the files are to go with the last user of the segment.
    discarded: AtomicBool,
    /// Set if the index was deleted: then the files count as unfreed.
    index_deleted: AtomicBool,
    pub(super) damage: DamageRecord,
}

impl Drop for StoredSegment {
    fn drop(&mut self) {
        let (index, shard, id) = self.place();
        FileKind::ALL.into_iter().for_each(|kind| self.env.opened.forget((id, kind)));
        if !self.discarded.load(Ordering::Relaxed) {
            return;
        }
        FileKind::ALL.into_iter().for_each(|kind| self.env.files.forget((id, kind)));
        let (objects, unfreed) = (Arc::clone(&self.env.objects), Arc::clone(&self.env.unfreed_bytes));
        let bytes = if self.index_deleted.load(Ordering::Relaxed) { self.file_bytes() } else { 0 };
        self.env.runtime.spawn(async move {
            if let Err(error) = delete_files(&objects, index, shard, id).await {
                let directory = directory_path(index, shard, id);
                tracing::warn!(%directory, %error, "cannot delete a replaced segment; the next start will");
            }
            unfreed.fetch_sub(bytes, Ordering::Relaxed);
        });
    }
}

/// Key of a record's `extra` with the checksums of `data.parquet`.
pub(super) const DATA_SUMS: &str = "data_sums";
/// Key of a record's `extra` with the checksums of `ids`.
pub(super) const IDS_SUMS: &str = "ids_sums";

/// Checksums of a file as the catalog keeps them in a segment's `extra`.
pub(super) fn sums_of(record: &SegmentRecord, key: &str, file: &str) -> Result<Vec<u32>> {
    record.extra.get(key).and_then(serde_json::Value::as_str).and_then(decode_sums).ok_or_else(|| {
        Error::Corrupt {
            file: file.to_owned(),
            offset: 0,
            reason: "its checksums are missing from the catalog".to_owned(),
        }
    })
}

pub(super) fn get_or_try_init<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    // Two threads may both make it; one wins, which is harmless for what is only read.
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

impl StoredSegment {
    /// Makes the segment of a catalog record; reads nothing yet.
    pub fn new(record: SegmentRecord, env: Env) -> Self {
        Self {
            record,
            env,
            data: Slot::default(),
            bundle: Slot::default(),
            ids: Slot::default(),
            pages: Mutex::default(),
            verified: Arc::default(),
            nested: OnceLock::new(),
            constants: OnceLock::new(),
            row_bytes: OnceLock::new(),
            ascending: OnceLock::new(),
            discarded: AtomicBool::new(false),
            index_deleted: AtomicBool::new(false),
            damage: DamageRecord::default(),
        }
    }

    /// Has the files deleted once the last search that uses them has ended.
    pub(crate) fn discard(&self) {
        self.discarded.store(true, Ordering::Relaxed);
    }

    /// Has the files of a deleted index deleted once the last search that uses them has ended, and counts them until then.
    pub(crate) fn discard_with_index(&self) {
        self.discard();
        if !self.index_deleted.swap(true, Ordering::Relaxed) {
            self.env.unfreed_bytes.fetch_add(self.file_bytes(), Ordering::Relaxed);
        }
    }

    fn file_bytes(&self) -> u64 {
        layout::SegmentFile::ALL.into_iter().map(|file| file.bytes(&self.record)).sum()
    }

    /// Returns whether the files go with the last search that uses them.
    pub(crate) fn is_discarded(&self) -> bool {
        self.discarded.load(Ordering::Relaxed)
    }

    /// Lets go of the opened files and of their local copies: who comes next opens them anew.
    pub(super) fn reopen(&self) {
        for kind in FileKind::ALL {
            self.env.opened.forget((self.record.id, kind));
            self.env.files.forget((self.record.id, kind));
        }
    }

    /// Gives back the pages of its files that are in memory: behind work that has read them, and that others seldom read.
    pub(super) fn release_pages(&self, kinds: &[FileKind]) {
        let pages = self.pages.lock().clone();
        kinds.iter().for_each(|kind| pages[*kind as usize].release());
    }

    fn place(&self) -> (uuid::Uuid, u32, uuid::Uuid) {
        (self.record.index, self.record.shard, self.record.id)
    }

    /// Returns the Parquet file.
    pub(super) fn data(&self) -> Result<Arc<Data>> {
        if let Some(data) = self.env.opened.get(&self.data) {
            return Ok(data);
        }
        let (index, shard, id) = self.place();
        let path = layout::data(index, shard, id);
        let file: Arc<str> = path.as_ref().into();
        let opened = self.env.opened.get_or_open(&self.data, (id, FileKind::Data), || {
            let sums = sums_of(&self.record, DATA_SUMS, &file)?;
            let verifier = Verifier::new(Arc::clone(&file), sums).noting(&self.damage);
            Data::open(match self.env.objects.map_local_pages(&path)? {
                Some((bytes, pages)) => {
                    self.pages.lock()[FileKind::Data as usize] = pages;
                    DataFile::Whole(CheckedBytes::new(bytes, Arc::new(verifier))?)
                }
                None => DataFile::Remote(Arc::new(Remote {
                    segment: id,
                    path,
                    bytes: self.record.data_bytes,
                    verifier,
                    objects: Arc::clone(&self.env.objects),
                    cache: Arc::clone(&self.env.blocks),
                    runtime: self.env.runtime.clone(),
                })),
            })
        });
        self.damage.note(&file, None, &opened);
        opened
    }

    /// Returns the inverted index.
    pub(crate) fn bundle(&self) -> Result<Arc<Bundle>> {
        if let Some(bundle) = self.env.opened.get(&self.bundle) {
            return Ok(bundle);
        }
        let (index, shard, id) = self.place();
        let path = layout::bundle(index, shard, id);
        let len = self.record.bundle_bytes;
        self.open_file(&self.bundle, FileKind::Bundle, &path, len, |LocalFile { bytes, verified }| {
            // Cut behind the index of its rows, a bundle with nested paths would pass for one without.
            if bytes.len() as u64 != len {
                return Err(Error::Corrupt {
                    file: path.to_string(),
                    offset: bytes.len() as u64,
                    reason: format!("{} bytes, the catalog says {len}", bytes.len()),
                });
            }
            let mut bundle = Bundle::open(owned(&bytes), path.as_ref(), !verified.load(Ordering::Relaxed))?;
            bundle.keep_frequent(&FrequentTerms::new(&self.env.frequent, self.record.id));
            verified.store(true, Ordering::Relaxed);
            let heap_bytes = bundle.heap_bytes();
            Ok((bundle, heap_bytes))
        })
    }

    /// Opens a file that is read as a whole, from the local cache where the store is remote.
    fn open_file<T: Send + Sync + 'static>(
        &self,
        slot: &Slot<T>,
        kind: FileKind,
        path: &object_store::path::Path,
        bytes: u64,
        open: impl FnOnce(LocalFile) -> Result<(T, usize)>,
    ) -> Result<Arc<T>> {
        let opened = self.open_unnoted(slot, kind, path, bytes, open);
        self.damage.note(&path.as_ref().into(), None, &opened);
        opened
    }

    fn open_unnoted<T: Send + Sync + 'static>(
        &self,
        slot: &Slot<T>,
        kind: FileKind,
        path: &object_store::path::Path,
        bytes: u64,
        open: impl FnOnce(LocalFile) -> Result<(T, usize)>,
    ) -> Result<Arc<T>> {
        let key = (self.record.id, kind);
        let local = self.env.objects.map_local_pages(path)?;
        let remote = local.is_none();
        let (file, pages) = match local {
            Some((bytes, pages)) => (LocalFile { bytes, verified: Arc::clone(&self.verified) }, pages),
            None => {
                let request = FileRequest { key, path, bytes, used: slot.used() };
                (FileCache::get(&self.env, &request)?, MappedPages::default())
            }
        };
        let verified = Arc::clone(&file.verified);
        let opened = self.env.opened.get_or_open(slot, key, || {
            self.pages.lock()[kind as usize] = pages;
            open(file)
        });
        if remote && matches!(opened, Err(Error::Corrupt { .. })) {
            // The copy may be what is damaged.
            self.env.files.forget_damaged(key, &verified);
        }
        if remote && self.env.files.is_over() {
            self.env.opened.forget(key);
        }
        opened
    }

    /// Returns the sidecar of client-chosen ids, where the segment has one.
    pub(crate) fn ids(&self) -> Result<Option<Arc<Ids>>> {
        if self.record.ids_bytes == 0 {
            return Ok(None);
        }
        if let Some(ids) = self.env.opened.get(&self.ids) {
            return Ok(Some(ids));
        }
        let (index, shard, id) = self.place();
        let path = layout::ids(index, shard, id);
        self.open_file(
            &self.ids,
            FileKind::Ids,
            &path,
            self.record.ids_bytes,
            |LocalFile { bytes, .. }| {
                let name = path.to_string();
                let sums = sums_of(&self.record, IDS_SUMS, &name)?;
                let heap_bytes = size_of_val(&*sums) + size_of::<Ids>() + name.len();
                let verifier = Verifier::new(name.clone(), sums).noting(&self.damage);
                Ok((Ids::open(CheckedBytes::new(bytes, Arc::new(verifier))?, &name)?, heap_bytes))
            },
        )
        .map(Some)
    }

    /// Finds the root column of a path.
    pub(super) fn root_of(&self, column: PathId) -> Result<Option<usize>> {
        Ok(self.data()?.roots.get(&column.0).copied())
    }

    /// Catalog statistics of a column.
    pub(crate) fn column_record(&self, column: PathId) -> Option<&ColumnRecord> {
        let columns = &self.record.columns;
        match *self.ascending.get_or_init(|| columns.is_sorted_by_key(|c| c.column)) {
            true => columns.binary_search_by_key(&column.0, |c| c.column).ok().and_then(|at| columns.get(at)),
            false => columns.iter().find(|c| c.column == column.0),
        }
    }

    /// Finds the root of a metadata column.
    pub(super) fn named_root(&self, name: &str) -> Result<Option<usize>> {
        Ok(layout::metadata_root(self.data()?.metadata.schema().fields(), name))
    }

    /// Arrow type of a root column.
    pub(super) fn root_type(&self, root: usize) -> Result<arrow::datatypes::DataType> {
        Ok(self.data()?.metadata.schema().field(root).data_type().clone())
    }

    /// Returns the cache of counts.
    pub(super) fn counts(&self) -> &CountCache {
        &self.env.counts
    }

    /// Values that were decoded before.
    pub(super) fn values(&self) -> &ValueCache {
        &self.env.values
    }

    /// Returns whether the file has a metadata column.
    pub fn has_column(&self, name: &str) -> Result<bool> {
        Ok(self.named_root(name)?.is_some())
    }

    /// Counts the root columns.
    pub(crate) fn root_count(&self) -> Result<usize> {
        Ok(self.data()?.metadata.schema().fields().len())
    }

    /// Opens a reader over root columns for the selected rows, all of them without a selection.
    pub(crate) fn reader(
        &self,
        roots: &[usize],
        rows: Option<&RoaringBitmap>,
    ) -> Result<ParquetRecordBatchReader> {
        let data = self.data()?;
        let mask = ProjectionMask::roots(data.metadata.parquet_schema(), roots.iter().copied());
        self.masked_reader(mask, rows)
    }

    /// Opens a reader over root columns that gives batches of as many rows as these columns allow.
    pub(super) fn scanner(
        &self,
        roots: &[usize],
        rows: Option<&RoaringBitmap>,
    ) -> Result<ParquetRecordBatchReader> {
        let data = self.data()?;
        let mask = ProjectionMask::roots(data.metadata.parquet_schema(), roots.iter().copied());
        let row = match data.metadata.metadata().row_groups().first() {
            None => 0,
            // The first rows are about as wide as others.
            Some(group) => {
                let leaves = group.columns().iter().enumerate();
                let wanted = leaves.filter(|(leaf, _)| mask.leaf_included(*leaf));
                let bytes: i64 = wanted.map(|(_, chunk)| chunk.uncompressed_size()).sum();
                u64::try_from(bytes / group.num_rows().max(1)).unwrap_or(0)
            }
        };
        let row = row + VIEW_BYTES * roots.len() as u64;
        let batch = usize::try_from(SCAN_BYTES / row.max(1)).unwrap_or(BATCH_ROWS).clamp(64, BATCH_ROWS);
        self.reader_of(mask, rows, batch)
    }

    /// Opens a reader over some leaves for the selected rows.
    pub(super) fn masked_reader(
        &self,
        mask: ProjectionMask,
        rows: Option<&RoaringBitmap>,
    ) -> Result<ParquetRecordBatchReader> {
        self.reader_of(mask, rows, self.batch_rows())
    }

    fn reader_of(
        &self,
        mask: ProjectionMask,
        rows: Option<&RoaringBitmap>,
        batch_rows: usize,
    ) -> Result<ParquetRecordBatchReader> {
        let data = self.data()?;
        let (file, metadata) = data.parts();
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone())
            .with_projection(mask)
            .with_batch_size(batch_rows);
        if let Some(rows) = rows {
            let (groups, selection) = select_rows(metadata, rows);
            builder = builder.with_row_groups(groups).with_row_selection(selection);
        }
        builder.build().map_err(|e| reading(&file.name(), e))
    }

    /// Estimates the bytes of a decoded row: those of its pages before they were compressed, or of the file several times over,
    /// where that is more.
    pub(super) fn row_bytes(&self) -> u64 {
        *self.row_bytes.get_or_init(|| {
            let by_file = self.record.data_bytes.saturating_mul(8);
            // A file that cannot be opened is told by whoever reads it.
            let by_pages = self.data().map_or(0, |data| {
                let groups = data.metadata.metadata().row_groups().iter();
                groups.map(|group| u64::try_from(group.total_byte_size()).unwrap_or(0)).sum()
            });
            by_file.max(by_pages) / u64::from(self.record.rows.max(1))
        })
    }

    /// Rows decoded at a time: fewer where documents are large.
    pub(super) fn batch_rows(&self) -> usize {
        let rows = usize::try_from(BATCH_BYTES / self.row_bytes().max(1)).unwrap_or(BATCH_ROWS);
        rows.clamp(LEAST_BATCH_ROWS, BATCH_ROWS)
    }

    /// Maps requested columns to root columns of the file; `None` where it lacks one.
    pub(crate) fn roots_of(&self, columns: &[PathId]) -> Result<Vec<Option<usize>>> {
        let data = self.data()?;
        Ok(columns.iter().map(|c| data.roots.get(&c.0).copied()).collect())
    }

    /// Feeds batches of the named columns until `sink` returns false.
    pub fn read_named(
        &self,
        names: &[&str],
        rows: Option<&RoaringBitmap>,
        mut sink: impl FnMut(&RecordBatch) -> bool,
    ) -> Result<()> {
        let mut roots = Vec::with_capacity(names.len());
        for name in names {
            roots.extend(self.named_root(name)?);
        }
        for batch in self.reader(&roots, rows)? {
            let batch = batch.map_err(|e| self.read_error(e))?;
            if !sink(&batch) {
                break;
            }
        }
        Ok(())
    }

    /// Brings an error of the batch reader back to the store's own.
    pub(crate) fn read_error(&self, error: arrow::error::ArrowError) -> Error {
        let name = self.data().map_or_else(|_| self.record.id.to_string(), |data| data.file.name());
        match error {
            arrow::error::ArrowError::ExternalError(inner) => {
                match inner.downcast::<parquet::errors::ParquetError>() {
                    Ok(inner) => reading(&name, *inner),
                    Err(inner) => beneath(&name, inner),
                }
            }
            other => Error::Corrupt { file: name, offset: 0, reason: other.to_string() },
        }
    }

    /// Reads what the first get or write would have to read of the file first, where that needs no
    /// remote store.
    pub fn warm(&self) -> Result<()> {
        let (index, shard, id) = self.place();
        if self.env.objects.map_local(&layout::data(index, shard, id))?.is_some() {
            self.constants()?;
            self.ids()?;
        }
        Ok(())
    }
}
