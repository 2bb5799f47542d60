//! The leaf of every search plan: finds rows by the index predicate, where it runs.
//!
//! One partition is a run of consecutive rows, of several segments or a part of one. What a partition does ([`partition`]) depends on
//! what is asked of it: nothing but a count (no columns), the best rows by score or address, the
//! first rows by a key ([`Top`], set by the rule in [`super::top_k`]), or all rows with their keys,
//! as a stream of batches.

mod derived_keys;
mod partition;
mod terms;
mod threshold;

use std::fmt;
use std::sync::Arc;

use self::partition::PartitionTask;
use self::terms::TermOrder;
use self::threshold::Threshold;
use super::keys::{Key, KeyKind};
use super::node::Resolved;
use super::parts::{Cut, Openings, Part, count_segments, share_out};
use super::predicate::Predicate;
use super::statistics::Functions;
use super::{ROW, SCORE, SEGMENT, TableState};
use crate::score::collect;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as PlanResult, Statistics};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use roaring::RoaringBitmap;

/// Fewer rows than all.
#[derive(Clone, Debug)]
enum Top {
    /// So many of each partition: those of the greatest score, or the first.
    Rows { limit: usize, by_score: bool },
    /// Those that can be among the first by a key, over all partitions; unless the search goes on, those of the first terms
    /// are.
    Key { key: usize, threshold: Arc<Threshold>, order: Option<TermOrder> },
    /// Those that can be among the first of each segment by a string.
    Term { key: usize, order: TermOrder },
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
pub struct IndexScanExec {
    shared: Arc<Shared>,
    top: Option<Top>,
    properties: Arc<PlanProperties>,
}

/// What the partitions of a scan share.
#[derive(Debug)]
struct Shared {
    table: Arc<TableState>,
    predicate: Predicate,
    openings: Arc<Openings>,
    columns: Vec<Column>,
    schema: SchemaRef,
    /// The rows of each partition.
    groups: Vec<Vec<Part>>,
}

impl IndexScanExec {
    /// Makes a scan of `projection` of the table's schema, in at most `partitions` partitions.
    pub fn new(
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
        let groups = share_out(&table.snapshot.segments, &resolved, partitions, Cut::Rows);
        let work = &table.options.work;
        let functions = Functions::new(table.snapshot.shards, table.options.global_statistics);
        let min_score = table.options.min_score;
        let openings = Arc::new(Openings::new(&table.snapshot, resolved, functions, min_score, work));
        Ok(Self::of(Shared { table, predicate, openings, columns, schema, groups }))
    }

