//! Reads of a scan: the predicate made ready, keys of rows, batches.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float32Array, RecordBatch, RecordBatchOptions, UInt32Array};
use millrace_mapping::PathId;
use millrace_runtime::Instant;
use millrace_scoring::collect::{self, SegmentPass};
use millrace_scoring::source::Source;
use millrace_segment::list_rows;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::{Column, ScanState};
use crate::table::partitions::RowPartition;
use crate::table::state::{SEGMENT, SHARD};

/// Rows of one batch.
pub(super) const BATCH_ROWS: usize = 8_192;

/// Rows of one segment with what they need beside keys.
pub(super) struct Rows {
    pub segment: u32,
    /// None where scores are not asked for.
    pub scores: Vec<f32>,
    pub rows: RoaringBitmap,
}

impl ScanState {
    /// Prepares the predicate for a segment and makes a pass over a part of it. `None` where the segment is
    /// not searched or the search has ended. Blocks; runs on a compute thread.
    pub(super) fn visit<T>(
        &self,
        part: &RowPartition,
        scores: bool,
        work: impl FnOnce(&Source, SegmentPass<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let (table, snapshot) = (&self.table, &self.table.snapshot);
        if table.handle.stop.requested() {
            return Ok(None);
        }
        let Some(segment) = snapshot.segments.get(part.segment as usize) else { return Ok(None) };
        // Partitions run in tasks of their own, which know the span of the search by the table alone. Scans of no request have none.
        let span = match table.handle.span.is_disabled() {
            true => tracing::Span::none(),
            false => tracing::debug_span!(parent: &table.handle.span, "segment", rows = part.rows.len()),
        };
        let _entered = span.enter();
        let started = Instant::now();
        let Some(opened) = self.openings.open(snapshot, part, scores)? else { return Ok(None) };
        let prepared_at = Instant::now();
        let pass = opened.pass(table, segment, part.rows.clone(), true);
        let done = work(&opened.source, pass)?;
        if let Some(timing) = table.handle.timings.get(segment.shard as usize) {
            timing.add(prepared_at.duration_since(started), prepared_at.elapsed());
        }
        match opened.failure(snapshot, segment) {
            Some(error) => Err(error),
            None => Ok(Some(done)),
        }
    }

    pub(super) fn needs_scores(&self) -> bool {
        self.columns.contains(&Column::Score)
    }

    pub(super) fn stopped(&self) -> bool {
        self.table.handle.stop.requested()
    }

    /// The columns of an index that the keys are computed from.
    pub(super) fn key_columns(&self, index: usize) -> Vec<PathId> {
        let mut columns: Vec<PathId> = Vec::new();
        for column in &self.columns {
            if let Column::Key(key) = column
                && let Some(Some(key)) = self.table.keys[*key].sources.get(index)
                && key.derived.is_none()
                && !columns.contains(&key.column)
            {
                columns.push(key.column);
            }
        }
        columns
    }

    /// Computes the keys that are asked for from the arrays of `columns`.
    pub(super) fn keys(
        &self,
        index: usize,
        columns: &[PathId],
        arrays: &[ArrayRef],
        rows: usize,
    ) -> Result<Vec<ArrayRef>> {
        let asked = self.columns.iter().filter_map(|column| match column {
            Column::Key(number) => Some(self.key(*number, index, columns, arrays, rows)),
            _ => None,
        });
        asked.collect()
    }

    /// Computes a key from the arrays of `columns`.
    pub(super) fn key(
        &self,
        number: usize,
        index: usize,
        columns: &[PathId],
        arrays: &[ArrayRef],
        rows: usize,
    ) -> Result<ArrayRef> {
        let key = &self.table.keys[number];
        let own = key.sources.get(index).and_then(Option::as_ref);
        let place = own.and_then(|own| columns.iter().position(|id| *id == own.column));
        key.compute(index, place.and_then(|place| arrays.get(place)), rows)
    }

    /// Makes a batch of the columns that are asked for; `keys` are theirs in order.
    pub(super) fn batch(
        &self,
        keys: &[ArrayRef],
        scores: Vec<f32>,
        segments: Vec<u32>,
        rows: Vec<u32>,
    ) -> Result<RecordBatch> {
        let count = rows.len();
        let shards: Vec<u32> = match self.columns.contains(&Column::Shard) {
            true => {
                segments.iter().map(|number| self.table.snapshot.segments[*number as usize].shard).collect()
            }
            false => Vec::new(),
        };
        let (scores, segments): (ArrayRef, ArrayRef) =
            (Arc::new(Float32Array::from(scores)), Arc::new(UInt32Array::from(segments)));
        let (shards, rows): (ArrayRef, ArrayRef) =
            (Arc::new(UInt32Array::from(shards)), Arc::new(UInt32Array::from(rows)));
        let mut keys = keys.iter();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            arrays.push(Arc::clone(match column {
                Column::Key(_) => keys.next().ok_or_else(|| {
                    Error::Execution(format!("a batch of [{SEGMENT}], [{SHARD}] lacks a key"))
                })?,
                Column::Score => &scores,
                Column::Shard => &shards,
                Column::Segment => &segments,
                Column::Row => &rows,
            }));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }

    /// Finds all matches of a part, with scores where these are asked for. `None` as of [`ScanState::visit`].
    pub(super) fn matches(&self, part: &RowPartition) -> Result<Option<Rows>> {
        let asked = self.needs_scores();
        self.visit(part, asked, |_, pass| {
            let (rows, scores) = collect::collect_all(&pass, asked)?;
            Ok(Rows { segment: part.segment, scores, rows })
        })
    }

    /// Counts the matches of parts.
    pub(super) fn count(&self, group: &[RowPartition]) -> Result<RecordBatch> {
        let mut counted = 0;
        for part in group {
            if !self.table.handle.totals.wants_more() {
                break;
            }
            counted += self.visit(part, false, |_, pass| collect::count(&pass))?.unwrap_or(0);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(counted as usize));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), Vec::new(), &options)?)
    }
}

/// Takes row numbers and the arrays of the columns read for them.
pub(super) type TakeRows<'a> = dyn FnMut(Vec<u32>, &[ArrayRef]) -> Result<()> + 'a;

/// Reads columns of rows batch by batch, from values that are kept where all are numbers.
pub(super) fn read(
    source: &Source,
    columns: &[PathId],
    rows: RoaringBitmap,
    take: &mut TakeRows<'_>,
) -> Result<()> {
    let mut kept = Vec::with_capacity(columns.len());
    for column in columns {
        kept.extend(source.reader.numbers(*column, &rows)?);
        if kept.is_empty() {
            break;
        }
    }
    if kept.len() == columns.len() && !kept.is_empty() {
        return take(list_rows(&rows, 0..u32::MAX), &kept);
    }
    let mut done = Ok(());
    source.reader.read(columns, Some(rows), &mut |batch| {
        done = take(batch.rows, &batch.columns);
        done.is_ok()
    })?;
    done
}

/// Cuts rows into batches.
pub(super) fn chunks(rows: &RoaringBitmap) -> impl Iterator<Item = Vec<u32>> {
    let mut rows = rows.iter();
    std::iter::from_fn(move || {
        let chunk: Vec<u32> = rows.by_ref().take(BATCH_ROWS).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}
