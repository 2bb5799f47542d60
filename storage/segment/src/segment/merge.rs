//! Makes one stored segment of several: the common work of flush (inputs in memory) and
//! compaction (inputs in the object store).
//!
//! Rows keep the order of the inputs and, within them, their own, unless the index has another
//! (`order.rs`); deleted rows are left out. Postings are merged, not made again. Files are written to a scratch directory and handed back
//! for upload; nothing here commits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};
use millrace_catalog::SegmentRecord;
use millrace_catalog::metadata::SortField;
use millrace_mapping::Mapping;
use millrace_runtime::{CancelSignal, Error, Result};
use roaring::RoaringBitmap;
use serde_json::json;
use uuid::Uuid;

use super::checked::{ChecksumWriter, encode_sums};
use super::elements::{NestedRecord, RECORDS};
use super::ids::{Entry, Fingerprint, Ids, IdsWriter};
use super::layout::{self, SegmentSchema};
use super::opened::FileKind;
use super::order::{Order, RowOrder, SORTED, arrange};
use super::runs::{SortRun, Sorter};
use super::source::Source;
use super::union::{bundles, special, union};
use super::writer::{Writer, WrittenSegment};
use super::{Kind, Memory, Segment, interleave};
use crate::bundle::{self, Bundle, RowMap};

/// A segment to merge and its deleted rows as of the merge's start.
#[derive(Clone, Debug)]
pub struct MergeInput {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Its deleted rows.
    pub deleted: RoaringBitmap,
}

impl MergeInput {
    fn live_rows(&self) -> u32 {
        self.segment.rows() - u32::try_from(self.deleted.len()).unwrap_or(0)
    }
}

/// The files of a new segment, not uploaded yet.
#[derive(Debug)]
pub struct MergeOutput {
    /// The catalog record; `delete_generation` is 0.
    pub record: SegmentRecord,
    /// Object path and scratch file of each file.
    pub files: Vec<(object_store::path::Path, PathBuf)>,
    /// Maps of the rows of each input.
    pub maps: Vec<RowMap>,
    /// Removes what was not uploaded.
    pub(crate) _scratch: ScratchFiles,
}

/// Files under construction, removed at the latest when this is dropped: a merge that fails, perhaps
/// because the disk is full, must not leave them behind.
#[derive(Debug)]
pub(crate) struct ScratchFiles(Vec<PathBuf>);

impl Drop for ScratchFiles {
    fn drop(&mut self) {
        for file in &self.0 {
            if let Err(error) = std::fs::remove_file(file)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(file = %file.display(), %error, "cannot remove a scratch file");
            }
        }
    }
}

/// Target of a new segment, and its options.
#[derive(Clone, Debug)]
pub struct MergeTarget {
    /// Uuid of the index.
    pub index: Uuid,
    /// Number of the shard.
    pub shard: u32,
    /// Level of the new segment.
    pub level: u32,
    /// Level of the compression.
    pub zstd_level: i32,
    /// The order of the index's rows; empty for that of their sequence numbers.
    pub sort: Arc<[SortField]>,
    /// Ends the merge early, with [`Error::Cancelled`] and without files.
    pub cancel: CancelSignal,
}

/// Entries of a sidecar between two checks for the cancellation of the merge.
const ENTRIES_A_CHECK: usize = 8_192;