    fn of(shared: Shared) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&shared.schema)),
            Partitioning::UnknownPartitioning(shared.groups.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { shared: Arc::new(shared), top: None, properties: Arc::new(properties) }
    }

    /// Returns what is scanned.
    pub fn table(&self) -> &TableState {
        &self.shared.table
    }

    /// Lists the rows of each partition.
    pub fn partitions(&self) -> &[Vec<Part>] {
        &self.shared.groups
    }

    /// Counts the rows where every one that is not deleted is found.
    pub fn all_rows(&self) -> Option<u64> {
        let TableState { snapshot, options, .. } = self.table();
        let all = matches!(self.shared.predicate, Predicate::All)
            && snapshot.listed.is_none()
            && options.terminate_after == 0
            && options.min_score.is_none()
            && self.top.is_none();
        let rows =
            snapshot.segments.iter().map(|segment| u64::from(segment.reader.rows()) - segment.deleted.len());
        all.then(|| rows.sum())
    }

    /// Whether no row of a segment is deleted.
    pub fn deletes_none(&self) -> bool {
        self.table().snapshot.segments.iter().all(|segment| segment.deleted.is_empty())
    }

    /// Finds the rows of a part, and their scores where asked. `None` where the segment is not searched
    /// or the search has ended. Blocks; runs on a compute thread.
    pub fn rows_of(
        &self,
        part: &Part,
        scores: bool,
    ) -> millrace_work::error::Result<Option<(RoaringBitmap, Vec<f32>)>> {
        self.shared.visit(part, scores, |_, pass| collect::collect_all(&pass, scores))
    }

    /// Returns a scan of the same rows with a key and their addresses, without those that cannot be among the first `limit`
    /// by it, and then by address alone if `by_address`. `None` where it cannot tell which these are.
    pub fn first_by(&self, key: Key, descending: bool, limit: usize, by_address: bool) -> Option<Self> {
        let own = &self.shared;
        let mut fields = vec![Field::new(&key.name, key.kind.data_type(), true)];
        fields.extend([SEGMENT, ROW].map(|name| Field::new(name, DataType::UInt32, false)));
        let name = key.name.clone();
        let scan = Self::of(Shared {
            table: Arc::new(TableState { keys: vec![key], ..TableState::clone(&own.table) }),
            predicate: own.predicate.clone(),
            openings: Arc::clone(&own.openings),
            columns: vec![Column::Key(0), Column::Segment, Column::Row],
            schema: Arc::new(Schema::new(fields)),
            groups: own.groups.clone(),
        });
        scan.with_first(&name, descending, limit, by_address, false)
    }

    /// Keeps `limit` rows of each partition only: those of the best scores, or the first. `None` where
    /// more than scores and addresses are asked for.
    pub(crate) fn with_best(&self, limit: usize, by_score: bool) -> Option<Self> {
        let keyless = !self.shared.columns.iter().any(|column| matches!(column, Column::Key(_)));
        keyless.then(|| Self { top: Some(Top::Rows { limit, by_score }), ..self.clone() })
    }

    /// Leaves out rows that cannot be among the first `limit` by a key, and then by address alone if
    /// `by_address`, of those behind the point where the search goes on if `continued`. `None` where
    /// the scan cannot tell.
    pub(crate) fn with_first(
        &self,
        name: &str,
        descending: bool,
        limit: usize,
        by_address: bool,
        continued: bool,
    ) -> Option<Self> {
        let table = &self.shared.table;
        let number = table.keys.iter().position(|key| key.name == name)?;
        let key = &table.keys[number];
        let order = || TermOrder { limit, descending, by_address, last: Arc::default() };
        if key.kind == KeyKind::Str && !continued && !self.shared.columns.contains(&Column::Score) {
            return Some(Self { top: Some(Top::Term { key: number, order: order() }), ..self.clone() });
        }
        let measured = key.sources.iter().flatten().any(|source| source.distance.is_some());
        let mut sources = table.keys.iter().flat_map(|key| key.sources.iter().flatten());
        let measured = measured || sources.any(|source| source.derived.is_some());
        if self.shared.columns.contains(&Column::Score) || !Threshold::supports(key.kind) || measured {
            return None;
        }
        let after = match (continued, &table.options.after_key) {
            (false, None) => None,
            (true, Some(value)) => Some(threshold::code_of_scalar(value)?),
            _ => return None,
        };
        let order = after.is_none().then(order);
        let threshold = Arc::new(Threshold::new(limit, descending, by_address, after));
        Some(Self { top: Some(Top::Key { key: number, threshold, order }), ..self.clone() })
    }
}

impl DisplayAs for IndexScanExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        let snapshot = &shared.table.snapshot;
        write!(f, "IndexScanExec: indices=[")?;
        for (at, index) in snapshot.indices.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { ", " } else { "" }, index.meta.name)?;
        }
        let segments = count_segments(&shared.groups);
        write!(f, "], segments={segments}, predicate={}", shared.predicate)?;
        let columns: Vec<&str> = shared.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, ", columns=[{}]", columns.join(", "))?;
        match &self.top {
            None => Ok(()),
            Some(Top::Rows { limit, by_score }) => {
                write!(f, ", top={limit} by {}", if *by_score { SCORE } else { ROW })
            }
            Some(Top::Key { key, threshold, .. }) => {
                write!(f, ", first={} by {}", threshold.limit(), shared.table.keys[*key].name)
            }
            Some(Top::Term { key, order }) => {
                write!(f, ", first={} by terms of {}", order.limit, shared.table.keys[*key].name)
            }
        }
    }
}

impl ExecutionPlan for IndexScanExec {
    fn name(&self) -> &str {
        "IndexScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    crate::without_inputs!();

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let mut known = Statistics::new_unknown(&self.shared.schema);
        if let Some(rows) = self.all_rows().filter(|_| args.partition().is_none()) {
            known.num_rows = Precision::Exact(usize::try_from(rows).unwrap_or(usize::MAX));
        }
        Ok(Arc::new(known))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let reservation = MemoryConsumer::new("IndexScanExec").register(context.memory_pool());
        let task = PartitionTask::new(Arc::clone(&self.shared), partition, reservation);
        Ok(task.stream(self.top.clone()))
    }
}

#[cfg(test)]
mod tests;
