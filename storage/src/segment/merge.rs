//! Makes one stored segment of several: the common work of flush (inputs in memory) and
//! compaction (inputs in the object store).
//!
//! Rows keep the order of the inputs and, within them, their own; deleted rows are left out.
//! Postings are merged, not made again. Files are written to a scratch directory and handed back
//! for upload; nothing here commits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};
use roaring::RoaringBitmap;
use serde_json::json;
use uuid::Uuid;

use super::batch::{self, Batch};
use super::checked::{ChecksumWriter, encode_sums};
use super::elements::{NestedRecord, RECORDS};
use super::ids::{Entry, Fingerprint, IdsWriter};
use super::layout::{self, ColumnShape, NestedShape, Optional, Shape};
use super::stored::Stored;
use super::writer::{Writer, Written};
use super::{Kind, Memory, Segment};
use crate::bundle::{self, Bundle, RowMap};
use crate::catalog::{ColumnRecord, SegmentRecord};
use crate::mapping::{Mapping, PathId};
use crate::{Error, Result};

/// A segment to merge and its deleted rows as of the merge's start.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) segment: Arc<Segment>,
    pub(crate) deleted: RoaringBitmap,
}

impl Input {
    fn live_rows(&self) -> u32 {
        self.segment.rows() - u32::try_from(self.deleted.len()).unwrap_or(0)
    }

    /// Row of the output that a row became, if it was live; `base` is the input's first output row.
    pub(crate) fn new_row(&self, base: u32, row: u32) -> Option<u32> {
        if self.deleted.contains(row) {
            return None;
        }
        Some(base + row - u32::try_from(self.deleted.rank(row)).unwrap_or(0))
    }
}

/// The files of a new segment, not uploaded yet.
#[derive(Debug)]
pub(crate) struct Output {
    /// The catalog record; `delete_generation` is 0.
    pub(crate) record: SegmentRecord,
    /// Object path and scratch file of each file.
    pub(crate) files: Vec<(object_store::path::Path, PathBuf)>,
    /// First output row of each input.
    pub(crate) bases: Vec<u32>,
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

/// Where a new segment belongs and how it is written.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) index: Uuid,
    pub(crate) shard: u32,
    pub(crate) level: u32,
    pub(crate) zstd_level: i32,
}

/// Merges inputs into the files of one segment, on the calling thread and one more beside it.
/// `None`: no row is live.
pub(crate) fn merge(
    inputs: &[Input],
    mapping: &Mapping,
    target: &Target,
    scratch: &Path,
) -> Result<Option<Output>> {
    let id = Uuid::new_v4();
    let mut bases = Vec::with_capacity(inputs.len());
    let mut rows = 0u32;
    for input in inputs {
        bases.push(rows);
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
    let shape = union(inputs)?;
    // The rows and the inverted index are independent: two threads halve the time of a flush.
    let (data, bundle_bytes) = std::thread::scope(|scope| {
        let bundle = scope.spawn(|| merge_bundles(inputs, &bases, rows, scratch, &bundle_file));
        let data = merge_rows(inputs, mapping, &shape, target.zstd_level, &data_file);
        let bundle =
            bundle.join().unwrap_or_else(|_| Err(Error::Internal("merging postings panicked".to_owned())));
        (data, bundle)
    });
    let (data, bundle_bytes) = (data?, bundle_bytes?);
    if data.rows != rows {
        return Err(Error::Internal(format!("merge wrote {} rows of {rows}", data.rows)));
    }
    let ids = merge_ids(inputs, &bases, rows, scratch, &ids_file)?;
    let seq_nos = seq_no_range(inputs)?;
    let generated_ids = if ids.is_none() { generated_range(inputs)? } else { None };
    let place = (target.index, target.shard, id);
    let mut files = vec![
        (layout::data(place.0, place.1, place.2), data_file),
        (layout::bundle(place.0, place.1, place.2), bundle_file),
    ];
    let mut extra = json!({ "data_sums": encode_sums(&data.sums) });
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
    Ok(Some(Output { record, files, bases, _scratch: guard }))
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).map_err(|e| Error::io("create scratch file", path, e))?;
    Ok(BufWriter::with_capacity(256 << 10, file))
}

