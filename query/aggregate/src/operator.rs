//! The physical operator of aggregations: a leaf that finds the rows of a predicate segment by segment,
//! as the scan of documents does, and feeds them to a tree of collectors.
//!
//! A partition is a run of rows (of whole shards where something is decided shard by shard) with a tree
//! of its own. It has no output rows: its tree is left in [`Gathered`], from where the search takes it when
//! all partitions have ended. Work is done on the compute threads, looks at the stop between batches, and
//! accounts for the memory of its tree.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
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
use millrace_matching::score::collect::{Address, collect_all};
use millrace_matching::table::parts::{Cut, Openings, Part, count_segments, share_out};
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::{TableSegment, TableState};
use millrace_storage::mapping::PathId;
use millrace_storage::segment::list_rows;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::backgrounds::Background;
use super::batch::{Batch, Column, Positions, Selection};
use super::collector::{ShardReader, Sub, Subs};
use super::metric::Ordinals;
use super::segment::{Rows, SegmentContext, SegmentSets, numbers};
use super::tree::{Root, Tree};

/// Rows of a batch where no column is read.
const BATCH_ROWS: usize = 8_192;
/// Of one row in more than so many, numbers are taken out of decoded pages.
const FEW_SHARE: u64 = 8;
/// Rows whose numbers are taken out of decoded pages at a time.
const KEPT_ROWS: u32 = 65_536;
/// Bytes that a number takes in a decoded page, about, and those of all that a feed may have decoded: so that what it needs
/// last does not drive out what it needs first.
const KEPT_NUMBER: u64 = 4;
const MOST_KEPT: u64 = 96 << 20;
/// Rows that are read once more at a time.
const REPLAYED_ROWS: usize = 4_096;

/// The states of one partition.
#[derive(Debug)]
pub(crate) struct States {
    /// Aggregations over what matches.
    pub roots: Subs,
    /// Those over all documents.
    pub globals: Subs,
    /// Counts over other documents.
    pub backgrounds: Vec<Background>,
}

impl States {
    /// Makes empty states.
    pub(crate) fn new(tree: &Tree) -> Self {
        let subs = |roots: &[Root]| Subs(roots.iter().map(|root| root.node.sub(true)).collect());
        Self {
            roots: subs(&tree.roots),
            globals: subs(&tree.globals),
            backgrounds: tree.backgrounds.iter().map(Background::new).collect(),
        }
    }

    /// Merges the states of another partition.
    pub(crate) fn merge(&mut self, other: Self) {
        self.roots.merge(other.roots, None);
        self.globals.merge(other.globals, None);
        for (own, other) in self.backgrounds.iter_mut().zip(other.backgrounds) {
            own.merge(other);
        }
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        let backgrounds: usize = self.backgrounds.iter().map(Background::memory).sum();
        self.roots.memory() + self.globals.memory() + backgrounds
    }
}

/// What partitions leave behind, by their numbers.
pub(crate) type Gathered = Mutex<Vec<Option<(States, MemoryReservation)>>>;

/// What the partitions share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The table.
    pub table: Arc<TableState>,
    /// The compiled tree.
    pub tree: Arc<Tree>,
    /// What matches, for display.
    pub predicate: Predicate,
    /// What matches.
    pub matching: Openings,
    /// What is searched at all: filters of aliases, slices.
    pub everything: Openings,
    /// Rows of filters and elements, of segments that several partitions share.
    pub sets: Vec<Arc<SegmentSets>>,
    /// The states of partitions that have ended.
    pub gathered: Gathered,
}

/// The operator.
#[derive(Debug)]
pub(crate) struct AggregateExec {
    shared: Arc<Shared>,
    groups: Vec<Vec<Part>>,
    properties: Arc<PlanProperties>,
}

