//! The fields of indices as a DataFusion table: the sibling of [`IndexTable`], which has a search's sort
//! keys and addresses only.
//!
//! Rows are found as every search finds them, by the scan of an [`IndexTable`] over the same snapshot; what
//! is added here is that the columns of a statement are then read for them, segment by segment. A scan
//! without columns is that scan itself, so that counts come from metadata and postings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, AsArray, Float32Array, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray,
    StringViewBuilder, UInt32Array, new_null_array,
};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Schema, SchemaRef, UInt32Type};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as PlanResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use millrace_dsl::source_filter::SourceFilter;
use millrace_matching::table::parts::Part;
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::scan::IndexScanExec;
use millrace_matching::table::{IndexTable, ROW, SCORE, SEGMENT, ScanHandle, ScanOptions, TableSnapshot};
use millrace_storage::mapping::PathId;
use millrace_storage::segment::RowParts;
use millrace_work::Work;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::column::{ColumnSource, SqlColumn};

/// Rows of one batch.
const BATCH_ROWS: usize = 8_192;
/// Rows whose sources are read at a time: sources are large.
const SOURCE_ROWS: usize = 512;

/// The fields of indices that a statement names, as a table.
#[derive(Debug)]
pub(crate) struct SqlTable {
    index: IndexTable,
    columns: Arc<Vec<SqlColumn>>,
    schema: SchemaRef,
}

impl SqlTable {
    /// Makes the table of some columns over a snapshot.
    pub(crate) fn new(
        snapshot: Arc<TableSnapshot>,
        columns: Vec<SqlColumn>,
        now_ms: i64,
        compute: Compute,
        work: Work,
    ) -> Self {
        let mut fields: Vec<Field> =
            columns.iter().map(|column| Field::new(&column.name, column.arrow(), true)).collect();
        fields.push(Field::new(SCORE, DataType::Float32, true));
        fields.push(Field::new(ROW, DataType::UInt32, false));
        // A scan that does not count would stop where only counts are asked for.
        let options = ScanOptions { now_ms, track: Some(u64::MAX), work, ..ScanOptions::default() };
        let index = IndexTable::new(snapshot, Vec::new(), options, compute);
        Self { index, columns: Arc::new(columns), schema: Arc::new(Schema::new(fields)) }
    }

    /// Returns what stops its scans and has their failures.
    pub(crate) fn handle(&self) -> &Arc<ScanHandle> {
        self.index.handle()
    }
}

#[async_trait]
impl TableProvider for SqlTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let finder = self.index.scan_rows(session, Some(&Vec::new()), filters)?;
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        if projection.is_empty() {
            return Ok(Arc::new(finder));
        }
        let scored = filters.iter().filter_map(Predicate::from_expr).any(|predicate| scores(&predicate));
        Ok(Arc::new(SqlScanExec::new(finder, self, projection, scored, limit)?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match Predicate::from_expr(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }
}

/// Whether a predicate gives scores: those of statements do where a relevance function asks for it.
fn scores(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Leaf(leaf) => leaf.scored,
        Predicate::And(parts) | Predicate::AtLeast(_, parts) | Predicate::DisMax(_, parts) => {
            parts.iter().any(scores)
        }
        Predicate::Constant(..) | Predicate::Boosting { .. } | Predicate::FunctionScore(..) => true,
        Predicate::Nested(_, inner) => scores(inner),
        Predicate::All | Predicate::Not(_) => false,
    }
}

/// An output column of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Column(usize),
    Score,
    Segment,
    Row,
}

/// Reads the columns of the rows that a scan finds.
#[derive(Clone, Debug)]
pub(crate) struct SqlScanExec {
    shared: Arc<Shared>,
    properties: Arc<PlanProperties>,
}

#[derive(Debug)]
struct Shared {
    finder: IndexScanExec,
    columns: Arc<Vec<SqlColumn>>,
    outputs: Vec<Output>,
    schema: SchemaRef,
    /// Whether the predicate gives scores.
    scored: bool,
    /// Rows after which a partition ends.
    limit: Option<usize>,
    /// What finds the rows where not all are wanted that the finder does.
    first: Option<IndexScanExec>,
}