fn merge_bundles(inputs: &[Input], bases: &[u32], rows: u32, scratch: &Path, out: &Path) -> Result<u64> {
    let mut file = create(out)?;
    let written = |file: BufWriter<File>| -> Result<u64> {
        let file = file.into_inner().map_err(|e| Error::io("write scratch file", out, e.into_error()))?;
        Ok(file.metadata().map_err(|e| Error::io("stat scratch file", out, e))?.len())
    };
    if let [Input { segment, deleted }] = inputs
        && let Kind::Memory(memory) = &*segment.kind
        && deleted.is_empty()
    {
        file.write_all(&memory.bundle_bytes).map_err(|e| Error::io("write scratch file", out, e))?;
        return written(file);
    }
    let bundles =
        inputs.iter().map(|input| input.segment.bundle_blocking()).collect::<Result<Vec<Arc<Bundle>>>>()?;
    let maps = inputs.iter().zip(bases).map(|(input, &base)| {
        if input.deleted.is_empty() {
            return RowMap::Offset(base);
        }
        let mut next = base;
        RowMap::Table(
            (0..input.segment.rows())
                .map(|row| {
                    if input.deleted.contains(row) {
                        return u32::MAX;
                    }
                    next += 1;
                    next - 1
                })
                .collect(),
        )
    });
    let parts: Vec<(&Bundle, RowMap)> = bundles.iter().map(Arc::as_ref).zip(maps).collect();
    bundle::merge(&parts, rows, scratch, &mut file)?;
    written(file)
}

/// Columns of the output: all of the inputs, a list where any input has a list.
fn union(inputs: &[Input]) -> Result<Shape> {
    type Lists = BTreeMap<PathId, bool>;
    let mut columns = Lists::new();
    let mut nested: BTreeMap<PathId, (Option<PathId>, Lists)> = BTreeMap::new();
    let mut optional = Optional::default();
    let add = |lists: &mut Lists, column: ColumnShape| {
        *lists.entry(column.id).or_insert(false) |= column.list;
    };
    for input in inputs {
        let shape = match &*input.segment.kind {
            Kind::Memory(memory) => memory.rows.shape(),
            Kind::Stored(stored) => stored_shape(stored)?,
        };
        shape.columns.into_iter().for_each(|column| add(&mut columns, column));
        optional.routing |= shape.optional.routing;
        optional.ignored |= shape.optional.ignored;
        for of_path in shape.nested {
            let (_, lists) = nested.entry(of_path.path).or_insert((of_path.outer, Lists::new()));
            of_path.columns.into_iter().for_each(|column| add(lists, column));
        }
    }
    let shapes =
        |lists: Lists| lists.into_iter().map(|(id, list)| ColumnShape { id, list }).collect::<Vec<_>>();
    let nested = nested.into_iter().map(|(path, (outer, lists))| {
        let columns = shapes(lists);
        NestedShape { path, outer, columns }
    });
    Ok(Shape { nested: nested.collect(), columns: shapes(columns), optional })
}

fn stored_shape(stored: &Stored) -> Result<Shape> {
    let shapes = |columns: &[ColumnRecord]| {
        columns.iter().map(|c| ColumnShape { id: PathId(c.column), list: c.list }).collect()
    };
    let nested = stored.nested_records()?.iter().map(|record| NestedShape {
        path: PathId(record.path),
        outer: record.outer.map(PathId),
        columns: shapes(&record.columns),
    });
    Ok(Shape {
        columns: shapes(&stored.record.columns),
        nested: nested.collect(),
        optional: Optional {
            routing: stored.has_column(layout::ROUTING)?,
            ignored: stored.has_column(layout::IGNORED)?,
        },
    })
}

fn merge_rows(
    inputs: &[Input],
    mapping: &Mapping,
    shape: &Shape,
    zstd_level: i32,
    out: &Path,
) -> Result<Written> {
    let schema = layout::schema(mapping, shape);
    let mut writer = Writer::new(create(out)?, Arc::clone(&schema), &shape.columns, zstd_level)?;
    for input in inputs {
        match &*input.segment.kind {
            Kind::Memory(memory) => {
                let live: Option<Vec<u32>> = (!input.deleted.is_empty())
                    .then(|| (0..input.segment.rows()).filter(|row| !input.deleted.contains(*row)).collect());
                writer.write(&Batch::of_memory(&memory.rows, live.as_deref(), &schema)?)?;
            }
            Kind::Stored(stored) => write_stored(&mut writer, stored, &input.deleted, &schema)?,
        }
    }
    let (file, written) = writer.finish()?;
    file.into_inner().map_err(|e| Error::io("write scratch file", out, e.into_error()))?;
    Ok(written)
}

