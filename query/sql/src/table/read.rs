//! Takes the rows that are found through their columns in steps of bounded size, a segment after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float32Array, RecordBatch};
use datafusion::arrow::datatypes::{Float32Type, UInt32Type};
use datafusion::common::Result as PlanResult;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use millrace_mapping::PathId;
use millrace_matching::table::partitions::RowPartition;
use millrace_matching::table::{ROW, SCORE, SEGMENT};
use millrace_segment::WINDOW_ROWS;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;
use tokio::sync::mpsc::Sender;

use super::batch::ScanColumns;
use super::dynamic_filter::KeyRows;
use super::scan::{Output, ScanState};

/// Rows of one batch.
const BATCH_ROWS: usize = 8_192;
/// Rows whose sources are read at a time: sources are large.
const SOURCE_ROWS: usize = 512;

/// Rows of a segment that are found.
pub(super) struct FoundRows {
    rows: RoaringBitmap,
    /// Their scores, where these are asked for.
    scores: Vec<f32>,
    /// Values of a column that are known without reading it, one a row.
    column: Option<(PathId, ArrayRef)>,
}

impl FoundRows {
    /// Takes rows and their scores.
    pub(super) fn new(rows: RoaringBitmap, scores: Vec<f32>) -> Self {
        Self { rows, scores, column: None }
    }
}

/// Iterates over the addresses of the rows of a batch: segment and row.
pub(crate) fn addresses(batch: &RecordBatch) -> Result<impl Iterator<Item = (u32, u32)> + '_> {
    let numbers = |name| batch.column_by_name(name).and_then(|array| array.as_primitive_opt::<UInt32Type>());
    let (Some(segments), Some(rows)) = (numbers(SEGMENT), numbers(ROW)) else {
        return Err(Error::Execution("a scan lacks the addresses of its rows".to_owned()));
    };
    Ok(segments.values().iter().copied().zip(rows.values().iter().copied()))
}

/// Returns the scores of the rows of a batch, if it has any.
pub(crate) fn scores_of(batch: &RecordBatch) -> Option<&Float32Array> {
    batch.column_by_name(SCORE).and_then(|array| array.as_primitive_opt::<Float32Type>())
}

impl ScanState {
    /// Sends the rows of a partition that the scan finds.
    pub(super) async fn run(
        self: Arc<Self>,
        partition: usize,
        out: Sender<PlanResult<RecordBatch>>,
    ) -> Result<()> {
        let mut left = self.limit.unwrap_or(usize::MAX);
        let parts = self.finder.partitions().get(partition).cloned().unwrap_or_default();
        for part in parts {
            if left == 0 {
                break;
            }
            let compute = self.finder.table().compute.clone();
            let (shared, number) = (Arc::clone(&self), part.segment);
            let scores = self.scored && self.outputs.contains(&Output::Score);
            let found = compute.run(move || shared.find(&part, scores)).await?;
            let Some(mut found) = found else { continue };
            if found.rows.len() > left as u64 {
                found.rows = found.rows.iter().take(left).collect();
            }
            left -= usize::try_from(found.rows.len()).unwrap_or(left).min(left);
            if !self.emit(&out, number, found).await? {
                break;
            }
        }
        Ok(())
    }

    /// Finds the rows of a part, without those that no filter by keys of joins lets pass. Blocks; runs on a compute thread.
    fn find(&self, part: &RowPartition, scores: bool) -> Result<Option<FoundRows>> {
        let Some((rows, scores)) = self.finder.rows_of(part, scores)? else { return Ok(None) };
        let (mut left, mut known): (RoaringBitmap, Option<Arc<KeyRows>>) = (rows, None);
        let mut is_filtered = false;
        let all = if scores.is_empty() { RoaringBitmap::new() } else { left.clone() };
        for filter in &self.filters {
            let Some(own) = filter.rows(self.finder.table(), part.segment, left.len())? else { continue };
            left &= &own.rows;
            is_filtered = true;
            known = known.filter(|known| known.has_values()).or(Some(own));
        }
        let scores = match is_filtered {
            true => {
                let scored = all.iter().zip(scores);
                scored.filter(|(row, _)| left.contains(*row)).map(|(_, score)| score).collect()
            }
            false => scores,
        };
        let column = known.and_then(|known| known.values_of(&left));
        Ok(Some(FoundRows { column, ..FoundRows::new(left, scores) }))
    }

