//! The leaf of every search plan: finds rows by the index predicate, where it runs.
//!
//! One partition is a run of consecutive rows, of several segments or a part of one. What a partition does ([`partition`]) depends on
//! what is asked of it: nothing but a count (no columns), the first rows of an order ([`first`], asked for by the rule in
//! [`super::top_k`]), or all rows with their keys, as a stream of batches.

mod derived_keys;
mod first;
mod partition;
mod read;

use std::fmt;
use std::sync::Arc;

use self::first::{FirstRows, KeyOrder, LeadingKey};
use self::partition::PartitionTask;
use super::keys::Key;
use super::partitions::{Openings, PartitionBoundary, RowPartition, count_segments, share_out};
use super::predicate::Predicate;
use super::statistics::Functions;
use crate::table::state::{ROW, SCORE, SEGMENT, TableState};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as PlanResult, Statistics};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use millrace_scoring::collect;
use millrace_scoring::node::ResolvedPredicate;
use roaring::RoaringBitmap;

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
    shared: Arc<ScanState>,
    first: Option<FirstRows>,
    properties: Arc<PlanProperties>,
}

/// State that the partitions of a scan share.
#[derive(Debug)]
struct ScanState {
    table: Arc<TableState>,
    predicate: Predicate,
    openings: Arc<Openings>,
    columns: Vec<Column>,
    schema: SchemaRef,
    /// The rows of each partition.
    groups: Vec<Vec<RowPartition>>,
}

impl IndexScanExec {
    /// Makes a scan of `projection` of the table's schema, in at most `partitions` partitions.
    pub fn new(
        table: Arc<TableState>,
        schema: &SchemaRef,
        predicate: Predicate,
        resolved: Vec<Option<ResolvedPredicate>>,
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
        let groups = share_out(&table.snapshot.segments, &resolved, partitions, PartitionBoundary::Rows);
        let work = &table.options.work;
        let functions = Functions::new(table.snapshot.shards, table.options.global_statistics);
        let min_score = table.options.min_score;
        let openings = Arc::new(Openings::new(&table.snapshot, resolved, functions, min_score, work));
        Ok(Self::of(ScanState { table, predicate, openings, columns, schema, groups }))
    }