impl SqlScanExec {
    fn new(
        finder: IndexScanExec,
        table: &SqlTable,
        projection: Vec<usize>,
        scored: bool,
        limit: Option<usize>,
    ) -> PlanResult<Self> {
        let columns = table.columns.len();
        let outputs = projection
            .iter()
            .map(|at| match at.checked_sub(columns) {
                None => Output::Column(*at),
                Some(0) => Output::Score,
                Some(_) => Output::Row,
            })
            .collect();
        let schema = Arc::new(table.schema.project(&projection)?);
        let columns = Arc::clone(&table.columns);
        Ok(Self::of(Shared { finder, columns, outputs, schema, scored, limit, first: None }))
    }

    fn of(shared: Shared) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&shared.schema)),
            Partitioning::UnknownPartitioning(shared.finder.partitions().len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { shared: Arc::new(shared), properties: Arc::new(properties) }
    }

    /// Returns what finds its rows.
    pub(super) fn finder(&self) -> &IndexScanExec {
        &self.shared.finder
    }

    /// Whether it reads all rows that are found, and nothing but columns of them.
    pub(super) fn is_plain(&self) -> bool {
        let Shared { outputs, limit, first, .. } = &*self.shared;
        limit.is_none() && first.is_none() && outputs.iter().all(|output| matches!(output, Output::Column(_)))
    }

    /// Returns a scan of the same columns of the rows in some parts, in one partition.
    pub(super) fn of_parts(&self, parts: Vec<Part>) -> Self {
        let Shared { finder, columns, outputs, schema, scored, limit, .. } = &*self.shared;
        Self::of(Shared {
            finder: finder.of_parts(parts),
            columns: Arc::clone(columns),
            outputs: outputs.clone(),
            schema: Arc::clone(schema),
            scored: *scored,
            limit: *limit,
            first: None,
        })
    }

    /// Whether its rows come with scores.
    pub(super) fn scores(&self) -> bool {
        self.shared.scored && self.shared.outputs.contains(&Output::Score)
    }

    /// Whether an output is the score.
    pub(super) fn is_score(&self, place: usize) -> bool {
        self.shared.outputs.get(place) == Some(&Output::Score)
    }

    /// Returns the column of an output; `None` of scores and addresses.
    pub(super) fn column(&self, place: usize) -> Option<&SqlColumn> {
        match self.shared.outputs.get(place)? {
            Output::Column(at) => self.shared.columns.get(*at),
            Output::Score | Output::Segment | Output::Row => None,
        }
    }

    /// Returns a scan of the same rows, or the `first` of them, that reads some of the output columns only, and scores where
    /// this one has them; behind them come segment and row. `None` where it would read as much, or not all rows.
    pub(crate) fn narrowed(&self, wanted: &BTreeSet<usize>, first: Option<IndexScanExec>) -> Option<Self> {
        let shared = &self.shared;
        let mut places: Vec<usize> = Vec::new();
        for (place, output) in shared.outputs.iter().enumerate() {
            match output {
                Output::Column(_) if !wanted.contains(&place) => {}
                Output::Column(_) | Output::Score => places.push(place),
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
        Some(Self::of(Shared {
            finder: shared.finder.clone(),
            columns: Arc::clone(&shared.columns),
            outputs,
            schema: Arc::new(Schema::new(fields)),
            scored: shared.scored,
            limit: None,
            first,
        }))
    }

    /// Whether nobody waits for its rows any more.
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
        let Some(rows) = shared.finder.all_rows().filter(|_| whole) else { return Ok(Arc::new(known)) };
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

/// Iterates over the addresses of the rows of a batch: segment and row.
pub(super) fn addresses(batch: &RecordBatch) -> Result<impl Iterator<Item = (u32, u32)> + '_> {
    let numbers = |name| batch.column_by_name(name).and_then(|array| array.as_primitive_opt::<UInt32Type>());
    let (Some(segments), Some(rows)) = (numbers(SEGMENT), numbers(ROW)) else {
        return Err(Error::Execution("a scan lacks the addresses of its rows".to_owned()));
    };
    Ok(segments.values().iter().copied().zip(rows.values().iter().copied()))
}

/// Returns the scores of the rows of a batch, if it has any.
pub(super) fn scores_of(batch: &RecordBatch) -> Option<&Float32Array> {
    batch.column_by_name(SCORE).and_then(|array| array.as_primitive_opt::<Float32Type>())
}

/// What a scan reads of one index.
struct Wanted {
    /// Columns, each once.
    ids: Vec<PathId>,
    /// Whether sources are read.
    source: bool,
    /// Whether ids or routing values are read.
    metadata: bool,
    /// Whether numbers of operations are read.
    versions: bool,
}

impl Shared {
    async fn run(self: Arc<Self>, partition: usize, out: Sender<PlanResult<RecordBatch>>) -> Result<()> {
        let mut left = self.limit.unwrap_or(usize::MAX);
        let parts = self.finder.partitions().get(partition).cloned().unwrap_or_default();
        for part in parts {
            if left == 0 {
                break;
            }
            let compute = self.finder.table().compute.clone();
            let (shared, number) = (Arc::clone(&self), part.segment);
            let scores = self.scored && self.outputs.contains(&Output::Score);
            let found = compute.run(move || shared.finder.rows_of(&part, scores)).await?;
            let Some((mut rows, scores)) = found else { continue };
            if rows.len() > left as u64 {
                rows = rows.iter().take(left).collect();
            }
            left -= usize::try_from(rows.len()).unwrap_or(left).min(left);
            if !self.emit(&out, number, rows, scores).await? {
                break;
            }
        }
        Ok(())
    }

    /// Sends the rows that are found elsewhere.
    async fn read_first(
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
                if !self.emit(&out, segment, rows.into_keys().collect(), scores).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn wanted(&self, index: usize) -> Wanted {
        let mut wanted = Wanted { ids: Vec::new(), source: false, metadata: false, versions: false };
        for output in &self.outputs {
            let Output::Column(at) = output else { continue };
            match self.columns.get(*at).and_then(|column| column.sources.get(index)) {
                Some(ColumnSource::Column { id, .. }) if !wanted.ids.contains(id) => wanted.ids.push(*id),
                Some(ColumnSource::Source(_)) => wanted.source = true,
                Some(ColumnSource::Id | ColumnSource::Routing) => wanted.metadata = true,
                Some(ColumnSource::SeqNo | ColumnSource::PrimaryTerm) => {
                    (wanted.metadata, wanted.versions) = (true, true);
                }
                _ => {}
            }
        }
        wanted
    }

    /// Sends the rows of a segment; whether more are wanted.
    async fn emit(
        self: &Arc<Self>,
        out: &Sender<PlanResult<RecordBatch>>,
        number: u32,
        rows: RoaringBitmap,
        scores: Vec<f32>,
    ) -> Result<bool> {
        if rows.is_empty() {
            return Ok(true);
        }
        let table = self.finder.table();
        let Some(segment) = table.snapshot.segments.get(number as usize) else { return Ok(true) };
        let wanted = Arc::new(self.wanted(segment.index));
        let mut sent = 0;
        if wanted.ids.is_empty() {
            let step = if wanted.source || wanted.metadata { SOURCE_ROWS } else { BATCH_ROWS };
            let mut rows = rows.iter();
            loop {
                let chunk: Vec<u32> = rows.by_ref().take(step).collect();
                if chunk.is_empty() {
                    return Ok(true);
                }
                if !self.send(out, number, &wanted, chunk, Vec::new(), &scores, &mut sent).await? {
                    return Ok(false);
                }
            }
        }
        let all = rows.len() == u64::from(segment.reader.rows());
        let mut batches = segment.reader.scan(&wanted.ids, (!all).then_some(rows));
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            let step = if wanted.source || wanted.metadata { SOURCE_ROWS } else { batch.rows.len().max(1) };
            let mut at = 0;
            for chunk in batch.rows.chunks(step) {
                let arrays = batch.columns.iter().map(|array| array.slice(at, chunk.len())).collect();
                at += chunk.len();
                if !self.send(out, number, &wanted, chunk.to_vec(), arrays, &scores, &mut sent).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    #[allow(clippy::too_many_arguments)]
    async fn send(
        self: &Arc<Self>,
        out: &Sender<PlanResult<RecordBatch>>,
        number: u32,
        wanted: &Arc<Wanted>,
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
        let batch = match wanted.source || wanted.metadata {
            true => {
                let (shared, wanted) = (Arc::clone(self), Arc::clone(wanted));
                let compute = self.finder.table().compute.clone();
                compute.run(move || shared.batch(number, &wanted, rows, &arrays, own)).await?
            }
            // Columns come decoded: another change of threads would cost more than what is left.
            false => self.batch(number, wanted, rows, &arrays, own)?,
        };
        Ok(out.send(Ok(batch)).await.is_ok())
    }

    fn batch(
        &self,
        number: u32,
        wanted: &Wanted,
        rows: Vec<u32>,
        arrays: &[ArrayRef],
        scores: Vec<f32>,
    ) -> Result<RecordBatch> {
        let snapshot = &self.finder.table().snapshot;
        let (Some(segment), count) = (snapshot.segments.get(number as usize), rows.len()) else {
            return Err(Error::Execution(format!("segment {number} is not in the snapshot")));
        };
        let mut sources = Vec::new();
        let mut stored = Vec::new();
        if wanted.source || wanted.metadata {
            let parts = RowParts { source: wanted.source, versions: wanted.versions };
            stored = segment.reader.fetch(&rows, parts)?;
            if stored.len() != count {
                return Err(Error::Execution(format!(
                    "segment {number} returned {} of {count} rows",
                    stored.len()
                )));
            }
        }
        if wanted.source {
            let filter =
                snapshot.indices.get(segment.index).map(|index| SourceFilter::of_mapping(&index.mapping));
            for row in &stored {
                let source = match row.source.is_empty() {
                    true => Value::Null,
                    false => serde_json::from_slice(&row.source).map_err(|error| {
                        Error::Execution(format!("the source of [{}] is not JSON: {error}", row.id))
                    })?,
                };
                sources.push(match &filter {
                    None | Some(SourceFilter::All) => source,
                    Some(filter) => filter.apply(source),
                });
            }
        }
        let mut columns = Vec::with_capacity(self.outputs.len());
        for output in &self.outputs {
            columns.push(match output {
                Output::Score if scores.is_empty() => new_null_array(&DataType::Float32, count),
                Output::Score => Arc::new(Float32Array::from(scores.clone())),
                Output::Segment => Arc::new(UInt32Array::from_value(number, count)),
                Output::Row => Arc::new(UInt32Array::from(rows.clone())),
                Output::Column(at) => {
                    let column = self.columns.get(*at);
                    let source = column.and_then(|column| column.sources.get(segment.index));
                    let (Some(column), Some(source)) = (column, source) else {
                        return Err(Error::Execution(format!("column {at} is not of the table")));
                    };
                    match source {
                        ColumnSource::Missing => new_null_array(&column.arrow(), count),
                        ColumnSource::Column { id, .. } => {
                            let place = wanted.ids.iter().position(|other| other == id);
                            match place.and_then(|place| arrays.get(place)) {
                                Some(array) => column.of_array(source, array)?,
                                None => new_null_array(&column.arrow(), count),
                            }
                        }
                        ColumnSource::Source(path) => column.of_sources(path, &sources)?,
                        ColumnSource::Id => {
                            Arc::new(StringViewArray::from_iter_values(stored.iter().map(|row| &row.id)))
                        }
                        ColumnSource::Routing => {
                            let mut texts = StringViewBuilder::with_capacity(count);
                            stored.iter().for_each(|row| texts.append_option(row.routing.as_ref()));
                            Arc::new(texts.finish())
                        }
                        ColumnSource::SeqNo => Arc::new(Int64Array::from_iter_values(
                            stored.iter().map(|row| i64::try_from(row.seq_no).unwrap_or(i64::MAX)),
                        )),
                        ColumnSource::PrimaryTerm => Arc::new(Int64Array::from_iter_values(
                            stored.iter().map(|row| i64::try_from(row.primary_term).unwrap_or(i64::MAX)),
                        )),
                        ColumnSource::Index(name) => {
                            Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(name, count)))
                        }
                    }
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
