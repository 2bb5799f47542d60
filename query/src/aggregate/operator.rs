//! The physical operator of aggregations: a leaf that finds the rows of a predicate segment by segment,
//! as the scan of documents does, and feeds them to a tree of collectors.
//!
//! A partition is a run of segments (of whole shards where something is decided shard by shard) with a tree
//! of its own. It has no output rows: its tree is left in [`Gathered`], from where the search takes it when
//! all partitions have ended. Work is done on the compute threads, looks at the stop between batches, and
//! accounts for the memory of its tree.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use futures::{TryStreamExt, stream};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::backgrounds::Background;
use super::batch::{Batch, Column, Positions, Selection};
use super::collector::{ShardReader, Sub, Subs};
use super::compile::{Root, Tree};
use super::metric::Ordinals;
use super::segment::{Rows, SegmentContext, numbers};
use crate::error::{Error, Result};
use crate::score::collect::{Address, Pass, collect_all};
use crate::score::prepare::{Prepared, Source, prepare};
use crate::table::node::Resolved;
use crate::table::predicate::Predicate;
use crate::table::statistics::Functions;
use crate::table::{TableSegment, TableState};

/// Rows of a batch where no column is read.
const BATCH_ROWS: usize = 8_192;
/// Least rows of a partition.
const PARTITION_ROWS: u64 = 50_000;
/// Of one row in more than so many, numbers are taken out of decoded pages.
const FEW_SHARE: u64 = 8;
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
    /// What matches, by index.
    pub resolved: Vec<Option<Resolved>>,
    /// What is searched at all, by index: filters of aliases, slices.
    pub everything: Vec<Option<Resolved>>,
    /// Functions of the shards.
    pub functions: Functions,
    /// The states of partitions that have ended.
    pub gathered: Gathered,
}

/// The operator.
#[derive(Debug)]
pub(crate) struct AggregateExec {
    shared: Arc<Shared>,
    groups: Vec<Vec<u32>>,
    properties: Arc<PlanProperties>,
}