    fn of(shared: ScanState) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&shared.schema)),
            Partitioning::UnknownPartitioning(shared.groups.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { shared: Arc::new(shared), first: None, properties: Arc::new(properties) }
    }

    /// Returns the scanned table.
    pub fn table(&self) -> &TableState {
        &self.shared.table
    }

    /// Lists the rows of each partition.
    pub fn partitions(&self) -> &[Vec<RowPartition>] {
        &self.shared.groups
    }

    /// Returns the matching predicate.
    pub fn predicate(&self) -> &Predicate {
        &self.shared.predicate
    }

    /// Counts the rows where every one that is not deleted is found.
    pub fn all_rows(&self) -> Option<u64> {
        let TableState { snapshot, options, .. } = self.table();
        let all = matches!(self.shared.predicate, Predicate::All)
            && snapshot.shows_all()
            && snapshot.listed.is_none()
            && options.terminate_after == 0
            && options.min_score.is_none()
            && self.first.is_none();
        let rows =
            snapshot.segments.iter().map(|segment| u64::from(segment.reader.rows()) - segment.deleted.len());
        all.then(|| rows.sum())
    }

    /// Counts the rows that are not deleted, whether they are found or not.
    pub fn rows_at_most(&self) -> usize {
        let segments = self.table().snapshot.segments.iter();
        let rows = segments.map(|segment| u64::from(segment.reader.rows()) - segment.deleted.len());
        usize::try_from(rows.sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Returns whether no row of a segment is deleted.
    pub fn deletes_none(&self) -> bool {
        self.table().snapshot.segments.iter().all(|segment| segment.deleted.is_empty())
    }

    /// Finds the rows of a part, and their scores where asked. `None` where the segment is not searched
    /// or the search has ended. Blocks; runs on a compute thread.
    pub fn rows_of(
        &self,
        part: &RowPartition,
        scores: bool,
    ) -> millrace_work::error::Result<Option<(RoaringBitmap, Vec<f32>)>> {
        self.shared.visit(part, scores, |_, pass| collect::collect_all(&pass, scores))
    }

    /// Returns whether every row of a part is found, and none of its segment is deleted. Blocks; runs on a compute thread.
    pub fn finds_all(&self, part: &RowPartition) -> millrace_work::error::Result<bool> {
        let undeleted = self.table().snapshot.segments.get(part.segment as usize);
        if undeleted.is_none_or(|segment| !segment.deleted.is_empty()) {
            return Ok(false);
        }
        let found = self.shared.visit(part, false, |_, pass| Ok(pass.prepared.is_everything()))?;
        Ok(found.unwrap_or(false))
    }

    /// Returns a scan of the same rows and those that differ from them in lacking a value of a field; `None` if the predicate does
    /// not ask for one.
    pub fn without_presence(&self, field: &str) -> Option<Self> {
        let own = &self.shared;
        let predicate = own.predicate.without_presence(field)?;
        let snapshot = &own.table.snapshot;
        let mut resolved = own.openings.resolved().to_vec();
        for (index, resolved) in snapshot.indices.iter().zip(&mut resolved) {
            if let (Some(field), Some(resolved)) = (index.mapping.field(field), resolved) {
                resolved.node = resolved.node.without_presence(field.id);
            }
        }
        let options = &own.table.options;
        let functions = Functions::new(snapshot.shards, options.global_statistics);
        let openings = Openings::new(snapshot, resolved, functions, options.min_score, &options.work);
        Some(Self::of(ScanState {
            table: Arc::clone(&own.table),
            predicate,
            openings: Arc::new(openings),
            columns: own.columns.clone(),
            schema: Arc::clone(&own.schema),
            groups: own.groups.clone(),
        }))
    }

    /// Returns a scan of the same rows as far as they are in some parts, in one partition.
    pub fn of_parts(&self, parts: Vec<RowPartition>) -> Self {
        let own = &self.shared;
        Self::of(ScanState {
            table: Arc::clone(&own.table),
            predicate: own.predicate.clone(),
            openings: Arc::clone(&own.openings),
            columns: own.columns.clone(),
            schema: Arc::clone(&own.schema),
            groups: vec![parts],
        })
    }

    /// Returns a scan of the same rows with a key and their addresses, without those that cannot be among the first `limit`
    /// by it, and then by address alone if `by_address`. `None` where it cannot tell which these are.
    pub fn first_by(&self, key: Key, descending: bool, limit: usize, by_address: bool) -> Option<Self> {
        let (name, field) = (key.name.clone(), Field::new(&key.name, key.kind.data_type(), true));
        let scan = self.of_addresses(vec![key], Column::Key(0), field);
        let order = Leading { column: &name, descending, by_address };
        scan.with_first(order, limit, None, false)
    }

    /// Returns a scan of the same rows with scores and addresses, without those that cannot be among the `limit` of the best
    /// scores.
    pub fn first_by_score(&self, limit: usize) -> Option<Self> {
        let scan = self.of_addresses(Vec::new(), Column::Score, Field::new(SCORE, DataType::Float32, false));
        scan.with_first(Leading { column: SCORE, descending: true, by_address: true }, limit, None, false)
    }

    /// Returns a scan of the same rows with one column and their addresses.
    fn of_addresses(&self, keys: Vec<Key>, column: Column, field: Field) -> Self {
        let own = &self.shared;
        let mut fields = vec![field];
        fields.extend([SEGMENT, ROW].map(|name| Field::new(name, DataType::UInt32, false)));
        Self::of(ScanState {
            table: Arc::new(TableState { keys, ..TableState::clone(&own.table) }),
            predicate: own.predicate.clone(),
            openings: Arc::clone(&own.openings),
            columns: vec![column, Column::Segment, Column::Row],
            schema: Arc::new(Schema::new(fields)),
            groups: own.groups.clone(),
        })
    }

    /// Leaves out rows that cannot be among the first `limit` of an order, or the best rows of the first `limit` groups by the
    /// key `group`, of those behind the point where the search goes on if `continued`. `None` where the scan cannot tell.
    pub(crate) fn with_first(
        &self,
        order: Leading<'_>,
        limit: usize,
        group: Option<&str>,
        continued: bool,
    ) -> Option<Self> {
        let (table, has) = (&self.shared.table, |column| self.shared.columns.contains(&column));
        let number = |name: &str| table.keys.iter().position(|key| key.name == name);
        let group = match group {
            None => None,
            Some(name) => Some(number(name)?),
        };
        let place = match order.column {
            SCORE if order.descending => Some(LeadingKey::Score),
            SEGMENT if !order.descending => Some(LeadingKey::Address),
            _ => None,
        };
        let first = match place {
            // A search that goes on does so at a point of the scan's own.
            Some(by) => (order.by_address && !continued).then(|| FirstRows::by_place(by, limit, group))?,
            None if has(Column::Score) || continued != table.options.after_key.is_some() => return None,
            None => {
                let Leading { column, descending, by_address } = order;
                let order = KeyOrder { descending, by_address, after: table.options.after_key.clone() };
                FirstRows::by_key(&table.keys, number(column)?, order, limit, group)?
            }
        };
        Some(Self { first: Some(first), ..self.clone() })
    }
}

/// First sort key of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leading<'a> {
    /// The column.
    pub column: &'a str,
    /// `true` if the greatest comes first.
    pub descending: bool,
    /// `true` if addresses alone decide among rows with the same.
    pub by_address: bool,
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
        match &self.first {
            None => Ok(()),
            Some(first) => first.describe(&shared.table.keys, f),
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
        Ok(task.stream(self.first.clone()))
    }
}

#[cfg(test)]
mod tests;