/// Merges inputs into the files of one segment, on the calling thread and one more beside it.
/// `None`: no row is live.
///
/// # Errors
/// [`Error::Cancelled`] where the target's signal was given before its end; those of files.
pub fn merge(
    inputs: &[MergeInput],
    mapping: &Mapping,
    target: &MergeTarget,
    scratch: &Path,
) -> Result<Option<MergeOutput>> {
    let id = Uuid::new_v4();
    let mut rows = 0u32;
    for input in inputs {
        rows = rows
            .checked_add(input.live_rows())
            .ok_or_else(|| Error::Internal("merge over 2^32 rows".to_owned()))?;
    }
    if rows == 0 {
        return Ok(None);
    }
    let file = |name: &str| scratch.join(format!("{}-{name}", id.simple()));
    let (data_file, bundle_file, ids_file) = (file("data"), file("bundle"), file("ids"));
    let guard = ScratchFiles(vec![data_file.clone(), bundle_file.clone(), ids_file.clone()]);
    let _release = ReleaseGuard(inputs);
    let order = Order::new(&target.sort, mapping);
    let arrangement = arrange(inputs, order.as_ref(), &target.cancel)?;
    let shape = union(inputs)?;
    // The rows and the inverted index are independent: two threads halve the time of a flush.
    let (data, bundle_bytes) = std::thread::scope(|scope| {
        let bundle = scope.spawn(|| {
            merge_bundles(inputs, (arrangement.maps.as_slice(), rows), target, scratch, &bundle_file)
        });
        let layout = Layout { schema: layout::schema(mapping, &shape), shape: &shape, order: order.as_ref() };
        let data = merge_rows(inputs, &arrangement, layout, target, &data_file);
        let bundle =
            bundle.join().unwrap_or_else(|_| Err(Error::Internal("merging postings panicked".to_owned())));
        (data, bundle)
    });
    let (data, bundle_bytes) = (data?, bundle_bytes?);
    release(inputs, &[FileKind::Data, FileKind::Bundle]);
    if data.rows != rows {
        return Err(Error::Internal(format!("merge wrote {} rows of {rows}", data.rows)));
    }
    let ids = merge_ids(inputs, &arrangement, (rows, target), scratch, &ids_file)?;
    let seq_nos = seq_no_range(inputs)?;
    let generated_ids = if ids.is_none() { generated_range(inputs)? } else { None };
    let place = (target.index, target.shard, id);
    let mut files = vec![
        (layout::data(place.0, place.1, place.2), data_file),
        (layout::bundle(place.0, place.1, place.2), bundle_file),
    ];
    let mut extra = json!({ "data_sums": encode_sums(&data.sums) });
    if arrangement.sorted {
        extra[SORTED] = json!(true);
    }
    if !data.nested.is_empty() {
        let outer = |path| shape.nested.iter().find(|nested| nested.path == path).and_then(|n| n.outer);
        let records = data.nested.into_iter().map(|(path, columns)| NestedRecord {
            path: path.0,
            outer: outer(path).map(|outer| outer.0),
            columns,
        });
        extra[RECORDS] = json!(records.collect::<Vec<_>>());
    }
    if let Some((_, sums)) = &ids {
        files.push((layout::ids(place.0, place.1, place.2), ids_file));
        extra["ids_sums"] = json!(encode_sums(sums));
    }
    let record = SegmentRecord {
        id,
        index: target.index,
        shard: target.shard,
        rows,
        data_bytes: data.bytes,
        bundle_bytes,
        ids_bytes: ids.map_or(0, |(bytes, _)| bytes),
        min_seq_no: seq_nos.0,
        max_seq_no: seq_nos.1,
        generated_ids,
        columns: data.columns,
        delete_generation: 0,
        deleted_rows: 0,
        level: target.level,
        extra,
    };
    Ok(Some(MergeOutput { record, files, maps: arrangement.maps, _scratch: guard }))
}

/// Gives back the pages of all files of the inputs when it is dropped.
struct ReleaseGuard<'a>(&'a [MergeInput]);

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        release(self.0, &FileKind::ALL);
    }
}

/// Gives back pages of the inputs' files: a merge reads them once, and segments that are merged go soon.
pub(super) fn release(inputs: &[MergeInput], kinds: &[FileKind]) {
    for input in inputs {
        if let Kind::Stored(stored) = &*input.segment.kind {
            stored.release_pages(kinds);
        }
    }
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).map_err(|e| Error::io("create scratch file", path, e))?;
    Ok(BufWriter::with_capacity(256 << 10, file))
}

fn merge_bundles(
    inputs: &[MergeInput],
    (maps, rows): (&[RowMap], u32),
    target: &MergeTarget,
    scratch: &Path,
    out: &Path,
) -> Result<u64> {
    let mut file = create(out)?;
    let written = |file: BufWriter<File>| -> Result<u64> {
        let file = file.into_inner().map_err(|e| Error::io("write scratch file", out, e.into_error()))?;
        Ok(file.metadata().map_err(|e| Error::io("stat scratch file", out, e))?.len())
    };
    if let ([MergeInput { segment, .. }], [RowMap::Offset(0)]) = (inputs, maps)
        && let Kind::Memory(memory) = &*segment.kind
    {
        file.write_all(&memory.bundle_bytes).map_err(|e| Error::io("write scratch file", out, e))?;
        return written(file);
    }
    let bundles = bundles(inputs, &target.cancel)?;
    let parts: Vec<(&Bundle, RowMap)> = bundles.iter().map(Arc::as_ref).zip(maps.iter().cloned()).collect();
    bundle::merge_cancellable(&parts, rows, scratch, &target.cancel, &mut file)?;
    written(file)
}