impl AggregateExec {
    /// Makes the operator of at most `partitions` partitions.
    pub(crate) fn new(shared: Shared, partitions: usize) -> Self {
        let groups = group(&shared, partitions);
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

/// Cuts segments into runs of about as many rows.
fn group(shared: &Shared, partitions: usize) -> Vec<Vec<u32>> {
    let snapshot = &shared.table.snapshot;
    let segments = &snapshot.segments;
    let rows: u64 = segments.iter().map(|segment| u64::from(segment.reader.rows())).sum();
    // A shard that may stop early counts its matches in order.
    let most = if shared.table.options.terminate_after > 0 { 1 } else { partitions as u64 };
    let partitions = most.min(rows / PARTITION_ROWS + 1).max(1);
    let share = rows / partitions + 1;
    let mut groups: Vec<Vec<u32>> = vec![Vec::new()];
    let (mut filled, mut shard) = (0, None);
    for (number, segment) in segments.iter().enumerate() {
        if !matches!(shared.resolved.get(segment.index), Some(Some(_))) {
            continue;
        }
        let may_cut = !shared.tree.by_shard || shard != Some(segment.shard);
        if filled >= share && groups.len() < partitions as usize && may_cut {
            groups.push(Vec::new());
            filled = 0;
        }
        shard = Some(segment.shard);
        filled += u64::from(segment.reader.rows());
        if let Some(last) = groups.last_mut() {
            last.push(number as u32);
        }
    }
    groups
}

impl Shared {
    /// Returns whether work should end.
    fn stopped(&self) -> bool {
        self.table.handle.stop.requested()
    }

    /// Adds a segment to the states of its partition. Blocks; runs on a compute thread.
    fn collect(&self, number: u32, states: &mut States, reservation: &MemoryReservation) -> Result<()> {
        let Some(segment) = self.table.snapshot.segments.get(number as usize) else { return Ok(()) };
        if self.stopped() {
            return Ok(());
        }
        let context = SegmentContext::new(&self.tree, &self.table, number, segment)?;
        if !states.roots.is_empty() {
            let (rows, scores) = self.rows(&self.resolved, segment, &context, self.tree.scores, true)?;
            self.feed(&context, &rows, &scores, &self.tree.roots, &mut states.roots, &mut [], reservation)?;
        }
        if !states.globals.is_empty() || !states.backgrounds.is_empty() {
            let (rows, _) = self.rows(&self.everything, segment, &context, false, false)?;
            let States { globals, backgrounds, .. } = states;
            self.feed(&context, &rows, &[], &self.tree.globals, globals, backgrounds, reservation)?;
        }
        let held = states.memory();
        reservation.try_resize(held)?;
        Ok(())
    }

    /// Finds the rows of a predicate in a segment.
    fn rows(
        &self,
        resolved: &[Option<Resolved>],
        segment: &TableSegment,
        context: &SegmentContext<'_>,
        scores: bool,
        bounded: bool,
    ) -> Result<(Rows, Vec<f32>)> {
        let (table, snapshot) = (&self.table, &self.table.snapshot);
        let Some(Some(own)) = resolved.get(segment.index) else {
            return Ok((Rows::Some(RoaringBitmap::new()), Vec::new()));
        };
        let min_score = table.options.min_score.filter(|_| bounded);
        let scored = scores || min_score.is_some() || own.node.scores_decide();
        let functions = match bounded {
            true => self.functions.of(snapshot, resolved, segment.index, segment.shard, scored)?,
            false => Functions::new(snapshot.shards, false).of(
                snapshot,
                resolved,
                segment.index,
                segment.shard,
                scored,
            )?,
        };
        let source = Source { functions, ..context.source.clone() };
        let prepared = prepare(&own.node, &source, None)?;
        let boost = snapshot.indices.get(segment.index).map_or(1.0, |index| index.boost);
        let prepared = match (boost, min_score) {
            (1.0, None) => prepared,
            _ => Prepared::Scaled { factor: boost, least: min_score, part: Box::new(prepared) },
        };
        let budget = table.handle.budgets.get(segment.shard as usize).filter(|_| bounded);
        if !scores && budget.is_none() && segment.deleted.is_empty() && matches!(prepared, Prepared::All(_)) {
            return Ok((Rows::All(source.reader.rows()), Vec::new()));
        }
        let pass = Pass {
            segment: context.number,
            rows: source.reader.rows(),
            prepared: &prepared,
            inverted: source.inverted.as_ref(),
            deleted: &segment.deleted,
            totals: &table.handle.totals,
            budget,
            stop: &table.handle.stop,
        };
        let (rows, found) = collect_all(pass, scores)?;
        if let Some(error) = prepared.failure() {
            let meta = &snapshot.indices[segment.index].meta;
            let failure = error.into_shard_failure(&meta.name, &meta.uuid_text(), source.shard);
            return Err(Error::SearchPhase { failures: vec![failure] });
        }
        Ok((Rows::Some(rows), found))
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
                Rows::All(rows) => (0..*rows).collect(),
                Rows::Some(rows) => rows.clone(),
            };
            let mut chunk = Vec::with_capacity(BATCH_ROWS);
            let mut numbers = all.iter();
            loop {
                chunk.clear();
                chunk.extend(numbers.by_ref().take(BATCH_ROWS));
                if chunk.is_empty() || !take(&chunk, Vec::new())? {
                    return Ok(());
                }
            }
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
            return place(&rows.iter().collect::<Vec<_>>(), &kept).map(drop);
        }
        let selected = match rows {
            Rows::All(_) => None,
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

/// Counts the elements of rows for a background within a nested path.
fn elements(
    context: &SegmentContext<'_>,
    scope: usize,
    rows: &Rows,
    background: &mut Background,
) -> Result<()> {
    let Some((_, nested)) = context.scope(scope)? else { return Ok(()) };
    let parents = nested.parents().iter().enumerate();
    let own: Vec<u32> = match rows {
        Rows::All(_) => parents.map(|(element, _)| element as u32).collect(),
        Rows::Some(rows) => {
            parents.filter(|(_, row)| rows.contains(**row)).map(|(element, _)| element as u32).collect()
        }
    };
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
            let context = SegmentContext::new(&self.0.tree, table, number, segment)?;
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
    group: Vec<u32>,
    reservation: MemoryReservation,
) -> Result<()> {
    let mut carried = (States::new(&shared.tree), reservation);
    for (at, number) in group.iter().enumerate() {
        if shared.stopped() {
            break;
        }
        let segments = &shared.table.snapshot.segments;
        let shard = |number: &u32| segments.get(*number as usize).map(|segment| segment.shard);
        let ends = shared.tree.by_shard && group.get(at + 1).and_then(shard) != shard(number);
        let (own, number) = (Arc::clone(&shared), *number);
        carried = shared
            .table
            .compute
            .run(move || {
                let (mut states, reservation) = carried;
                own.collect(number, &mut states, &reservation)?;
                if ends {
                    states.roots.end_shard(&mut Replay(&own))?;
                    states.globals.end_shard(&mut Replay(&own))?;
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
        let segments: usize = self.groups.iter().map(Vec::len).sum();
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
        let reservation = MemoryConsumer::new("AggregateExec").register(context.memory_pool());
        let group = self.groups.get(partition).cloned().unwrap_or_default();
        let work = run(Arc::clone(&self.shared), partition, group, reservation);
        let empty = |()| stream::empty::<PlanResult<RecordBatch>>();
        let batches = stream::once(work).map_ok(empty).map_err(DataFusionError::from).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::new(Schema::empty()), batches)))
    }
}
