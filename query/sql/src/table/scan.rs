//! The node of a plan that reads the columns of the rows that a scan finds.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as PlanResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use futures::{TryStreamExt, stream};
use millrace_matching::table::partitions::RowPartition;
use millrace_matching::table::scan::IndexScanExec;
use millrace_matching::table::{ROW, SEGMENT};
use millrace_work::error::Result;
use roaring::RoaringBitmap;
use tokio::sync::mpsc::Sender;

use super::dynamic_filter::{DynamicFilter, JoinKey};
use super::read::FoundRows;
use super::scan_counts::ScanCounts;
use super::{MarkFinder, ScanSource, SqlTable};
use crate::column::SqlColumn;

/// An output column of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Column(usize),
    Score,
    Segment,
    Row,
    /// The truth of a clause.
    Mark(usize),
}

/// Reads the columns of the rows that a scan finds.
#[derive(Clone, Debug)]
pub(crate) struct SqlScanExec {
    shared: Arc<ScanState>,
    properties: Arc<PlanProperties>,
}

/// State that the streams of a scan share.
#[derive(Clone, Debug)]
pub(super) struct ScanState {
    pub(super) finder: IndexScanExec,
    source: Arc<ScanSource>,
    pub(super) columns: Arc<Vec<SqlColumn>>,
    pub(super) outputs: Vec<Output>,
    pub(super) schema: SchemaRef,
    /// `true` if the predicate gives scores.
    pub(super) scored: bool,
    /// Rows after which a partition ends.
    pub(super) limit: Option<usize>,
    /// Scan that finds the first rows, where fewer rows are requested than the finder finds.
    first: Option<IndexScanExec>,
    /// Scans of the rows of clauses that have a column.
    pub(super) marks: Vec<MarkFinder>,
    /// Counts of what is read, where these are asked for.
    pub(super) counts: Option<Arc<ScanCounts>>,
    /// Filters by keys of joins.
    pub(super) filters: Vec<Arc<DynamicFilter>>,
}

impl SqlScanExec {
    pub(super) fn new(
        (finder, marks): (IndexScanExec, Vec<MarkFinder>),
        table: &SqlTable,
        projection: Vec<usize>,
        scored: bool,
        limit: Option<usize>,
    ) -> PlanResult<Self> {
        let columns = table.source.columns.len();
        let outputs = projection
            .iter()
            .map(|at| match at.checked_sub(columns) {
                None => Output::Column(*at),
                Some(0) => Output::Score,
                Some(1) => Output::Row,
                Some(at) => Output::Mark(at - 2),
            })
            .collect();
        let schema = Arc::new(table.schema.project(&projection)?);
        let (source, columns) = (Arc::clone(&table.source), Arc::clone(&table.source.columns));
        let (first, counts, filters) = (None, None, Vec::new());
        Ok(Self::of(ScanState {
            finder,
            source,
            columns,
            outputs,
            schema,
            scored,
            limit,
            first,
            marks,
            counts,
            filters,
        }))
    }

    fn of(shared: ScanState) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&shared.schema)),
            Partitioning::UnknownPartitioning(shared.finder.partitions().len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { shared: Arc::new(shared), properties: Arc::new(properties) }
    }

    /// Returns the finder of its rows.
    pub(crate) fn finder(&self) -> &IndexScanExec {
        &self.shared.finder
    }

    /// Returns whether it reads all rows that are found, and nothing but columns of them.
    pub(crate) fn is_plain(&self) -> bool {
        let ScanState { outputs, limit, first, .. } = &*self.shared;
        limit.is_none() && first.is_none() && outputs.iter().all(|output| matches!(output, Output::Column(_)))
    }

    /// Returns a scan of the same columns of the rows in some parts, in one partition, that counts what it reads where that is wanted.
    pub(crate) fn of_parts(&self, parts: Vec<RowPartition>, counts: Option<Arc<ScanCounts>>) -> Self {
        let finder = self.shared.finder.of_parts(parts);
        Self::of(ScanState { finder, first: None, counts, ..ScanState::clone(&self.shared) })
    }

    /// Returns a scan of the same rows that counts what it reads.
    pub(crate) fn counting(&self, counts: &Arc<ScanCounts>) -> Self {
        let shared = ScanState { counts: Some(Arc::clone(counts)), ..ScanState::clone(&self.shared) };
        Self { shared: Arc::new(shared), properties: Arc::clone(&self.properties) }
    }

    /// Returns a scan of the rows that may have a key of a join in a column of the output; `None` where the keys leave no rows out,
    /// or would change which rows a limit cuts.
    pub(crate) fn with_join_key(&self, place: usize, key: JoinKey) -> Option<Self> {
        let shared = &self.shared;
        let Output::Column(column) = shared.outputs.get(place)? else { return None };
        if shared.limit.is_some() || shared.first.is_some() {
            return None;
        }
        let mut shared = ScanState::clone(shared);
        shared.filters.push(Arc::new(DynamicFilter::new(key, &shared.source, *column)?));
        Some(Self { shared: Arc::new(shared), properties: Arc::clone(&self.properties) })
    }

    /// Lists the expressions of joins that the scan looks at.
    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.shared.filters.iter().map(|filter| filter.expression()).collect()
    }

    /// Returns whether its rows come with scores.
    pub(crate) fn scores(&self) -> bool {
        self.shared.scored && self.shared.outputs.contains(&Output::Score)
    }

    /// Returns whether an output is the score.
    pub(crate) fn is_score(&self, place: usize) -> bool {
        self.shared.outputs.get(place) == Some(&Output::Score)
    }

    /// Returns the column of an output; `None` of scores and addresses.
    pub(crate) fn column(&self, place: usize) -> Option<&SqlColumn> {
        match self.shared.outputs.get(place)? {
            Output::Column(at) => self.shared.columns.get(*at),
            _ => None,
        }
    }

    /// Returns a scan of the same rows, or the `first` of them, that reads some of the output columns only, and scores where
    /// this one has them; behind them come segment and row. `None` where it would read as much, or not all rows.
    pub(crate) fn narrowed(&self, wanted: &BTreeSet<usize>, first: Option<IndexScanExec>) -> Option<Self> {
        let shared = &self.shared;
        let mut places: Vec<usize> = Vec::new();
        for (place, output) in shared.outputs.iter().enumerate() {
            match output {
                Output::Column(_) | Output::Mark(_) if !wanted.contains(&place) => {}
                Output::Column(_) | Output::Mark(_) | Output::Score => places.push(place),
                Output::Segment | Output::Row => return None,
            }
        }
        let as_much = places.len() == shared.outputs.len() && first.is_none();
        if as_much || shared.limit.is_some() {
            return None;
        }
        let mut outputs: Vec<_> =
            places.iter().filter_map(|place| shared.outputs.get(*place)).copied().collect();
        outputs.extend([Output::Segment, Output::Row]);
        let mut fields: Vec<_> =
            places.iter().filter_map(|place| shared.schema.fields().get(*place)).cloned().collect();
        fields.extend([SEGMENT, ROW].map(|name| Arc::new(Field::new(name, DataType::UInt32, false))));
        let schema = Arc::new(Schema::new(fields));
        Some(Self::of(ScanState { outputs, schema, first, counts: None, ..ScanState::clone(shared) }))
    }

    /// Returns whether nobody waits for its rows any more.
    pub(crate) fn stopped(&self) -> bool {
        self.shared.finder.table().handle.stop.requested()
    }

    /// Sends the columns of some rows of a segment, in the order of the rows; whether more are wanted.
    pub(crate) async fn read(
        &self,
        out: &Sender<PlanResult<RecordBatch>>,
        segment: u32,
        rows: RoaringBitmap,
        scores: Vec<f32>,
    ) -> Result<bool> {
        self.shared.emit(out, segment, FoundRows::new(rows, scores)).await
    }
}