/// Layout of the file of the rows.
struct Layout<'a> {
    schema: SchemaRef,
    shape: &'a SegmentSchema,
    order: Option<&'a Order>,
}

fn merge_rows(
    inputs: &[MergeInput],
    arrangement: &RowOrder,
    layout: Layout<'_>,
    target: &MergeTarget,
    out: &Path,
) -> Result<WrittenSegment> {
    let Layout { schema, shape, order } = layout;
    let rows = inputs.iter().map(MergeInput::live_rows).sum();
    let special = special(inputs, shape, rows, &target.cancel)?;
    let sorted = order.filter(|_| arrangement.sorted).map(|order| order.sorting_columns(&schema));
    let sorted = sorted.unwrap_or_default();
    let out_file = create(out)?;
    let mut writer =
        Writer::new(out_file, Arc::clone(&schema), &shape.columns, &special, sorted, target.zstd_level)?;
    if arrangement.mixed {
        interleave::write(inputs, &arrangement.maps, &schema, &target.cancel, &mut writer)?;
    } else {
        for (input, map) in inputs.iter().zip(&arrangement.maps) {
            if let Kind::Stored(stored) = &*input.segment.kind
                && input.deleted.is_empty()
                && writer.takes(stored)?
                && !stored.has_dictionary(&special.plain)?
            {
                writer.copy(stored, &target.cancel)?;
            } else {
                let mut source = Source::open(input, map, &schema)?;
                while let Some(batch) = source.next(&schema)? {
                    target.cancel.check()?;
                    writer.write(&batch)?;
                }
            }
            // The thread that merges postings faults the pages that it still needs in again.
            release(std::slice::from_ref(input), &[FileKind::Data]);
            release(inputs, &[FileKind::Bundle]);
        }
    }
    let (file, written) = writer.finish()?;
    file.into_inner().map_err(|e| Error::io("write scratch file", out, e.into_error()))?;
    Ok(written)
}

/// Writes the sidecar unless every id of every input was generated and rows keep the order of these.
fn merge_ids(
    inputs: &[MergeInput],
    arrangement: &RowOrder,
    (rows, target): (u32, &MergeTarget),
    scratch: &Path,
    out: &Path,
) -> Result<Option<(u64, Vec<u32>)>> {
    let generated = inputs.iter().all(|input| match &*input.segment.kind {
        Kind::Memory(memory) => memory.generated,
        Kind::Stored(stored) => stored.record.ids_bytes == 0,
    });
    if generated && !arrangement.mixed {
        return Ok(None);
    }
    let mut sources = Vec::new();
    for (input, map) in inputs.iter().zip(&arrangement.maps) {
        target.cancel.check()?;
        sources.extend(Entries::open(input, map, scratch, &target.cancel)?);
    }
    let mut heap = BinaryHeap::new();
    for (i, source) in sources.iter_mut().enumerate() {
        if let Some(entry) = source.next()? {
            heap.push(Reverse(MergeHead(entry, i)));
        }
    }
    let mut writer = IdsWriter::new(rows as usize, scratch)?;
    while let Some(Reverse(MergeHead(entry, i))) = heap.pop() {
        writer.push(&entry)?;
        if writer.len().is_multiple_of(ENTRIES_A_CHECK) {
            target.cancel.check()?;
        }
        if let Some(entry) = sources[i].next()? {
            heap.push(Reverse(MergeHead(entry, i)));
        }
    }
    let mut file = ChecksumWriter::new(create(out)?);
    writer.finish(&target.cancel, &mut file)?;
    let (file, bytes, sums) = file.finish();
    file.into_inner().map_err(|e| Error::io("write scratch file", out, e.into_error()))?;
    Ok(Some((bytes, sums)))
}

/// An entry at the head of a source, ordered by fingerprint.
struct MergeHead(Entry, usize);

impl PartialEq for MergeHead {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for MergeHead {}

impl PartialOrd for MergeHead {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MergeHead {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0.fingerprint, self.1).cmp(&(other.0.fingerprint, other.1))
    }
}

/// Live entries of an input in fingerprint order, with their output rows; together its sources have all.
enum Entries<'a> {
    Sidecar { ids: Arc<Ids>, map: &'a RowMap, at: usize },
    Sorted(SortRun),
}