impl AggregateExec {
    /// Makes the operator of at most `partitions` partitions.
    pub(crate) fn new(shared: Shared, partitions: usize) -> Self {
        let table = &shared.table;
        // A shard that may stop early counts its matches in order.
        let partitions = if table.options.terminate_after > 0 { 1 } else { partitions };
        let cut = if shared.tree.by_shard { Cut::Shards } else { Cut::Rows };
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

    /// Returns what the partitions share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Shared {
    /// Returns whether work should end.
    fn stopped(&self) -> bool {
        self.table.handle.stop.requested()
    }

    /// Adds a part to the states of its partition. Blocks; runs on a compute thread.
    fn collect(&self, part: &Part, states: &mut States, reservation: &MemoryReservation) -> Result<()> {
        let Some(segment) = self.table.snapshot.segments.get(part.segment as usize) else { return Ok(()) };
        if self.stopped() {
            return Ok(());
        }
        // What nobody else needs goes with the part.
        let shared = self.sets.get(part.segment as usize).filter(|_| !part.is_whole(segment));
        let sets = shared
            .map_or_else(|| Arc::new(SegmentSets::new(&self.tree, &self.table.options.work)), Arc::clone);
        let context = SegmentContext::new(&self.tree, &self.table, part.segment, segment, sets)?;
        unless_ended(self.feed_part(&context, part, segment, states, reservation))?;
        let held = states.memory();
        reservation.try_resize(held)?;
        Ok(())
    }

    /// Finds the rows of a part and feeds them to collectors.
    fn feed_part(
        &self,
        context: &SegmentContext<'_>,
        part: &Part,
        segment: &TableSegment,
        states: &mut States,
        reservation: &MemoryReservation,
    ) -> Result<()> {
        let work = &self.table.options.work;
        let bytes = |rows: &Rows, scores: &[f32]| rows.bytes() + size_of_val(scores);
        if !states.roots.is_empty() {
            let (rows, scores) = self.rows(&self.matching, part, segment, self.tree.scores, true)?;
            let _found = work.part_of(bytes(&rows, &scores))?;
            self.feed(context, &rows, &scores, &self.tree.roots, &mut states.roots, &mut [], reservation)?;
        }
        if !states.globals.is_empty() || !states.backgrounds.is_empty() {
            let (rows, _) = self.rows(&self.everything, part, segment, false, false)?;
            let _found = work.part_of(bytes(&rows, &[]))?;
            let States { globals, backgrounds, .. } = states;
            self.feed(context, &rows, &[], &self.tree.globals, globals, backgrounds, reservation)?;
        }
        Ok(())
    }

    /// Finds the rows of a predicate in a part.
    fn rows(
        &self,
        openings: &Openings,
        part: &Part,
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

    /// Feeds rows to collectors: those that need them after what could be counted without.
    #[allow(clippy::too_many_arguments)]
    fn feed(
        &self,
        context: &SegmentContext<'_>,
        rows: &Rows,
        scores: &[f32],
        roots: &[Root],
        subs: &mut Subs,
        backgrounds: &mut [Background],
        reservation: &MemoryReservation,
    ) -> Result<()> {
        if rows.len() == 0 {
            return Ok(());
        }
        let index = context.index;
        let paths = self.tree.columns(0, index);
        let mut wanted = vec![false; paths.len()];
        let mut want = |slot: usize| {
            if let Some(wanted) = wanted.get_mut(slot) {
                *wanted = true;
            }
        };
        let mut left: Vec<&mut Sub> = Vec::new();
        for (sub, root) in subs.0.iter_mut().zip(roots) {
            if sub.collector.shortcut(context, rows)? {
                continue;
            }
            root.slots.get(index).into_iter().flatten().for_each(|slot| want(*slot));
            left.push(sub);
        }
        for plan in self.tree.backgrounds.iter().filter(|plan| plan.scope == 0 && !backgrounds.is_empty()) {
            plan.slot_in(index).into_iter().for_each(&mut want);
        }
        let mut inner = Vec::new();
        for (at, plan) in self.tree.backgrounds.iter().enumerate() {
            if plan.scope != 0 && !backgrounds.is_empty() {
                inner.push((at, plan.scope));
            }
        }
        for (at, scope) in inner {
            if let Some(background) = backgrounds.get_mut(at) {
                elements(context, scope, rows, background)?;
            }
        }
        let documents: Vec<usize> = self
            .tree
            .backgrounds
            .iter()
            .enumerate()
            .filter(|(_, plan)| plan.scope == 0)
            .map(|(at, _)| at)
            .collect();
        if left.is_empty() && (backgrounds.is_empty() || documents.is_empty()) {
            return Ok(());
        }
        let mut seen = 0;
        let mut held = 0_usize;
        let mut take = |numbers: &[u32], columns: Vec<Option<Column>>| -> Result<bool> {
            let own = scores.get(seen..seen + numbers.len());
            seen += numbers.len();
            let batch = Batch {
                segment: context,
                scope: 0,
                rows: numbers,
                columns: &columns,
                scores: own,
                outer: None,
            };
            let selection =
                Selection { positions: Positions::All(numbers.len()), ordinals: Ordinals::One(0) };
            for sub in &mut left {
                sub.collector.collect(&batch, selection)?;
            }
            for at in &documents {
                if let Some(background) = backgrounds.get_mut(*at) {
                    background.collect(&batch)?;
                }
            }
            // What this feed holds is accounted for on the way; other states are when the segment ends.
            let now: usize = left.iter().map(|sub| sub.collector.memory()).sum();
            if now > held + (1 << 20) {
                held = now;
                if reservation.size() < held {
                    reservation.try_resize(held)?;
                }
            }
            Ok(!self.stopped())
        };
        let slots: Vec<usize> = (0..paths.len()).filter(|at| wanted[*at]).collect();
        if slots.is_empty() {
            let all = match rows {
                Rows::All(rows) => rows.clone().collect(),
                Rows::Some(rows) => list_rows(rows, 0..u32::MAX),
            };
            for chunk in all.chunks(BATCH_ROWS) {
                if !take(chunk, Vec::new())? {
                    break;
                }
            }
            return Ok(());
        }
        let read: Vec<_> = slots.iter().map(|at| paths[*at]).collect();
        let mut place = |numbers: &[u32], arrays: &[ArrayRef]| {
            let mut columns: Vec<Option<Column>> = Vec::new();
            columns.resize_with(paths.len(), || None);
            for (slot, array) in slots.iter().zip(arrays) {
                if *array.data_type() != datafusion::arrow::datatypes::DataType::Null {
                    columns[*slot] = Some(Column::new(array));
                }
            }
            take(numbers, columns)
        };
        if let Rows::Some(rows) = rows
            && rows.len() < u64::from(context.source.reader.rows()) / FEW_SHARE
            && let Some(kept) = numbers(&context.source, &read, rows)?
        {
            return place(&list_rows(rows, 0..u32::MAX), &kept).map(drop);
        }
        if rows.len() * read.len() as u64 * KEPT_NUMBER <= MOST_KEPT
            && number_by_number(context, &read, rows, &mut place)?
        {
            return Ok(());
        }
        let selected = match rows {
            Rows::All(own) if own.len() == context.source.reader.rows() as usize => None,
            Rows::All(own) => Some(own.clone().collect()),
            Rows::Some(rows) => Some(rows.clone()),
        };
        let mut done = Ok(true);
        context.source.reader.read(&read, selected, &mut |batch| {
            done = place(&batch.rows, &batch.columns);
            matches!(done, Ok(true))
        })?;
        done.map(|_| ())
    }
}

/// Passes over the end of the work: what was collected by then counts.
fn unless_ended(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::TimedOut) => Ok(()),
        other => other,
    }
}