impl DisplayAs for SqlScanExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.shared.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "ColumnsExec: columns=[{}]", names.join(", "))?;
        if let Some(limit) = self.shared.limit {
            write!(f, ", limit={limit}")?;
        }
        if !self.shared.filters.is_empty() {
            let filters: Vec<String> = self.shared.filters.iter().map(ToString::to_string).collect();
            write!(f, ", dynamic_filters=[{}]", filters.join("; "))?;
        }
        f.write_str(", rows=(")?;
        self.shared.first.as_ref().unwrap_or(&self.shared.finder).fmt_as(format, f)?;
        f.write_str(")")
    }
}

impl ExecutionPlan for SqlScanExec {
    fn name(&self) -> &str {
        "ColumnsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    millrace_matching::without_inputs!(expressions = expressions);

    // A join that runs once more has other keys, which its filter does not tell.
    fn reset_state(self: Arc<Self>) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if self.shared.filters.is_empty() {
            return Ok(self);
        }
        let shared = ScanState { filters: Vec::new(), ..ScanState::clone(&self.shared) };
        Ok(Arc::new(Self { shared: Arc::new(shared), properties: Arc::clone(&self.properties) }))
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let shared = &self.shared;
        let mut known = Statistics::new_unknown(&shared.schema);
        let whole = args.partition().is_none()
            && shared.limit.is_none()
            && shared.first.is_none()
            && shared.filters.is_empty();
        let Some(rows) = shared.finder.all_rows().filter(|_| whole) else {
            // As many as a condition may leave: enough to tell a large side of a join from a small one.
            known.num_rows = match args.partition() {
                None => {
                    Precision::Inexact(shared.finder.rows_at_most().min(shared.limit.unwrap_or(usize::MAX)))
                }
                Some(_) => Precision::Absent,
            };
            return Ok(Arc::new(known));
        };
        known.num_rows = Precision::Exact(usize::try_from(rows).unwrap_or(usize::MAX));
        // What is known of columns is known of all their rows.
        if shared.finder.deletes_none() {
            let snapshot = &shared.finder.table().snapshot;
            for (output, of_column) in shared.outputs.iter().zip(&mut known.column_statistics) {
                if let Output::Column(at) = output
                    && let Some(found) = shared.columns.get(*at).and_then(|column| column.known(snapshot))
                {
                    *of_column = found;
                }
            }
        }
        Ok(Arc::new(known))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let shared = Arc::clone(&self.shared);
        if shared.filters.is_empty() {
            return shared.started(partition, context);
        }
        // A join asks for rows once it has the keys that filters wait for.
        let schema = Arc::clone(&shared.schema);
        let started = stream::once(async move { shared.started(partition, context) }).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, started)))
    }
}

impl ScanState {
    /// Starts to read a partition.
    fn started(
        self: Arc<Self>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let out = stream.tx();
        match self.first.as_ref().map(|first| first.execute(partition, context)).transpose()? {
            None => stream.spawn(async move { self.run(partition, out).await.map_err(Into::into) }),
            Some(first) => {
                stream.spawn(async move { self.read_first(first, out).await.map_err(Into::into) });
            }
        }
        Ok(stream.build())
    }
}
