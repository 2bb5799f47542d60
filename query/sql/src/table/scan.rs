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
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use millrace_matching::table::partitions::RowPartition;
use millrace_matching::table::scan::IndexScanExec;
use millrace_matching::table::{ROW, SEGMENT};
use millrace_work::error::Result;
use roaring::RoaringBitmap;
use tokio::sync::mpsc::Sender;

use super::scan_counts::ScanCounts;
use super::{MarkFinder, SqlTable};
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
#[derive(Debug)]
pub(super) struct ScanState {
    pub(super) finder: IndexScanExec,
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
        let columns = Arc::clone(&table.source.columns);
        Ok(Self::of(ScanState {
            finder,
            columns,
            outputs,
            schema,
            scored,
            limit,
            first: None,
            marks,
            counts: None,
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

    /// Returns a scan of the same columns of the rows in some parts, in one partition.
    pub(crate) fn of_parts(&self, parts: Vec<RowPartition>) -> Self {
        let ScanState { finder, columns, outputs, schema, scored, limit, marks, .. } = &*self.shared;
        Self::of(ScanState {
            finder: finder.of_parts(parts),
            columns: Arc::clone(columns),
            outputs: outputs.clone(),
            schema: Arc::clone(schema),
            scored: *scored,
            limit: *limit,
            first: None,
            marks: marks.clone(),
            counts: None,
        })
    }

    /// Returns a scan of the same rows that counts what it reads; `None` where another scan finds them.
    pub(crate) fn measured(&self) -> Option<(Self, Arc<ScanCounts>)> {
        let ScanState { finder, columns, outputs, schema, scored, limit, first, marks, .. } = &*self.shared;
        let counts = Arc::<ScanCounts>::default();
        let shared = ScanState {
            finder: finder.clone(),
            columns: Arc::clone(columns),
            outputs: outputs.clone(),
            schema: Arc::clone(schema),
            scored: *scored,
            limit: *limit,
            first: None,
            marks: marks.clone(),
            counts: Some(Arc::clone(&counts)),
        };
        let scan = Self { shared: Arc::new(shared), properties: Arc::clone(&self.properties) };
        first.is_none().then_some((scan, counts))
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
        Some(Self::of(ScanState {
            finder: shared.finder.clone(),
            columns: Arc::clone(&shared.columns),
            outputs,
            schema: Arc::new(Schema::new(fields)),
            scored: shared.scored,
            limit: None,
            first,
            marks: shared.marks.clone(),
            counts: None,
        }))
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
        self.shared.emit(out, segment, rows, scores).await
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

    millrace_matching::without_inputs!();

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let shared = &self.shared;
        let mut known = Statistics::new_unknown(&shared.schema);
        let whole = args.partition().is_none() && shared.limit.is_none() && shared.first.is_none();
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
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.shared.schema), 2);
        let (out, shared) = (stream.tx(), Arc::clone(&self.shared));
        match &self.shared.first {
            None => stream.spawn(async move { shared.run(partition, out).await.map_err(Into::into) }),
            Some(first) => {
                let first = first.execute(partition, context)?;
                stream.spawn(async move { shared.read_first(first, out).await.map_err(Into::into) });
            }
        }
        Ok(stream.build())
    }
}