    /// Sends the rows that are found elsewhere.
    pub(super) async fn read_first(
        self: Arc<Self>,
        mut first: SendableRecordBatchStream,
        out: Sender<PlanResult<RecordBatch>>,
    ) -> Result<()> {
        while let Some(batch) = first.next().await {
            let batch = batch?;
            let scores = scores_of(&batch).map(|scores| scores.values().as_ref());
            let mut rows: BTreeMap<u32, BTreeMap<u32, Option<f32>>> = BTreeMap::new();
            for (at, (segment, row)) in addresses(&batch)?.enumerate() {
                let score = scores.and_then(|scores| scores.get(at)).copied();
                rows.entry(segment).or_default().insert(row, score);
            }
            for (segment, rows) in rows {
                let scores = rows.values().copied().flatten().collect();
                let found = FoundRows::new(rows.into_keys().collect(), scores);
                if !self.emit(&out, segment, found).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sends the rows of a segment; whether more are wanted.
    pub(super) async fn emit(
        self: &Arc<Self>,
        out: &Sender<PlanResult<RecordBatch>>,
        number: u32,
        found: FoundRows,
    ) -> Result<bool> {
        let FoundRows { rows, scores, column: known } = found;
        if rows.is_empty() {
            return Ok(true);
        }
        let table = self.finder.table();
        let Some(segment) = table.snapshot.segments.get(number as usize) else { return Ok(true) };
        let mut wanted = self.wanted_of(segment, rows.len());
        wanted.marks = self.marked(number, segment.reader.rows(), &rows).await?;
        let place = known.as_ref().and_then(|(column, _)| wanted.ids.iter().position(|id| id == column));
        let known = known.zip(place).map(|((_, array), place)| (place, array));
        let mut read = wanted.ids.clone();
        if let Some((place, _)) = &known {
            read.remove(*place);
        }
        let wanted = Arc::new(wanted);
        if let Some(counts) = &self.counts {
            let (counts, reader) = (Arc::clone(counts), Arc::clone(&segment.reader));
            let (read, source, rows) = (read.clone(), wanted.source, rows.clone());
            counts.add_found(rows.len());
            let compute = &table.compute;
            compute.run(move || counts.add_pages(number, reader.as_ref(), (&read, source), &rows)).await?;
        }
        if wanted.reads_at_once() {
            return self.emit_few(out, number, wanted, rows, scores).await;
        }
        let mut sent = 0;
        let with_known = |mut arrays: Vec<ArrayRef>, from: usize, length: usize| {
            if let Some((place, array)) = &known {
                arrays.insert(*place, array.slice(from, length));
            }
            arrays
        };
        if read.is_empty() {
            let step = if wanted.reads_stored() { SOURCE_ROWS } else { BATCH_ROWS };
            let mut rows = rows.iter();
            loop {
                let chunk: Vec<u32> = rows.by_ref().take(step).collect();
                if chunk.is_empty() {
                    return Ok(true);
                }
                let arrays = with_known(Vec::new(), sent, chunk.len());
                if !self.send(out, number, &wanted, chunk, arrays, &scores, &mut sent).await? {
                    return Ok(false);
                }
            }
        }
        let count = usize::try_from(rows.len()).unwrap_or(usize::MAX);
        let all = rows.len() == u64::from(segment.reader.rows());
        let mut batches = segment.reader.scan(&read, (!all).then_some(rows));
        // Nothing comes behind the last row: to ask for it would be a change of threads.
        while sent < count
            && let Some(batch) = batches.next().await
        {
            let batch = batch?;
            let step = if wanted.reads_stored() { SOURCE_ROWS } else { batch.rows.len().max(1) };
            let mut at = 0;
            for chunk in batch.rows.chunks(step) {
                let arrays = batch.columns.iter().map(|array| array.slice(at, chunk.len())).collect();
                let arrays = with_known(arrays, sent, chunk.len());
                at += chunk.len();
                if !self.send(out, number, &wanted, chunk.to_vec(), arrays, &scores, &mut sent).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Sends few rows of a segment: all that is read of them is read in one job.
    async fn emit_few(
        self: &Arc<Self>,
        out: &Sender<PlanResult<RecordBatch>>,
        number: u32,
        wanted: Arc<ScanColumns>,
        rows: RoaringBitmap,
        scores: Vec<f32>,
    ) -> Result<bool> {
        let table = self.finder.table();
        if table.handle.stop.requested() {
            return Ok(false);
        }
        let shared = Arc::clone(self);
        let read = move || shared.batches_of_few(number, &wanted, rows, &scores);
        for batch in table.compute.run(read).await? {
            if out.send(Ok(batch)).await.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds the rows of a segment for which clauses hold that have a column, among those of the windows of some rows.
    async fn marked(
        &self,
        segment: u32,
        count: u32,
        rows: &RoaringBitmap,
    ) -> Result<Vec<(usize, RoaringBitmap)>> {
        let mut marked = Vec::with_capacity(self.marks.len());
        let (Some(first), Some(last)) = (rows.min(), rows.max()) else { return Ok(marked) };
        let start = first - first % WINDOW_ROWS;
        let end = (last - last % WINDOW_ROWS).saturating_add(WINDOW_ROWS).min(count);
        for (at, finder) in &self.marks {
            let (at, finder) = (*at, finder.clone());
            if !self.outputs.contains(&Output::Mark(at)) {
                continue;
            }
            let part = RowPartition { segment, rows: start..end };
            let found = self.finder.table().compute.run(move || finder.rows_of(&part, false)).await?;
            marked.push((at, found.map(|(rows, _)| rows).unwrap_or_default()));
        }
        Ok(marked)
    }

    #[allow(clippy::too_many_arguments)]
    async fn send(
        self: &Arc<Self>,
        out: &Sender<PlanResult<RecordBatch>>,
        number: u32,
        wanted: &Arc<ScanColumns>,
        rows: Vec<u32>,
        arrays: Vec<ArrayRef>,
        scores: &[f32],
        sent: &mut usize,
    ) -> Result<bool> {
        if wanted.elements {
            let (shared, of) = (Arc::clone(self), rows.clone());
            let compute = self.finder.table().compute.clone();
            let lengths = compute.run(move || shared.element_steps(number, &of)).await?;
            let mut at = 0;
            for length in lengths {
                let some = rows.get(at..at + length).unwrap_or_default().to_vec();
                let arrays = arrays.iter().map(|array| array.slice(at, length)).collect();
                at += length;
                if !self.send_step(out, number, wanted, some, arrays, scores, sent).await? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        self.send_step(out, number, wanted, rows, arrays, scores, sent).await
    }

    /// Sends the outputs of rows whose elements are few enough for one batch.
    #[allow(clippy::too_many_arguments)]
    async fn send_step(
        self: &Arc<Self>,
        out: &Sender<PlanResult<RecordBatch>>,
        number: u32,
        wanted: &Arc<ScanColumns>,
        rows: Vec<u32>,
        arrays: Vec<ArrayRef>,
        scores: &[f32],
        sent: &mut usize,
    ) -> Result<bool> {
        if self.finder.table().handle.stop.requested() {
            return Ok(false);
        }
        let own = scores.get(*sent..(*sent + rows.len()).min(scores.len())).unwrap_or_default().to_vec();
        *sent += rows.len();
        let batch = match wanted.blocks() {
            true => {
                let (shared, wanted) = (Arc::clone(self), Arc::clone(wanted));
                let compute = self.finder.table().compute.clone();
                compute.run(move || shared.batch(number, &wanted, rows, &arrays, own)).await?
            }
            // Columns come decoded: another change of threads would cost more than what is left.
            false => self.batch(number, wanted, rows, &arrays, own)?,
        };
        for batch in self.split(number, batch)? {
            if out.send(Ok(batch)).await.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