fn write_stored<W: Write + Send>(
    writer: &mut Writer<W>,
    stored: &Stored,
    deleted: &RoaringBitmap,
    schema: &SchemaRef,
) -> Result<()> {
    let roots: Vec<usize> = (0..stored.root_count()?).collect();
    let mut places: Option<Vec<Option<usize>>> = None;
    let mut base = 0;
    for batch in stored.reader(&roots, None)? {
        let batch = batch.map_err(|e| stored.read_error(e))?;
        let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
        let live = (deleted.range_cardinality(base..base + rows) > 0)
            .then(|| BooleanArray::from_iter((0..rows).map(|row| Some(!deleted.contains(base + row)))));
        let places = places.get_or_insert_with(|| batch::places(schema, batch.schema_ref()));
        writer.write(&Batch::of_file(&batch, places, live.as_ref(), schema)?)?;
        base += rows;
    }
    Ok(())
}

/// Writes the sidecar unless every id of every input was generated.
fn merge_ids(
    inputs: &[Input],
    bases: &[u32],
    rows: u32,
    scratch: &Path,
    out: &Path,
) -> Result<Option<(u64, Vec<u32>)>> {
    let generated = inputs.iter().all(|input| match &*input.segment.kind {
        Kind::Memory(memory) => memory.generated,
        Kind::Stored(stored) => stored.record.ids_bytes == 0,
    });
    if generated {
        return Ok(None);
    }
    let mut sources = inputs
        .iter()
        .zip(bases)
        .map(|(input, &base)| Entries::open(input, base))
        .collect::<Result<Vec<_>>>()?;
    let mut heap = BinaryHeap::new();
    for (i, source) in sources.iter_mut().enumerate() {
        if let Some(entry) = source.next()? {
            heap.push(Reverse(Next(entry, i)));
        }
    }
    let mut writer = IdsWriter::new(rows as usize, scratch)?;
    while let Some(Reverse(Next(entry, i))) = heap.pop() {
        writer.push(&entry)?;
        if let Some(entry) = sources[i].next()? {
            heap.push(Reverse(Next(entry, i)));
        }
    }
    let mut file = ChecksumWriter::new(create(out)?);
    writer.finish(&mut file)?;
    let (file, bytes, sums) = file.finish();
    file.into_inner().map_err(|e| Error::io("write scratch file", out, e.into_error()))?;
    Ok(Some((bytes, sums)))
}

/// An entry at the head of a source, ordered by fingerprint.
struct Next(Entry, usize);

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0.fingerprint, self.1).cmp(&(other.0.fingerprint, other.1))
    }
}

/// The live entries of an input in fingerprint order, with their output rows.
enum Entries<'a> {
    Sidecar { stored: &'a Stored, input: &'a Input, base: u32, at: usize },
    Sorted(std::vec::IntoIter<Entry>),
}

impl<'a> Entries<'a> {
    fn open(input: &'a Input, base: u32) -> Result<Self> {
        let mut entries = Vec::new();
        let mut first = 0u32;
        let mut take = |batch: &RecordBatch| {
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
                if let Some(row) = input.new_row(base, first + at as u32) {
                    entries.push(Entry {
                        fingerprint: Fingerprint::of(ids.value(at)),
                        row,
                        version: versions.value(at),
                        seq_no: seq_nos.value(at),
                        primary_term: terms.value(at),
                    });
                }
            }
            first += batch.num_rows() as u32;
            true
        };
        match &*input.segment.kind {
            Kind::Stored(stored) if stored.record.ids_bytes > 0 => {
                return Ok(Self::Sidecar { stored, input, base, at: 0 });
            }
            Kind::Stored(stored) => {
                let names = [layout::ID, layout::VERSION, layout::SEQ_NO, layout::PRIMARY_TERM];
                stored.read_named(&names, None, &mut take)?;
            }
            Kind::Memory(memory) => {
                take(&memory.rows.batch);
            }
        }
        entries.sort_unstable_by_key(|e| e.fingerprint);
        Ok(Self::Sorted(entries.into_iter()))
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        match self {
            Self::Sorted(entries) => Ok(entries.next()),
            Self::Sidecar { stored, input, base, at } => {
                let Some(ids) = stored.ids()? else { return Ok(None) };
                while *at < ids.len() {
                    let entry = ids.entry(*at)?;
                    *at += 1;
                    if let Some(row) = input.new_row(*base, entry.row) {
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

fn seq_no_range(inputs: &[Input]) -> Result<(u64, u64)> {
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

fn generated_range(inputs: &[Input]) -> Result<Option<(String, String)>> {
    let mut range: Option<(String, String)> = None;
    for input in inputs {
        let bounds = match &*input.segment.kind {
            Kind::Memory(memory) => memory_bounds(memory, &input.deleted).and_then(|(first, last)| {
                let ids = memory.rows.metadata(layout::ID)?.as_string_view();
                Some((ids.value(first as usize).to_owned(), ids.value(last as usize).to_owned()))
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
