//! The physical operator of aggregations: a leaf that finds the rows of a predicate segment by segment,
//! as the scan of documents does, and feeds them to a tree of collectors.
//!
//! A partition is a run of rows (of whole shards where something is decided shard by shard) with a tree
//! of its own. It has no output rows: its tree is left in [`PartitionStates`], from where the search takes it when
//! all partitions have ended. Work is done on the compute threads, looks at the stop between batches, and
//! accounts for the memory of its tree.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result as PlanResult;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{TryStreamExt, stream};
use millrace_matching::table::partitions::{
    Openings, PartitionBoundary, RowPartition, count_segments, share_out,
};
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::{TableSegment, TableState};
use millrace_scoring::collect::{Address, collect_all};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::backgrounds::Background;
use super::batch::Batch;
use super::collector::{ShardReader, SubCollectors};
use super::pass::PartRows;
use super::segment::{Rows, SegmentContext, SegmentSets};
use super::source;
use super::tree::{Root, Tree};

/// Rows that are read once more at a time.
const REPLAYED_ROWS: usize = 4_096;

/// The states of one partition.
#[derive(Debug)]
pub(crate) struct States {
    /// Aggregations over what matches.
    pub roots: SubCollectors,
    /// Those over all documents.
    pub globals: SubCollectors,
    /// Counts over other documents.
    pub backgrounds: Vec<Background>,
}

impl States {
    /// Makes empty states.
    pub(crate) fn new(tree: &Tree) -> Self {
        let subs = |roots: &[Root]| SubCollectors(roots.iter().map(|root| root.node.sub(true)).collect());
        Self {
            roots: subs(&tree.roots),
            globals: subs(&tree.globals),
            backgrounds: tree.backgrounds.iter().map(Background::new).collect(),
        }
    }

    /// Merges the states of another partition, for as long as somebody waits for the work.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub(crate) fn merge(&mut self, other: Self, work: &QueryContext) -> Result<()> {
        self.roots.merge(other.roots, None, work)?;
        self.globals.merge(other.globals, None, work)?;
        for (own, other) in self.backgrounds.iter_mut().zip(other.backgrounds) {
            work.check()?;
            own.merge(other);
        }
        Ok(())
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        let backgrounds: usize = self.backgrounds.iter().map(Background::memory).sum();
        self.roots.memory() + self.globals.memory() + backgrounds
    }
}

/// States that partitions leave behind, by their numbers.
pub(crate) type PartitionStates = Mutex<Vec<Option<(States, MemoryReservation)>>>;

/// State that the partitions share.
#[derive(Debug)]
pub(crate) struct OperatorState {
    /// The table.
    pub table: Arc<TableState>,
    /// The compiled tree.
    pub tree: Arc<Tree>,
    /// Matching predicate, for display.
    pub predicate: Predicate,
    /// Openings of the matching predicate.
    pub matching: Openings,
    /// Openings of the searched rows: filters of aliases, slices.
    pub everything: Openings,
    /// Rows of filters and elements, of segments that several partitions share.
    pub sets: Vec<Arc<SegmentSets>>,
    /// The states of partitions that have ended.
    pub gathered: PartitionStates,
}

/// The operator.
#[derive(Debug)]
pub(crate) struct AggregateExec {
    shared: Arc<OperatorState>,
    groups: Vec<Vec<RowPartition>>,
    properties: Arc<PlanProperties>,
}

impl AggregateExec {
    /// Makes the operator of at most `partitions` partitions.
    pub(crate) fn new(shared: OperatorState, partitions: usize) -> Self {
        let table = &shared.table;
        // A shard that may stop early counts its matches in order.
        let partitions = if table.options.terminate_after > 0 { 1 } else { partitions };
        let cut = if shared.tree.by_shard { PartitionBoundary::Shards } else { PartitionBoundary::Rows };
        let groups = share_out(&table.snapshot.segments, shared.matching.resolved(), partitions, cut);
        *shared.gathered.lock() = groups.iter().map(|_| None).collect();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(Schema::empty())),
            Partitioning::UnknownPartitioning(groups.len()),
            EmissionType::Final,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { shared: Arc::new(shared), groups, properties: Arc::new(properties) }
    }

    /// Returns the state that the partitions share.
    pub(crate) fn shared(&self) -> &Arc<OperatorState> {
        &self.shared
    }
}

impl OperatorState {
    /// Returns whether work should end.
    fn stopped(&self) -> bool {
        self.table.handle.stop.requested()
    }

    /// Adds a part to the states of its partition. Blocks; runs on a compute thread.
    fn collect(
        &self,
        part: &RowPartition,
        states: &mut States,
        reservation: &MemoryReservation,
    ) -> Result<()> {
        let Some(segment) = self.table.snapshot.segments.get(part.segment as usize) else { return Ok(()) };
        if self.stopped() {
            return Ok(());
        }
        // What nobody else needs goes with the part.
        let shared = self.sets.get(part.segment as usize).filter(|_| !part.is_whole(segment));
        let sets = shared.map_or_else(
            || Arc::new(SegmentSets::new(&self.tree.scan, &self.table.options.work)),
            Arc::clone,
        );
        let context = SegmentContext::new(&self.tree.scan, &self.table, part.segment, segment, sets)?;
        unless_ended(self.feed_part(&context, part, segment, states, reservation))?;
        let held = states.memory();
        reservation.try_resize(held)?;
        Ok(())
    }