/// Takes numbers and their rows; whether more are wanted.
type TakeNumbers<'a> = dyn FnMut(&[u32], &[ArrayRef]) -> Result<bool> + 'a;

/// Feeds rows with columns from decoded pages, where all are kept so; whether they are.
fn number_by_number(
    context: &SegmentContext<'_>,
    columns: &[PathId],
    rows: &Rows,
    take: &mut TakeNumbers<'_>,
) -> Result<bool> {
    let end = context.source.reader.rows();
    for from in (0..end).step_by(KEPT_ROWS as usize) {
        let own = rows.within(from..end.min(from.saturating_add(KEPT_ROWS)));
        if own.is_empty() {
            continue;
        }
        let Some(kept) = numbers(&context.source, columns, &own)? else { return Ok(false) };
        if !take(&list_rows(&own, 0..u32::MAX), &kept)? {
            return Ok(true);
        }
    }
    Ok(true)
}

/// Counts the elements of rows for a background within a nested path.
fn elements(
    context: &SegmentContext<'_>,
    scope: usize,
    rows: &Rows,
    background: &mut Background,
) -> Result<()> {
    let Some((_, nested)) = context.scope(scope)? else { return Ok(()) };
    let parents = nested.parents().iter().enumerate();
    let own: Vec<u32> =
        parents.filter(|(_, row)| rows.contains(**row)).map(|(element, _)| element as u32).collect();
    for chunk in own.chunks(REPLAYED_ROWS) {
        context.with_rows(scope, chunk, None, None, &mut |batch| background.collect(batch))?;
    }
    Ok(())
}

/// Reads rows of a shard once more.
struct Replay<'a>(&'a Shared);

impl ShardReader for Replay<'_> {
    fn read(&mut self, rows: &[Address], each: &mut dyn FnMut(&Batch<'_>) -> Result<()>) -> Result<()> {
        let table = &self.0.table;
        for own in rows.chunk_by(|a, b| a.segment == b.segment) {
            let Some(number) = own.first().map(|first| first.segment) else { continue };
            let Some(segment) = table.snapshot.segments.get(number as usize) else { continue };
            let sets = Arc::new(SegmentSets::new(&self.0.tree, &table.options.work));
            let context = SegmentContext::new(&self.0.tree, table, number, segment, sets)?;
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
    shared: Arc<Shared>,
    partition: usize,
    group: Vec<Part>,
    reservation: MemoryReservation,
) -> Result<()> {
    let mut carried = (States::new(&shared.tree), reservation);
    for (at, part) in group.iter().enumerate() {
        if shared.stopped() {
            break;
        }
        let segments = &shared.table.snapshot.segments;
        let shard = |part: &Part| segments.get(part.segment as usize).map(|segment| segment.shard);
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
