//! The leaf of every search plan: finds rows by the index predicate, where it runs.
//!
//! One partition is a run of consecutive segments. What a partition does depends on what is asked
//! of it: nothing but a count (no columns), the best rows ([`TopRows`], set by the rule in
//! [`super::top_k`]), or all rows with their keys, as a stream of batches.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float32Array, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use futures::StreamExt;
use millrace_storage::mapping::PathId;
use roaring::RoaringBitmap;
use tokio::sync::mpsc::Sender;

use super::node::Resolved;
use super::predicate::Predicate;
use super::statistics::Functions;
use super::{ROW, SCORE, SEGMENT, SHARD, TableSegment, TableState};
use crate::error::{Error, Result};
use crate::score::collect::{self, Pass, Top};
use crate::score::prepare::{Prepared, Source, prepare};

/// Rows of one batch.
const BATCH_ROWS: usize = 8_192;
/// Least rows of a partition: below, another thread costs more than it does.
const PARTITION_ROWS: u64 = 50_000;

/// The best rows of each partition instead of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopRows {
    /// How many.
    pub limit: usize,
    /// Whether the best are those of the greatest score, else the first.
    pub by_score: bool,
}

/// An output column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Key(usize),
    Score,
    Shard,
    Segment,
    Row,
}

/// The scan of a predicate over segments.
#[derive(Clone, Debug)]
pub(crate) struct IndexScanExec {
    shared: Arc<Shared>,
    top: Option<TopRows>,
    properties: Arc<PlanProperties>,
}

/// What the partitions of a scan share.
#[derive(Debug)]
struct Shared {
    table: Arc<TableState>,
    predicate: Predicate,
    resolved: Vec<Option<Resolved>>,
    columns: Vec<Column>,
    schema: SchemaRef,
    /// Segment numbers of each partition.
    groups: Vec<Vec<u32>>,
    functions: Functions,
}

impl IndexScanExec {
    /// Makes a scan of `projection` of the table's schema, in at most `partitions` partitions.
    pub(crate) fn new(
        table: Arc<TableState>,
        schema: &SchemaRef,
        predicate: Predicate,
        resolved: Vec<Option<Resolved>>,
        projection: Vec<usize>,
        partitions: usize,
    ) -> PlanResult<Self> {
        let keys = table.keys.len();
        let columns = projection
            .iter()
            .map(|at| match at.checked_sub(keys) {
                None => Column::Key(*at),
                Some(0) => Column::Score,
                Some(1) => Column::Shard,
                Some(2) => Column::Segment,
                Some(_) => Column::Row,
            })
            .collect();
        let schema = Arc::new(schema.project(&projection)?);
        // A shard that may stop early counts its matches in order.
        let partitions = if table.options.terminate_after > 0 { 1 } else { partitions };
        let groups = group(&table.snapshot.segments, &resolved, partitions);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(groups.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let functions = Functions::new(table.snapshot.shards, table.options.global_statistics);
        let shared = Shared { table, predicate, resolved, columns, schema, groups, functions };
        Ok(Self { shared: Arc::new(shared), top: None, properties: Arc::new(properties) })
    }

    /// Keeps the best rows of each partition only. The caller knows that no key column is asked for.
    pub(crate) fn with_top(&self, top: TopRows) -> Self {
        Self { top: Some(top), ..self.clone() }
    }

    /// Whether rows come with nothing but score and address.
    pub(crate) fn is_keyless(&self) -> bool {
        !self.shared.columns.iter().any(|column| matches!(column, Column::Key(_)))
    }
}

/// Cuts segments into runs of about as many rows.
fn group(segments: &[TableSegment], resolved: &[Option<Resolved>], partitions: usize) -> Vec<Vec<u32>> {
    let rows: u64 = segments.iter().map(|segment| u64::from(segment.reader.rows())).sum();
    let partitions = (partitions as u64).min(rows / PARTITION_ROWS + 1).max(1);
    let share = rows / partitions + 1;
    let mut groups: Vec<Vec<u32>> = vec![Vec::new()];
    let mut filled = 0;
    for (number, segment) in segments.iter().enumerate() {
        if !matches!(resolved.get(segment.index), Some(Some(_))) {
            continue;
        }
        if filled >= share && groups.len() < partitions as usize {
            groups.push(Vec::new());
            filled = 0;
        }
        filled += u64::from(segment.reader.rows());
        if let Some(last) = groups.last_mut() {
            last.push(number as u32);
        }
    }
    groups
}

impl DisplayAs for IndexScanExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        let snapshot = &shared.table.snapshot;
        write!(f, "IndexScanExec: indices=[")?;
        for (at, index) in snapshot.indices.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { ", " } else { "" }, index.meta.name)?;
        }
        let segments: usize = shared.groups.iter().map(Vec::len).sum();
        write!(f, "], segments={segments}, predicate={}", shared.predicate)?;
        let columns: Vec<&str> = shared.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, ", columns=[{}]", columns.join(", "))?;
        if let Some(top) = self.top {
            write!(f, ", top={} by {}", top.limit, if top.by_score { SCORE } else { ROW })?;
        }
        Ok(())
    }
}

