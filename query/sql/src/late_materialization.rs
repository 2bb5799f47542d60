//! Late materialization: reads the columns of the first rows of an order when it is known which these are.
//!
//! `ORDER BY … LIMIT` over a scan wants all columns of a few rows, and of all rows only those that it sorts by. The
//! rule here ([`rewritten`]) makes the scan read these, with the addresses of rows, and puts a node above the sort that reads the
//! columns of the rows that are left. Where the index knows which rows can be the first, the scan reads no others.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::common::Result as PlanResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{LexOrdering, Partitioning, PhysicalSortExpr};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;
use tokio::sync::mpsc::{Sender, channel};

use super::count::RowCountExec;
use super::first_rows::first_rows;
use super::node_rewriter::with_inputs;
use super::table::{ScanCounts, SqlScanExec, addresses, scores_of};

/// Most rows whose columns are read late: each may lie in a page of its own.
const MAX_ROWS: usize = 1_024;

/// Segments that are read at the same time.
const CONCURRENT_SEGMENTS: usize = 4;

/// Rewrites a sort with a limit over a scan, and what merges the rows of its partitions.
pub(super) fn rewritten(node: &Arc<dyn ExecutionPlan>) -> PlanResult<Option<Arc<dyn ExecutionPlan>>> {
    let merge = node.downcast_ref::<SortPreservingMergeExec>();
    // What leaves columns of the sort out may stand before the merge; behind it does as well.
    let projection = merge.and_then(|merge| merge.input().downcast_ref::<ProjectionExec>());
    let sort = match (merge, projection) {
        (_, Some(projection)) => projection.input().downcast_ref::<SortExec>(),
        (Some(merge), None) => merge.input().downcast_ref::<SortExec>(),
        (None, None) => node.downcast_ref::<SortExec>(),
    };
    let Some(sort) = sort.filter(|sort| sort.fetch().is_some_and(|rows| rows <= MAX_ROWS)) else {
        return Ok(None);
    };
    if node.properties().output_partitioning().partition_count() != 1 {
        return Ok(None);
    }
    let mut wanted: BTreeSet<usize> =
        sort.expr().iter().flat_map(|key| collect_columns(&key.expr)).map(|column| column.index()).collect();
    let Some(scan) = scan_below(sort.input(), &mut wanted) else { return Ok(None) };
    let first = is_direct(sort.input()).then(|| first_rows(scan, sort)).flatten();
    let Some(narrow) = scan.narrowed(&wanted, first) else { return Ok(None) };
    let narrow: Arc<dyn ExecutionPlan> = Arc::new(narrow);
    let schema = narrow.schema();
    let keys = sort.expr().iter().map(|key| {
        let expr = reassign_expr_columns(Arc::clone(&key.expr), &schema)?;
        Ok(PhysicalSortExpr::new(expr, key.options))
    });
    let Some(keys) = LexOrdering::new(keys.collect::<PlanResult<Vec<_>>>()?) else { return Ok(None) };
    let mut plan: Arc<dyn ExecutionPlan> = Arc::new(
        SortExec::new(keys.clone(), over(sort.input(), narrow)?)
            .with_preserve_partitioning(sort.preserve_partitioning())
            .with_fetch(sort.fetch()),
    );
    let mut properties = sort.properties();
    if let Some(merge) = merge {
        plan = Arc::new(SortPreservingMergeExec::new(keys, plan).with_fetch(merge.fetch().or(sort.fetch())));
        properties = if projection.is_some() { plan.properties() } else { merge.properties() };
    }
    let properties = match projection {
        None => Arc::clone(properties),
        // In the order of the sort, which the rows below no longer have the columns for.
        Some(_) => Arc::new(PlanProperties::new(
            sort.properties().equivalence_properties().clone(),
            properties.output_partitioning().clone(),
            properties.emission_type,
            properties.boundedness,
        )),
    };
    let late: Arc<dyn ExecutionPlan> =
        Arc::new(LateColumnsExec { scan: scan.clone(), input: plan, properties });
    Ok(Some(match projection {
        None => late,
        Some(projection) => Arc::new(ProjectionExec::try_new(projection.expr().to_vec(), late)?),
    }))
}

/// Returns a node that counts what it reads; `None` of other nodes.
pub(super) fn counting(
    node: &Arc<dyn ExecutionPlan>,
    counts: &Arc<ScanCounts>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let late = node.downcast_ref::<LateColumnsExec>()?;
    Some(Arc::new(LateColumnsExec { scan: late.scan.counting(counts), ..late.clone() }))
}

/// Finds the scan below nodes that pass its rows on as they are, and adds the columns that these read.
fn scan_below<'p>(node: &'p Arc<dyn ExecutionPlan>, wanted: &mut BTreeSet<usize>) -> Option<&'p SqlScanExec> {
    if let Some(scan) = node.downcast_ref() {
        return Some(scan);
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>().filter(|filter| filter.projection().is_none()) {
        wanted.extend(collect_columns(filter.predicate()).iter().map(|column| column.index()));
        return scan_below(filter.input(), wanted);
    }
    let passes = match node.downcast_ref::<RepartitionExec>() {
        Some(spread) => matches!(spread.partitioning(), Partitioning::RoundRobinBatch(_)),
        None => node.is::<RowCountExec>(),
    };
    let child = passes.then(|| node.children().into_iter().next());
    scan_below(child??, wanted)
}

