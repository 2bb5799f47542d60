//! The work of one partition of a scan.
//!
//! Everything that touches a segment happens in jobs on the compute threads: a job prepares the
//! predicate for a segment and makes its pass over it. Small segments share a job, since handing
//! one over costs more than they do.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float32Array, RecordBatch, RecordBatchOptions, UInt32Array,
};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use futures::{StreamExt, TryStreamExt, stream};
use millrace_storage::mapping::PathId;
use millrace_storage::segment::{PageBounds, list_rows};
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use tokio::sync::mpsc::Sender;

use super::terms::{self, First, TermOrder};
use super::threshold::{self, Threshold};
use super::{Column, Shared, Top};
use crate::score::collect::{self, Matches, Pass};
use crate::score::prepare::Source;
use crate::table::parts::Part;
use crate::table::{SEGMENT, SHARD};

/// Rows of one batch.
const BATCH_ROWS: usize = 8_192;
/// Rows of the parts that one job visits, at least, where there are more parts.
const JOB_ROWS: u64 = 200_000;
/// Most pages of a key that are read at once while the best are looked for.
const MAX_PAGES: usize = 64;
/// So many matches of a part have their keys read at once, and so many where terms do not lead to the first of them.
const FEW_ROWS: u64 = 4_096;
const MANY_ROWS: u64 = 16 * FEW_ROWS;