    /// Finds the rows of a part and feeds them to collectors.
    fn feed_part(
        &self,
        context: &SegmentContext<'_>,
        part: &RowPartition,
        segment: &TableSegment,
        states: &mut States,
        reservation: &MemoryReservation,
    ) -> Result<()> {
        let (work, sources) = (&self.table.options.work, source::all());
        if !states.roots.is_empty() {
            let (rows, scores) = self.rows(&self.matching, part, segment, self.tree.scores, true)?;
            let _held = work.part_of(rows.bytes() + size_of_val(scores.as_slice()))?;
            let fed = PartRows { segment: context, rows: &rows, scores: &scores, sources, reservation };
            fed.feed(&self.tree.roots, &mut states.roots, &mut [])?;
        }
        if !states.globals.is_empty() || !states.backgrounds.is_empty() {
            let (rows, _) = self.rows(&self.everything, part, segment, false, false)?;
            let _held = work.part_of(rows.bytes())?;
            let States { globals, backgrounds, .. } = states;
            let fed = PartRows { segment: context, rows: &rows, scores: &[], sources, reservation };
            fed.feed(&self.tree.globals, globals, backgrounds)?;
        }
        Ok(())
    }

    /// Finds the rows of a predicate in a part.
    fn rows(
        &self,
        openings: &Openings,
        part: &RowPartition,
        segment: &TableSegment,
        scores: bool,
        bounded: bool,
    ) -> Result<(Rows, Vec<f32>)> {
        let snapshot = &self.table.snapshot;
        let Some(opened) = openings.open(snapshot, part, scores)? else {
            return Ok((Rows::Some(RoaringBitmap::new()), Vec::new()));
        };
        let pass = opened.pass(&self.table, segment, part.rows.clone(), bounded);
        let all = pass.prepared.is_everything() && segment.deleted.is_empty();
        if !scores && pass.budget.is_none() && all {
            return Ok((Rows::All(part.rows.clone()), Vec::new()));
        }
        let (rows, found) = collect_all(&pass, scores)?;
        match opened.failure(snapshot, segment) {
            Some(error) => Err(error),
            None => Ok((Rows::Some(rows), found)),
        }
    }
}

/// Passes over the end of the work: rows that were collected by then count.
fn unless_ended(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::TimedOut) => Ok(()),
        other => other,
    }
}

/// Reads rows of a shard once more.
struct Replay<'a>(&'a OperatorState);

impl ShardReader for Replay<'_> {
    fn read(&mut self, rows: &[Address], each: &mut dyn FnMut(&Batch<'_>) -> Result<()>) -> Result<()> {
        let table = &self.0.table;
        for own in rows.chunk_by(|a, b| a.segment == b.segment) {
            let Some(number) = own.first().map(|first| first.segment) else { continue };
            let Some(segment) = table.snapshot.segments.get(number as usize) else { continue };
            let sets = Arc::new(SegmentSets::new(&self.0.tree.scan, &table.options.work));
            let context = SegmentContext::new(&self.0.tree.scan, table, number, segment, sets)?;
            for chunk in own.chunks(REPLAYED_ROWS) {
                let numbers: Vec<u32> = chunk.iter().map(|address| address.row).collect();
                context.with_rows(0, &numbers, None, None, each)?;
            }
        }
        Ok(())
    }
}

/// Does the work of one partition.
async fn run(
    shared: Arc<OperatorState>,
    partition: usize,
    group: Vec<RowPartition>,
    reservation: MemoryReservation,
) -> Result<()> {
    let mut carried = (States::new(&shared.tree), reservation);
    for (at, part) in group.iter().enumerate() {
        if shared.stopped() {
            break;
        }
        let segments = &shared.table.snapshot.segments;
        let shard = |part: &RowPartition| segments.get(part.segment as usize).map(|segment| segment.shard);
        let ends = shared.tree.by_shard && group.get(at + 1).and_then(shard) != shard(part);
        let (own, part) = (Arc::clone(&shared), part.clone());
        carried = shared
            .table
            .compute
            .run(move || {
                let (mut states, reservation) = carried;
                own.collect(&part, &mut states, &reservation)?;
                if ends {
                    unless_ended(states.roots.end_shard(&mut Replay(&own)))?;
                    unless_ended(states.globals.end_shard(&mut Replay(&own)))?;
                }
                Ok((states, reservation))
            })
            .await?;
    }
    if let Some(place) = shared.gathered.lock().get_mut(partition) {
        *place = Some(carried);
    }
    Ok(())
}

impl DisplayAs for AggregateExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        let segments = count_segments(&self.groups);
        write!(
            f,
            "AggregateExec: aggregations={}, segments={segments}, predicate={}",
            shared.tree.roots.len() + shared.tree.globals.len(),
            shared.predicate
        )
    }
}

impl ExecutionPlan for AggregateExec {
    fn name(&self) -> &str {
        "AggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    millrace_matching::without_inputs!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let reservation = MemoryConsumer::new("AggregateExec").register(context.memory_pool());
        let group = self.groups.get(partition).cloned().unwrap_or_default();
        let work = run(Arc::clone(&self.shared), partition, group, reservation);
        let empty = |()| stream::empty::<PlanResult<RecordBatch>>();
        let batches = stream::once(work).map_ok(empty).map_err(DataFusionError::from).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::new(Schema::empty()), batches)))
    }
}