impl<'a> Entries<'a> {
    fn open(
        input: &'a MergeInput,
        map: &'a RowMap,
        scratch: &Path,
        cancel: &CancelSignal,
    ) -> Result<Vec<Self>> {
        let mut sorter = Sorter::new(scratch);
        let mut failed = None;
        let mut first = 0u32;
        let mut take = |batch: &RecordBatch| {
            if let Err(error) = cancel.check() {
                failed = Some(error);
                return false;
            }
            let column = |name: &str| batch.column_by_name(name).map(|a| a.as_primitive::<UInt64Type>());
            let (Some(ids), Some(versions), Some(seq_nos), Some(terms)) = (
                batch.column_by_name(layout::ID).map(|a| a.as_string_view()),
                column(layout::VERSION),
                column(layout::SEQ_NO),
                column(layout::PRIMARY_TERM),
            ) else {
                return false;
            };
            for at in 0..batch.num_rows() {
                if let Some(row) = map.of(first + at as u32) {
                    let pushed = sorter.push(Entry {
                        fingerprint: Fingerprint::new(ids.value(at)),
                        row,
                        version: versions.value(at),
                        seq_no: seq_nos.value(at),
                        primary_term: terms.value(at),
                    });
                    if let Err(error) = pushed {
                        failed = Some(error);
                        return false;
                    }
                }
            }
            first += batch.num_rows() as u32;
            true
        };
        match &*input.segment.kind {
            Kind::Stored(stored) => {
                if let Some(ids) = stored.ids()? {
                    return Ok(vec![Self::Sidecar { ids, map, at: 0 }]);
                }
                let names = [layout::ID, layout::VERSION, layout::SEQ_NO, layout::PRIMARY_TERM];
                stored.read_named(&names, None, &mut take)?;
            }
            Kind::Memory(memory) => {
                take(&memory.rows.batch);
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(sorter.finish()?.into_iter().map(Self::Sorted).collect())
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        match self {
            Self::Sorted(run) => run.next(),
            Self::Sidecar { ids, map, at } => {
                while *at < ids.len() {
                    let entry = ids.entry(*at)?;
                    *at += 1;
                    if let Some(row) = map.of(entry.row) {
                        return Ok(Some(Entry { row, ..entry }));
                    }
                }
                Ok(None)
            }
        }
    }
}

fn memory_bounds(memory: &Memory, deleted: &RoaringBitmap) -> Option<(u32, u32)> {
    let rows = u32::try_from(memory.rows.batch.num_rows()).ok()?;
    let first = (0..rows).find(|row| !deleted.contains(*row))?;
    let last = (0..rows).rev().find(|row| !deleted.contains(*row))?;
    Some((first, last))
}

fn seq_no_range(inputs: &[MergeInput]) -> Result<(u64, u64)> {
    let mut range = (u64::MAX, 0);
    for input in inputs {
        match &*input.segment.kind {
            Kind::Memory(memory) => {
                if let Some((first, last)) = memory_bounds(memory, &input.deleted) {
                    range.0 = range.0.min(memory.located(first).seq_no);
                    range.1 = range.1.max(memory.located(last).seq_no);
                }
            }
            Kind::Stored(stored) => {
                range.0 = range.0.min(stored.record.min_seq_no);
                range.1 = range.1.max(stored.record.max_seq_no);
            }
        }
    }
    Ok(range)
}

fn generated_range(inputs: &[MergeInput]) -> Result<Option<(String, String)>> {
    let mut range: Option<(String, String)> = None;
    for input in inputs {
        let bounds = match &*input.segment.kind {
            // Looked at one by one: rows need not be in the order of their ids.
            Kind::Memory(memory) => memory.rows.metadata(layout::ID).and_then(|ids| {
                let ids = ids.as_string_view();
                let live =
                    (0u32..).zip(ids.iter().flatten()).filter(|(row, _)| !input.deleted.contains(*row));
                let (mut least, mut greatest) = (None::<&str>, None::<&str>);
                for (_, id) in live {
                    least = Some(least.map_or(id, |least| least.min(id)));
                    greatest = greatest.max(Some(id));
                }
                Some((least?.to_owned(), greatest?.to_owned()))
            }),
            Kind::Stored(stored) => stored.record.generated_ids.clone(),
        };
        range = match (range, bounds) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }
    Ok(range)
}