impl Shared {
    /// Prepares the predicate for a segment and makes a pass over a part of it. `None` where the segment is
    /// not searched or the search has ended. Blocks; runs on a compute thread.
    pub(super) fn visit<T>(
        &self,
        part: &Part,
        scores: bool,
        work: impl FnOnce(&Source, Pass<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let (table, snapshot) = (&self.table, &self.table.snapshot);
        if table.handle.stop.requested() {
            return Ok(None);
        }
        let Some(segment) = snapshot.segments.get(part.segment as usize) else { return Ok(None) };
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

    fn needs_scores(&self) -> bool {
        self.columns.contains(&Column::Score)
    }

    fn stopped(&self) -> bool {
        self.table.handle.stop.requested()
    }

    /// The columns of an index that the keys are computed from.
    fn key_columns(&self, index: usize) -> Vec<PathId> {
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
    fn keys(
        &self,
        index: usize,
        columns: &[PathId],
        arrays: &[ArrayRef],
        rows: usize,
    ) -> Result<Vec<ArrayRef>> {
        let mut keys = Vec::new();
        for column in &self.columns {
            if let Column::Key(key) = column {
                let key = &self.table.keys[*key];
                let own = key.sources.get(index).and_then(Option::as_ref);
                let place = own.and_then(|own| columns.iter().position(|id| *id == own.column));
                keys.push(key.compute(index, place.and_then(|place| arrays.get(place)), rows)?);
            }
        }
        Ok(keys)
    }

    /// Makes a batch of the columns that are asked for; `keys` are theirs in order.
    fn batch(
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

    /// Counts the matches of parts.
    fn count(&self, group: &[Part]) -> Result<RecordBatch> {
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

    /// Offers the matches of parts to `top`.
    fn offer(&self, group: &[Part], top: &mut collect::Top) -> Result<()> {
        let scores = self.needs_scores();
        for part in group {
            if !self.table.handle.totals.wants_more() && top.passes_over(part.segment) {
                continue;
            }
            self.visit(part, scores, |_, pass| collect::collect_top(&pass, top, scores))?;
        }
        Ok(())
    }

    /// Bounds the codes of a segment's rows by a key.
    fn key_bounds(&self, number: u32, key: usize, threshold: &Threshold) -> (u64, u64) {
        let segment = &self.table.snapshot.segments[number as usize];
        let key = &self.table.keys[key];
        let source = key.sources.get(segment.index).and_then(Option::as_ref);
        let page = match source {
            Some(source) => segment.reader.bounds(source.column),
            None => PageBounds {
                rows: 0..segment.reader.rows(),
                values: millrace_storage::segment::NumberBounds::Empty,
                full: false,
            },
        };
        threshold.bounds(key, source, &page)
    }

    /// Finds the rows of a part that may be among the first by a key: pages that may have the best
    /// are read first, those that cannot meet the threshold are not read.
    fn first_by_key(
        &self,
        part: &Part,
        key: usize,
        threshold: &Threshold,
        order: Option<&TermOrder>,
    ) -> Result<Vec<RecordBatch>> {
        let (number, mut batches) = (part.segment, Vec::new());
        if !threshold.admits_any(threshold::address(number, 0), self.key_bounds(number, key, threshold)) {
            let totals = &self.table.handle.totals;
            if totals.wants_more() || !self.table.handle.budgets.is_empty() {
                self.visit(part, false, |_, pass| collect::count(&pass))?;
            }
            return Ok(batches);
        }
        let index = self.table.snapshot.segments[number as usize].index;
        let columns = self.key_columns(index);
        let table_key = &self.table.keys[key];
        let source_of = table_key.sources.get(index).and_then(Option::as_ref);
        let place = source_of.and_then(|own| columns.iter().position(|column| *column == own.column));
        let mut take = |rows: Vec<u32>, arrays: &[ArrayRef]| -> Result<()> {
            let keys = table_key.compute(index, place.and_then(|place| arrays.get(place)), rows.len())?;
            let Some(codes) = threshold.codes(&keys) else {
                return Err(Error::Execution("a sort key has no number".to_owned()));
            };
            threshold.meet(number, &rows, &codes);
            let admitted = threshold.admits(number, &rows, &codes);
            let rows: Vec<u32> =
                rows.into_iter().zip(&admitted).filter(|(_, wanted)| **wanted).map(|(row, _)| row).collect();
            if rows.is_empty() {
                return Ok(());
            }
            // What else a row needs is made of the few that are left.
            let admitted = BooleanArray::from(admitted);
            let arrays = arrays.iter().map(|array| filter(array, &admitted));
            let arrays = arrays.collect::<std::result::Result<Vec<_>, _>>()?;
            let keys = self.keys(index, &columns, &arrays, rows.len())?;
            batches.push(self.batch(&keys, vec![0.0; rows.len()], vec![number; rows.len()], rows)?);
            Ok(())
        };
        self.visit(part, false, |source, pass| {
            let Some(key_source) = source_of else {
                let (rows, _) = collect::collect_all(&pass, false)?;
                if rows.is_empty() {
                    return Ok(());
                }
                // All rows have the same key here, so later keys and addresses decide.
                return if columns.is_empty() {
                    // Where addresses decide the first rows are the best: as many as are wanted will do.
                    let wanted = match (threshold.by_address(), self.table.options.after_key.is_some()) {
                        (true, false) => threshold.limit(),
                        _ => usize::MAX,
                    };
                    chunks(&rows, wanted).try_for_each(|chunk| take(chunk, &[]))
                } else {
                    read(source, &columns, rows, &mut take)
                };
            };
            let mut matches = Matches::count(pass)?;
            let pages = source.reader.pages(key_source.column)?;
            let mut ordered: Vec<((u64, u64), &PageBounds)> = matches
                .pages(&pages)?
                .into_iter()
                .map(|page| (threshold.bounds(table_key, source_of, page), page))
                .collect();
            ordered.sort_by_key(|(bounds, page)| (bounds.0, page.rows.start));
            // Where the bounds of no page tell it from the others, few matches are read at once, and of many those that the
            // first terms have.
            if let [(first, _), .., (last, _)] = ordered.as_slice()
                && last.0 <= first.1
            {
                let mut read_all = |rows: RoaringBitmap| match rows.is_empty() {
                    true => Ok(()),
                    false => read(source, &columns, rows, &mut take),
                };
                if let Some(few) = matches.few(FEW_ROWS)? {
                    return read_all(few);
                }
                let order = order.filter(|_| terms::are_known(source, key_source));
                if let Some(order) = order
                    && let Some(first) =
                        terms::first_matches(source, table_key, index, order, &matches, &part.rows)?
                {
                    return read_all(first);
                }
                if let Some(all) = matches.few(MANY_ROWS)? {
                    return read_all(all);
                }
                if let Some(order) = order
                    && let Some(all) = matches.few(u64::MAX)?
                {
                    if let Some(first) = terms::first_rows(source, table_key, index, order, &all)? {
                        return read_all(first.rows);
                    }
                    matches = Matches::Known(all);
                }
            }
            let (mut at, mut step) = (0, 1);
            while at < ordered.len() && !self.stopped() {
                let mut selected = RoaringBitmap::new();
                for (bounds, page) in ordered.iter().skip(at).take(step) {
                    if threshold.admits_any(threshold::address(number, page.rows.start), *bounds) {
                        selected.insert_range(collect::overlap(&part.rows, &page.rows));
                    }
                }
                at += step;
                step = (step * 2).min(MAX_PAGES);
                let selected = match selected.is_empty() {
                    true => selected,
                    false => matches.among(&selected)?,
                };
                if !selected.is_empty() {
                    read(source, &columns, selected, &mut take)?;
                }
            }
            Ok(())
        })?;
        Ok(batches)
    }
}

/// Takes row numbers and the arrays of the columns read for them.
type TakeRows<'a> = dyn FnMut(Vec<u32>, &[ArrayRef]) -> Result<()> + 'a;

/// Reads columns of rows batch by batch, from values that are kept where all are numbers.
fn read(source: &Source, columns: &[PathId], rows: RoaringBitmap, take: &mut TakeRows<'_>) -> Result<()> {
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

/// Cuts the first rows of a set into batches.
fn chunks(rows: &RoaringBitmap, limit: usize) -> impl Iterator<Item = Vec<u32>> {
    let mut rows = rows.iter().take(limit);
    std::iter::from_fn(move || {
        let chunk: Vec<u32> = rows.by_ref().take(BATCH_ROWS).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// One partition at work.
pub(super) struct PartitionTask {
    shared: Arc<Shared>,
    group: Vec<Part>,
    reservation: MemoryReservation,
}

/// Rows of one segment with what they need beside keys.
struct Rows {
    number: u32,
    scores: Vec<f32>,
    rows: RoaringBitmap,
    /// What a column has in each row, where it is known.
    values: Option<(PathId, ArrayRef)>,
}

impl PartitionTask {
    /// Makes the task of a partition, which accounts for its memory with `reservation`.
    pub(super) fn new(shared: Arc<Shared>, partition: usize, reservation: MemoryReservation) -> Self {
        let group = shared.groups.get(partition).cloned().unwrap_or_default();
        Self { shared, group, reservation }
    }

    /// Starts the work; batches come as they are found.
    pub(super) fn stream(self, top: Option<Top>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.shared.schema);
        let found = match top {
            Some(Top::Rows { limit, by_score }) => {
                stream::once(self.best_rows(limit, by_score)).map_ok(|batch| vec![batch]).boxed()
            }
            Some(Top::Key { key, threshold, order }) => self.first_rows(key, threshold, order),
            None if self.shared.columns.is_empty() => self.counts(),
            None => return self.streamed(schema, None),
            Some(Top::Term { key, order }) => return self.streamed(schema, Some((key, order))),
        };
        let batches = found
            .map_ok(|batches| stream::iter(batches.into_iter().map(PlanResult::Ok)))
            .map_err(DataFusionError::from)
            .try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    fn streamed(self, schema: SchemaRef, first: Option<(usize, TermOrder)>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(schema, 2);
        let out = stream.tx();
        stream.spawn(async move { self.all_rows(first, out).await.map_err(Into::into) });
        stream.build()
    }

    /// Cuts the partition's parts into jobs.
    fn jobs(&self) -> Vec<Vec<Part>> {
        let mut jobs: Vec<Vec<Part>> = Vec::new();
        let mut filled = JOB_ROWS;
        for part in &self.group {
            if filled >= JOB_ROWS {
                jobs.push(Vec::new());
                filled = 0;
            }
            filled += part.rows.len() as u64;
            if let Some(job) = jobs.last_mut() {
                job.push(part.clone());
            }
        }
        jobs
    }

    fn counts(self) -> stream::BoxStream<'static, Result<Vec<RecordBatch>>> {
        let jobs = self.jobs();
        let shared = self.shared;
        stream::iter(jobs)
            .then(move |job| {
                let shared = Arc::clone(&shared);
                async move {
                    let compute = shared.table.compute.clone();
                    compute.run(move || shared.count(&job)).await.map(|batch| vec![batch])
                }
            })
            .boxed()
    }

    async fn best_rows(self, limit: usize, by_score: bool) -> Result<RecordBatch> {
        self.reservation.try_grow(limit.saturating_mul(size_of::<collect::Found>()))?;
        let shared = &self.shared;
        let cursor = shared.table.options.cursor;
        let top = Arc::new(Mutex::new(collect::Top::new(limit, by_score, cursor)));
        for job in self.jobs() {
            if shared.stopped() {
                break;
            }
            let (shared, top) = (Arc::clone(shared), Arc::clone(&top));
            let compute = shared.table.compute.clone();
            compute.run(move || shared.offer(&job, &mut top.lock())).await?;
        }
        let found = std::mem::replace(&mut *top.lock(), collect::Top::new(0, false, None)).into_sorted();
        if let Some(best) = found.first().filter(|_| shared.needs_scores()) {
            shared.table.handle.saw_score(best.score);
        }
        let segments: Vec<u32> = found.iter().map(|found| found.address.segment).collect();
        let rows: Vec<u32> = found.iter().map(|found| found.address.row).collect();
        let scores: Vec<f32> = found.iter().map(|found| found.score).collect();
        shared.batch(&[], scores, segments, rows)
    }

    fn first_rows(
        self,
        key: usize,
        threshold: Arc<Threshold>,
        order: Option<TermOrder>,
    ) -> stream::BoxStream<'static, Result<Vec<RecordBatch>>> {
        let shared = self.shared;
        let mut group = self.group;
        // Segments that may have the best rows come first, so that the others need not be read. With
        // a bound on matches the order of counting stays.
        if shared.table.handle.budgets.is_empty() {
            group.sort_by_key(|part| (shared.key_bounds(part.segment, key, &threshold).0, part.segment));
        }
        stream::iter(group)
            .then(move |part| {
                let (shared, threshold, order) = (Arc::clone(&shared), Arc::clone(&threshold), order.clone());
                async move {
                    let compute = shared.table.compute.clone();
                    compute.run(move || shared.first_by_key(&part, key, &threshold, order.as_ref())).await
                }
            })
            .boxed()
    }

    /// Sends the rows of all segments with their keys; those that can be among the `first`, if given.
    async fn all_rows(
        self,
        first: Option<(usize, TermOrder)>,
        out: Sender<PlanResult<RecordBatch>>,
    ) -> Result<()> {
        for part in &self.group {
            if self.shared.stopped() {
                break;
            }
            let (shared, part, number) = (Arc::clone(&self.shared), part.clone(), part.segment);
            let compute = shared.table.compute.clone();
            let scores = shared.needs_scores();
            let first = first.clone();
            let collect = move |source: &Source, pass: Pass<'_>, shared: &Shared| -> Result<_> {
                let (rows, scores) = collect::collect_all(&pass, scores)?;
                let all = Rows { number, scores, rows, values: None };
                let Some((key, order)) = first else { return Ok(all) };
                let index = shared.table.snapshot.segments[number as usize].index;
                let first = terms::first_rows(source, &shared.table.keys[key], index, &order, &all.rows)?;
                Ok(match first {
                    Some(First { rows, values }) => Rows { rows, values, ..all },
                    None => all,
                })
            };
            let visit = move || shared.visit(&part, scores, |source, pass| collect(source, pass, &shared));
            let found = compute.run(visit).await?;
            let Some(found) = found else { continue };
            if let Some(best) = found.scores.iter().copied().max_by(f32::total_cmp) {
                self.shared.table.handle.saw_score(best);
            }
            let bytes = found.rows.serialized_size() + found.scores.len() * size_of::<f32>();
            self.reservation.try_grow(bytes)?;
            let go_on = self.emit(&out, found).await?;
            self.reservation.shrink(bytes);
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    /// Sends the rows of a segment with their keys; whether more are wanted.
    async fn emit(&self, out: &Sender<PlanResult<RecordBatch>>, found: Rows) -> Result<bool> {
        let shared = &self.shared;
        let segment = &shared.table.snapshot.segments[found.number as usize];
        let mut at = 0;
        if shared.derives_keys(segment.index) {
            for chunk in chunks(&found.rows, usize::MAX) {
                if shared.stopped() {
                    return Ok(false);
                }
                let (work, number, rows) = (Arc::clone(shared), found.number, chunk.clone());
                let compute = shared.table.compute.clone();
                let keys = compute.run(move || work.derived_keys(number, &rows)).await?;
                if !self.send(out, &found, &mut at, keys, chunk).await? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let columns = shared.key_columns(segment.index);
        if columns.is_empty() {
            for chunk in chunks(&found.rows, usize::MAX) {
                let keys = shared.keys(segment.index, &columns, &[], chunk.len())?;
                if !self.send(out, &found, &mut at, keys, chunk).await? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        if found.rows.is_empty() {
            return Ok(true);
        }
        if let Some((column, values)) = &found.values
            && columns == [*column]
        {
            let rows = list_rows(&found.rows, 0..u32::MAX);
            let keys = shared.keys(segment.index, &columns, std::slice::from_ref(values), rows.len())?;
            return self.send(out, &found, &mut at, keys, rows).await;
        }
        let mut batches = segment.reader.scan(&columns, Some(found.rows.clone()));
        while let Some(batch) = batches.next().await {
            if shared.stopped() {
                return Ok(false);
            }
            let batch = batch?;
            let keys = shared.keys(segment.index, &columns, &batch.columns, batch.rows.len())?;
            if !self.send(out, &found, &mut at, keys, batch.rows).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn send(
        &self,
        out: &Sender<PlanResult<RecordBatch>>,
        found: &Rows,
        at: &mut usize,
        keys: Vec<ArrayRef>,
        rows: Vec<u32>,
    ) -> Result<bool> {
        let scores = match found.scores.is_empty() {
            true => vec![0.0; rows.len()],
            false => {
                let end = (*at + rows.len()).min(found.scores.len());
                let scores = found.scores[*at..end].to_vec();
                *at = end;
                scores
            }
        };
        let batch = self.shared.batch(&keys, scores, vec![found.number; rows.len()], rows)?;
        Ok(out.send(Ok(batch)).await.is_ok())
    }
}