/// Returns whether all rows of a scan come to a node as they are, and nothing looks at them on their way.
fn is_direct(node: &Arc<dyn ExecutionPlan>) -> bool {
    match node.downcast_ref::<RepartitionExec>() {
        Some(spread) => is_direct(spread.input()),
        None => node.is::<SqlScanExec>(),
    }
}

/// Puts the nodes above a scan above a narrower one.
fn over(node: &Arc<dyn ExecutionPlan>, scan: Arc<dyn ExecutionPlan>) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let children = node.children();
    let Some(child) = children.first() else { return Ok(scan) };
    let child = over(child, scan)?;
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let predicate = reassign_expr_columns(Arc::clone(filter.predicate()), &child.schema())?;
        return Ok(Arc::new(FilterExec::try_new(predicate, child)?));
    }
    with_inputs(node, vec![child])
}

/// Reads the columns of rows whose addresses its input has, in its order.
#[derive(Clone, Debug)]
struct LateColumnsExec {
    /// Scan that reads them.
    scan: SqlScanExec,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for LateColumnsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.scan.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "LateColumnsExec: columns=[{}]", names.join(", "))
    }
}

impl ExecutionPlan for LateColumnsExec {
    fn name(&self) -> &str {
        "LateColumnsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    millrace_matching::over_one_input!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new("columns of the first rows").register(context.memory_pool());
        let first = self.input.execute(partition, context)?;
        let mut stream = RecordBatchReceiverStream::builder(self.scan.schema(), 2);
        let (out, scan) = (stream.tx(), self.scan.clone());
        stream.spawn(async move { run(&scan, first, &memory, &out).await.map_err(Into::into) });
        Ok(stream.build())
    }
}

/// A row that is wanted.
#[derive(Clone, Copy)]
struct Row {
    segment: u32,
    row: u32,
    score: Option<f32>,
    /// Its place in the order.
    place: u64,
}

/// Rows of a segment that are wanted, ascending, with their scores where they have any.
struct SegmentRows {
    segment: u32,
    rows: RoaringBitmap,
    scores: Vec<f32>,
}

impl SegmentRows {
    fn new(rows: &[Row]) -> Self {
        Self {
            segment: rows.first().map_or(0, |row| row.segment),
            rows: rows.iter().map(|row| row.row).collect(),
            scores: rows.iter().filter_map(|row| row.score).collect(),
        }
    }
}

/// Reads the columns of rows of a segment.
async fn read_segment(
    scan: &SqlScanExec,
    rows: SegmentRows,
    memory: &MemoryReservation,
) -> Result<Vec<RecordBatch>> {
    let SegmentRows { segment, rows, scores } = rows;
    let (sender, mut receiver) = channel(2);
    let read = async {
        let sender = sender;
        scan.read(&sender, segment, rows, scores).await.map(drop)
    };
    let collect = async {
        let mut batches = Vec::new();
        while let Some(batch) = receiver.recv().await {
            let batch = batch?;
            // Columns may be whole documents.
            memory.try_grow(batch.get_array_memory_size())?;
            batches.push(batch);
        }
        Ok::<_, Error>(batches)
    };
    let ((), batches) = futures::try_join!(read, collect)?;
    Ok(batches)
}

async fn run(
    scan: &SqlScanExec,
    mut input: SendableRecordBatchStream,
    memory: &MemoryReservation,
    out: &Sender<PlanResult<RecordBatch>>,
) -> Result<()> {
    let mut rows: Vec<Row> = Vec::new();
    while let Some(batch) = input.next().await {
        append(&batch?, &mut rows)?;
    }
    rows.sort_unstable_by_key(|row| (row.segment, row.row));
    let by_segment = rows.chunk_by(|a, b| a.segment == b.segment).map(SegmentRows::new);
    let by_segment: Vec<SegmentRows> = by_segment.collect();
    let reads = by_segment.into_iter().map(|rows| read_segment(scan, rows, memory));
    let batches: Vec<Vec<RecordBatch>> =
        stream::iter(reads).buffered(CONCURRENT_SEGMENTS).try_collect().await?;
    let batches = batches.concat();
    let found = concat_batches(&scan.schema(), &batches)?;
    if found.num_rows() != rows.len() {
        return match scan.stopped() {
            true => Ok(()),
            false => Err(Error::Execution(format!("{} of {} rows were read", found.num_rows(), rows.len()))),
        };
    }
    let mut order = vec![0; rows.len()];
    for (at, row) in (0..).zip(&rows) {
        if let Some(place) = order.get_mut(row.place as usize) {
            *place = at;
        }
    }
    // Nobody may wait any more.
    let _ = out.send(take_record_batch(&found, &UInt64Array::from(order)).map_err(Into::into)).await;
    Ok(())
}

/// Takes the addresses and scores of a batch over.
fn append(batch: &RecordBatch, rows: &mut Vec<Row>) -> Result<()> {
    let scores = scores_of(batch);
    for (at, (segment, row)) in addresses(batch)?.enumerate() {
        rows.push(Row {
            segment,
            row,
            score: scores.filter(|scores| scores.is_valid(at)).map(|scores| scores.value(at)),
            place: rows.len() as u64,
        });
    }
    Ok(())
}