impl ExecutionPlan for IndexScanExec {
    fn name(&self) -> &str {
        "IndexScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let reservation = MemoryConsumer::new("IndexScanExec").register(context.memory_pool());
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.shared.schema), 2);
        let out = stream.tx();
        let (shared, top) = (Arc::clone(&self.shared), self.top);
        stream.spawn(async move {
            let mut task = PartitionTask { shared, reservation, out };
            task.run(partition, top).await.map_err(Into::into)
        });
        Ok(stream.build())
    }
}

/// The work of one partition.
struct PartitionTask {
    shared: Arc<Shared>,
    reservation: MemoryReservation,
    out: Sender<PlanResult<RecordBatch>>,
}

/// Rows of one segment with what they need beside keys.
struct Rows {
    number: u32,
    scores: Vec<f32>,
    rows: RoaringBitmap,
}

impl PartitionTask {
    async fn run(&mut self, partition: usize, top: Option<TopRows>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let Some(group) = shared.groups.get(partition) else { return Ok(()) };
        match top {
            Some(top) => self.best_rows(group, top).await,
            None if shared.columns.is_empty() => self.count(group).await,
            None => self.all_rows(group).await,
        }
    }

    fn needs_scores(&self) -> bool {
        self.shared.columns.contains(&Column::Score)
    }

    fn stopped(&self) -> bool {
        self.shared.table.handle.stop.requested()
    }

    /// Makes the predicate ready for a segment.
    async fn prepare(&self, number: u32, scores: bool) -> Result<Option<(Source, Arc<Prepared>)>> {
        let shared = &self.shared;
        let snapshot = &shared.table.snapshot;
        let Some(segment) = snapshot.segments.get(number as usize) else { return Ok(None) };
        let Some(Some(resolved)) = shared.resolved.get(segment.index) else { return Ok(None) };
        let functions = match scores {
            true => shared.functions.of(snapshot, &shared.resolved, segment.index, segment.shard).await?,
            false => Arc::default(),
        };
        let source = Source {
            number,
            reader: Arc::clone(&segment.reader),
            inverted: segment.reader.inverted().await?,
            functions,
            compute: shared.table.compute.clone(),
        };
        let prepared = prepare(&resolved.node, &source, None).await?;
        Ok(Some((source, Arc::new(prepared))))
    }

    /// Runs a pass over a segment on the compute pool.
    async fn pass<T: Send + 'static>(
        &self,
        source: &Source,
        prepared: &Arc<Prepared>,
        work: impl FnOnce(Pass<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (table, prepared) = (Arc::clone(&self.shared.table), Arc::clone(prepared));
        let source = source.clone();
        let compute = source.compute.clone();
        compute
            .run(move || {
                let segment = &table.snapshot.segments[source.number as usize];
                work(Pass {
                    segment: source.number,
                    rows: source.reader.rows(),
                    prepared: &prepared,
                    inverted: source.inverted.as_ref(),
                    deleted: &segment.deleted,
                    totals: &table.handle.totals,
                    budget: table.handle.budgets.get(segment.shard as usize),
                    stop: &table.handle.stop,
                })
            })
            .await?
    }

    async fn count(&mut self, group: &[u32]) -> Result<()> {
        for number in group {
            if self.stopped() {
                break;
            }
            if !self.shared.table.handle.totals.wants_more() {
                break;
            }
            let Some((source, prepared)) = self.prepare(*number, false).await? else { continue };
            let counted = self.pass(&source, &prepared, collect::count).await?;
            let options = RecordBatchOptions::new().with_row_count(Some(counted as usize));
            let schema = Arc::clone(&self.shared.schema);
            let batch = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
            if self.out.send(Ok(batch)).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    async fn best_rows(&mut self, group: &[u32], wanted: TopRows) -> Result<()> {
        self.reservation.try_grow(wanted.limit * size_of::<collect::Found>())?;
        let scores = self.needs_scores();
        let mut top = Top::new(wanted.limit, wanted.by_score, self.shared.table.options.cursor);
        for number in group {
            if self.stopped() {
                break;
            }
            if !self.shared.table.handle.totals.wants_more() && top.passes_over(*number) {
                continue;
            }
            let Some((source, prepared)) = self.prepare(*number, scores).await? else { continue };
            top = self
                .pass(&source, &prepared, move |pass| {
                    collect::collect_top(pass, &mut top, scores)?;
                    Ok(top)
                })
                .await?;
        }
        let found = top.into_sorted();
        if let Some(best) = found.first().filter(|_| scores) {
            self.shared.table.handle.saw_score(best.score);
        }
        let segments: Vec<u32> = found.iter().map(|found| found.address.segment).collect();
        let rows: Vec<u32> = found.iter().map(|found| found.address.row).collect();
        let scores: Vec<f32> = found.iter().map(|found| found.score).collect();
        let batch = self.batch(&[], scores, segments, rows)?;
        // A receiver that is gone wants nothing more.
        let _ = self.out.send(Ok(batch)).await;
        Ok(())
    }

    async fn all_rows(&mut self, group: &[u32]) -> Result<()> {
        let scores = self.needs_scores();
        for number in group {
            if self.stopped() {
                break;
            }
            let Some((source, prepared)) = self.prepare(*number, scores).await? else { continue };
            let (rows, scored) =
                self.pass(&source, &prepared, move |pass| collect::collect_all(pass, scores)).await?;
            drop(prepared);
            if let Some(best) = scored.iter().copied().max_by(f32::total_cmp) {
                self.shared.table.handle.saw_score(best);
            }
            let bytes = rows.serialized_size() + scored.len() * size_of::<f32>();
            self.reservation.try_grow(bytes)?;
            let go_on = self.emit(&source, Rows { number: *number, scores: scored, rows }).await?;
            self.reservation.shrink(bytes);
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    /// Sends the rows of a segment with their keys; whether more are wanted.
    async fn emit(&self, source: &Source, found: Rows) -> Result<bool> {
        let shared = &self.shared;
        let index = shared.table.snapshot.segments[found.number as usize].index;
        let mut columns: Vec<PathId> = Vec::new();
        for column in &shared.columns {
            if let Column::Key(key) = column
                && let Some(Some(key)) = shared.table.keys[*key].sources.get(index)
                && !columns.contains(&key.column)
            {
                columns.push(key.column);
            }
        }
        let mut at = 0;
        if columns.is_empty() {
            let mut rows = found.rows.iter();
            loop {
                let chunk: Vec<u32> = rows.by_ref().take(BATCH_ROWS).collect();
                if chunk.is_empty() {
                    return Ok(true);
                }
                let keys = self.keys(index, &columns, &[], chunk.len())?;
                if !self.send(&found, &mut at, keys, chunk).await? {
                    return Ok(false);
                }
            }
        }
        if found.rows.is_empty() {
            return Ok(true);
        }
        let mut batches = source.reader.scan(&columns, Some(found.rows.clone()));
        while let Some(batch) = batches.next().await {
            if self.stopped() {
                return Ok(false);
            }
            let batch = batch?;
            let keys = self.keys(index, &columns, &batch.columns, batch.rows.len())?;
            if !self.send(&found, &mut at, keys, batch.rows).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn keys(
        &self,
        index: usize,
        columns: &[PathId],
        arrays: &[ArrayRef],
        rows: usize,
    ) -> Result<Vec<ArrayRef>> {
        let shared = &self.shared;
        let mut keys = Vec::new();
        for column in &shared.columns {
            if let Column::Key(key) = column {
                let key = &shared.table.keys[*key];
                let own = key.sources.get(index).and_then(Option::as_ref);
                let place = own.and_then(|own| columns.iter().position(|id| *id == own.column));
                keys.push(key.compute(index, place.and_then(|place| arrays.get(place)), rows)?);
            }
        }
        Ok(keys)
    }

    async fn send(&self, found: &Rows, at: &mut usize, keys: Vec<ArrayRef>, rows: Vec<u32>) -> Result<bool> {
        let scores = match found.scores.is_empty() {
            true => vec![0.0; rows.len()],
            false => {
                let end = (*at + rows.len()).min(found.scores.len());
                let scores = found.scores[*at..end].to_vec();
                *at = end;
                scores
            }
        };
        let segments = vec![found.number; rows.len()];
        let batch = self.batch(&keys, scores, segments, rows)?;
        Ok(self.out.send(Ok(batch)).await.is_ok())
    }

    /// Makes a batch of the columns that are asked for; `keys` are theirs in order.
    fn batch(
        &self,
        keys: &[ArrayRef],
        scores: Vec<f32>,
        segments: Vec<u32>,
        rows: Vec<u32>,
    ) -> Result<RecordBatch> {
        let shared = &self.shared;
        let count = rows.len();
        let shards: Vec<u32> = match shared.columns.contains(&Column::Shard) {
            true => {
                segments.iter().map(|number| shared.table.snapshot.segments[*number as usize].shard).collect()
            }
            false => Vec::new(),
        };
        let (scores, segments): (ArrayRef, ArrayRef) =
            (Arc::new(Float32Array::from(scores)), Arc::new(UInt32Array::from(segments)));
        let (shards, rows): (ArrayRef, ArrayRef) =
            (Arc::new(UInt32Array::from(shards)), Arc::new(UInt32Array::from(rows)));
        let mut keys = keys.iter();
        let mut arrays = Vec::with_capacity(shared.columns.len());
        for column in &shared.columns {
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
        Ok(RecordBatch::try_new_with_options(Arc::clone(&shared.schema), arrays, &options)?)
    }
}

#[cfg(test)]
mod tests;
