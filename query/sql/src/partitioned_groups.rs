//! Groups of many keys: their rows are partitioned by a hash of the keys, and one partition after another is aggregated.
//!
//! DataFusion holds the states of all groups of an output partition in one hash table. The table of millions of groups leaves the caches
//! of the processor, and beyond the memory pool it is sorted on disk. The rule here ([`PartitionManyGroups`]) puts a node above both steps
//! of such an aggregation. The node reads the first rows and counts their keys ([`sample`]). Where nearly every row has keys of its own,
//! it partitions all rows in memory ([`buffered_rows`]) and aggregates them in one step, so that the groups of one partition are held at a time.
//! In all other cases, and where the rows do not fit, they go through the aggregation as it was planned.

mod buffered_rows;
mod sample;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputOrderMode, PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use self::buffered_rows::{BufferedRows, BufferedRowsExec, RowGateExec, RowPartitioner};
use self::sample::has_own_keys;
use super::index_groups::is_repeatable;
use super::node_rewriter::{rewrite_up, with_inputs};

/// Rows of the input from which on an aggregation may be partitioned, as the statistics estimate them.
const MIN_ROWS: usize = 1_000_000;
/// Rows that are partitioned at a time.
const CHUNK_ROWS: usize = 1 << 17;
/// Most bytes of rows of an input that wait to be partitioned. Wide rows are aggregated as planned.
const MAX_PENDING_BYTES: usize = 64 << 20;
/// Partitions of each output partition.
const PARTITIONS: usize = 32;
/// Greatest share of the pool that may be taken with these rows: the groups of a partition need the rest.
const POOL_SHARE: (usize, usize) = (3, 4);

/// Nodes of an aggregation: both steps, and the exchange between them.
const STEPS: usize = 3;

type Node = Arc<dyn ExecutionPlan>;

/// Bounds of partitioned aggregations.
#[derive(Clone, Copy, Debug)]
struct PartitionBounds {
    /// Least rows of an input, as they are estimated.
    min_rows: usize,
    /// Rows that are partitioned at a time.
    chunk_rows: usize,
    /// Most bytes of rows that are held.
    bytes: usize,
}

/// Lets aggregations of many rows partition these.
#[derive(Debug)]
pub(crate) struct PartitionManyGroups {
    bounds: PartitionBounds,
}

impl PartitionManyGroups {
    /// Makes the rule for a pool of memory.
    pub(crate) fn new(pool: &dyn MemoryPool) -> Self {
        let bytes = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes / POOL_SHARE.1 * POOL_SHARE.0,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        Self { bounds: PartitionBounds { min_rows: MIN_ROWS, chunk_rows: CHUNK_ROWS, bytes } }
    }

    fn rewritten(&self, node: &Node) -> PlanResult<Option<Node>> {
        let Some(steps) = AggregationSteps::new(node) else { return Ok(None) };
        let is_held = |ty: &DataType| {
            ty.primitive_width().is_some() || matches!(ty, DataType::Boolean | DataType::Utf8View)
        };
        let input = steps.first.input();
        let schema = input.schema();
        if schema.fields().is_empty() || !schema.fields().iter().all(|field| is_held(field.data_type())) {
            return Ok(None);
        }
        let known = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new())?;
        let Some(rows) = known.num_rows.get_value().copied() else { return Ok(None) };
        if rows < self.bounds.min_rows {
            return Ok(None);
        }
        let planned = over(node, Arc::new(RowGateExec::new(Arc::clone(input))), STEPS)?;
        let Some(steps) = AggregationSteps::new(&planned) else { return Ok(None) };
        let (first, outputs) = (steps.first.clone(), steps.partitions);
        let partitioning = GroupPartitioning { first, outputs, rows, bounds: self.bounds };
        Ok(Some(Arc::new(PartitionedGroupsExec::new(planned, Arc::new(partitioning)))))
    }
}

impl PhysicalOptimizerRule for PartitionManyGroups {
    fn optimize(&self, plan: Node, _config: &ConfigOptions) -> PlanResult<Node> {
        rewrite_up(plan, |node| self.rewritten(node))
    }

    fn name(&self) -> &str {
        "partition_many_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The two steps of an aggregation whose result does not depend on the order of rows.
struct AggregationSteps<'n> {
    /// Makes states of rows.
    first: &'n AggregateExec,
    /// Output partitions.
    partitions: usize,
}

impl<'n> AggregationSteps<'n> {
    /// Finds the steps below the second one; `None` of everything else.
    fn new(node: &'n Node) -> Option<Self> {
        let is_plain = |step: &AggregateExec| {
            step.limit_options().is_none()
                && step.group_expr().is_single()
                && !step.group_expr().is_empty()
                && *step.input_order_mode() == InputOrderMode::Linear
        };
        let last = node.downcast_ref::<AggregateExec>().filter(|last| is_plain(last))?;
        let exchange = last.input().downcast_ref::<RepartitionExec>()?;
        let Partitioning::Hash(_, partitions) = exchange.partitioning() else { return None };
        let first = exchange.input().downcast_ref::<AggregateExec>().filter(|first| is_plain(first))?;
        let in_any_order = first.aggr_expr().iter().all(|aggregate| aggregate.order_bys().is_empty());
        // Keys are computed once for the partition of a row, and once for its group.
        let is_repeatable = first.group_expr().input_exprs().iter().all(is_repeatable);
        let modes = (*first.mode(), *last.mode());
        let is_found = modes == (AggregateMode::Partial, AggregateMode::FinalPartitioned)
            && !exchange.preserve_order()
            && in_any_order
            && is_repeatable;
        is_found.then_some(Self { first, partitions: *partitions })
    }
}

/// An aggregation whose rows may be partitioned.
#[derive(Debug)]
struct GroupPartitioning {
    /// The first step, of which one step is made.
    first: AggregateExec,
    /// Output partitions.
    outputs: usize,
    /// Rows of its input, as they are estimated.
    rows: usize,
    bounds: PartitionBounds,
}

/// Aggregates rows partition by partition, or as it was planned.
#[derive(Debug)]
struct PartitionedGroupsExec {
    /// The aggregation as it was planned, above a gate. Other nodes may stand between those of its steps.
    planned: Node,
    partitioning: Arc<GroupPartitioning>,
    /// Rows that were read, for all output partitions, or the error of reading.
    read: Arc<OnceCell<Result<ReadRows, Arc<DataFusionError>>>>,
    metrics: ExecutionPlanMetricsSet,
}

/// The rows of an execution.
#[derive(Debug)]
enum ReadRows {
    /// They are partitioned: those of each output partition, until it takes them.
    Partitioned(Vec<Mutex<Option<OutputRows>>>),
    /// They go through the aggregation as it was planned.
    AsPlanned,
}

/// The rows of an output partition, by partition.
#[derive(Debug)]
struct OutputRows {
    partitions: Vec<Vec<RecordBatch>>,
    memory: Arc<MemoryReservation>,
}

impl PartitionedGroupsExec {
    fn new(planned: Node, partitioning: Arc<GroupPartitioning>) -> Self {
        let (read, metrics) = (Arc::default(), ExecutionPlanMetricsSet::new());
        Self { planned, partitioning, read, metrics }
    }
}

impl DisplayAs for PartitionedGroupsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartitionedGroupsExec")
    }
}

impl ExecutionPlan for PartitionedGroupsExec {
    fn name(&self) -> &str {
        "PartitionedGroupsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planned.properties()
    }

    millrace_matching::opaque!();

    fn children(&self) -> Vec<&Node> {
        vec![&self.planned]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Node>,
        _options: ReplaceChildrenOptions,
    ) -> PlanResult<Node> {
        let Some(planned) = children.pop() else {
            return datafusion::common::plan_err!("groups need an aggregation");
        };
        Ok(Arc::new(Self::new(planned, Arc::clone(&self.partitioning))))
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let schema = self.schema();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (planned, partitioning) = (Arc::clone(&self.planned), Arc::clone(&self.partitioning));
        let read = Arc::clone(&self.read);
        let output = async move {
            let collect = async || collected(&planned, &partitioning, &context).await.map_err(Arc::new);
            let read = read.get_or_init(collect).await.as_ref();
            match read.map_err(|error| DataFusionError::Shared(Arc::clone(error)))? {
                ReadRows::AsPlanned => planned.execute(partition, context),
                ReadRows::Partitioned(outputs) => {
                    let own = outputs.get(partition).and_then(|output| output.lock().take());
                    aggregated(&partitioning.first, planned.schema(), own, context)
                }
            }
        };
        let batches = stream::once(output).try_flatten();
        let batches = batches.map(move |batch| batch.record_output(&metrics));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// Aggregates the rows of an output partition, partition by partition.
fn aggregated(
    first: &AggregateExec,
    schema: SchemaRef,
    rows: Option<OutputRows>,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let Some(OutputRows { partitions, memory }) = rows else {
        return datafusion::common::internal_err!("the rows of groups are read twice");
    };
    let first = first.clone();
    let output = Arc::clone(&schema);
    let of_partition = move |rows: Vec<RecordBatch>| {
        let input = BufferedRowsExec::new(first.input().schema(), rows);
        let groups = AggregateExec::try_new(
            AggregateMode::Single,
            first.group_expr().clone(),
            first.aggr_expr().to_vec(),
            first.filter_expr().to_vec(),
            Arc::new(input),
            first.input_schema(),
        )?;
        let (schema, memory) = (Arc::clone(&output), Arc::clone(&memory));
        let groups = groups.execute(0, Arc::clone(&context))?;
        // The rows are held until the last of their groups is made.
        Ok::<_, DataFusionError>(groups.map(move |batch| {
            let _held = &memory;
            batch.and_then(|batch| with_schema(batch, &schema))
        }))
    };
    let groups = stream::iter(partitions).filter(|rows| std::future::ready(!rows.is_empty()));
    let groups = groups.map(of_partition).try_flatten();
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, groups)))
}

/// Gives a batch the schema of the planned aggregation, whose keys may be null where those of one step are not.
fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> PlanResult<RecordBatch> {
    match batch.schema_ref() == schema {
        true => Ok(batch),
        false => Ok(RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec())?),
    }
}

/// Finds the gate below an aggregation.
fn gate_of(node: &Node) -> Option<&RowGateExec> {
    match node.downcast_ref::<RowGateExec>() {
        None => node.children().first().and_then(|child| gate_of(child)),
        gate => gate,
    }
}

/// Reads the rows of all inputs, in memory where they have many keys.
async fn collected(
    planned: &Node,
    partitioning: &GroupPartitioning,
    context: &Arc<TaskContext>,
) -> PlanResult<ReadRows> {
    let GroupPartitioning { first, outputs, rows, bounds } = partitioning;
    let (outputs, rows, bounds) = (*outputs, *rows, *bounds);
    let Some(gate) = gate_of(planned) else {
        return datafusion::common::internal_err!("the rows of groups have no gate");
    };
    let input = &gate.input;
    let reader = Arc::new(RowReader {
        first: first.clone(),
        rows,
        bounds,
        partitions: outputs * PARTITIONS,
        memory: Arc::new(MemoryConsumer::new("PartitionedGroupsExec").register(context.memory_pool())),
        pool: Arc::clone(context.memory_pool()),
        is_refused: AtomicBool::new(false),
    });
    let mut tasks = Vec::new();
    for partition in 0..input.output_partitioning().partition_count() {
        let (reader, stream) = (Arc::clone(&reader), input.execute(partition, Arc::clone(context))?);
        tasks.push(SpawnedTask::spawn(async move { reader.read(stream).await }));
    }
    let mut inputs = Vec::with_capacity(tasks.len());
    for task in tasks {
        let read = task.join_unwind().await;
        inputs.push(read.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??);
    }
    // Few rows need no partitions.
    let is_partitioned = inputs.iter().any(|read| !read.chunks.is_empty());
    if is_partitioned {
        for read in &mut inputs {
            reader.partition_rest(read)?;
        }
    }
    let memory = &reader.memory;
    if !is_partitioned || reader.is_refused() {
        let schema = input.schema();
        gate.open(inputs.into_iter().map(|read| read.into_stream(&schema, memory)).collect());
        return Ok(ReadRows::AsPlanned);
    }
    let mut partitions = vec![vec![Vec::new(); PARTITIONS]; outputs];
    for chunk in inputs.into_iter().flat_map(|read| read.chunks) {
        for (number, rows) in chunk.partitions {
            // The exchange that was planned has the same rows in the same output partition.
            let own = partitions.get_mut(number % outputs).and_then(|own| own.get_mut(number / outputs));
            if let Some(own) = own {
                own.push(rows);
            }
        }
    }
    let output = |partitions| Mutex::new(Some(OutputRows { partitions, memory: Arc::clone(memory) }));
    Ok(ReadRows::Partitioned(partitions.into_iter().map(output).collect()))
}

/// Puts the lowest of so many nodes above another input.
fn over(node: &Node, input: Node, nodes: usize) -> PlanResult<Node> {
    match node.children().as_slice() {
        [child] if nodes > 0 => with_inputs(node, vec![over(child, input, nodes - 1)?]),
        _ => Ok(input),
    }
}

/// Reads inputs of an aggregation, until one of them has few keys or takes too much memory.
#[derive(Debug)]
struct RowReader {
    first: AggregateExec,
    /// Rows of all inputs, as they are estimated.
    rows: usize,
    bounds: PartitionBounds,
    /// Partitions of all output partitions.
    partitions: usize,
    memory: Arc<MemoryReservation>,
    /// The pool of all: others hold memory of it, too.
    pool: Arc<dyn MemoryPool>,
    /// `true` once the rows go through the aggregation as it was planned.
    is_refused: AtomicBool,
}

impl RowReader {
    fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Reads an input, as far as its rows are to be partitioned.
    async fn read(&self, mut rows: SendableRecordBatchStream) -> PlanResult<BufferedRows> {
        let mut read = BufferedRows::new(self.memory.new_empty());
        let mut partitioner = self.partitioner()?;
        while !self.is_refused() {
            let Some(batch) = rows.next().await.transpose()? else { return Ok(read) };
            let bytes = batch.get_array_memory_size();
            read.pending_rows += batch.num_rows();
            read.pending.push(batch);
            let is_too_wide = read.pending_memory.size().saturating_add(bytes) > MAX_PENDING_BYTES;
            if is_too_wide || read.pending_memory.try_grow(bytes).is_err() {
                self.refuse();
                break;
            }
            if read.pending_rows >= self.bounds.chunk_rows {
                self.partition(&mut read, &mut partitioner)?;
            }
        }
        read.rest = Some(rows);
        Ok(read)
    }

    fn partitioner(&self) -> PlanResult<RowPartitioner> {
        RowPartitioner::new(self.first.group_expr().input_exprs(), self.partitions)
    }

    /// Partitions what is left of an input that has ended.
    fn partition_rest(&self, read: &mut BufferedRows) -> PlanResult<()> {
        match read.pending.is_empty() || self.is_refused() {
            true => Ok(()),
            false => self.partition(read, &mut self.partitioner()?),
        }
    }

    /// Partitions the pending rows, unless they do not fit, or the first ones have few keys.
    fn partition(&self, read: &mut BufferedRows, partitioner: &mut RowPartitioner) -> PlanResult<()> {
        let rows = read.pending_batch(&self.first.input().schema())?;
        // The few rows of an input that ends early tell nothing of the others.
        let is_sample = read.chunks.is_empty() && rows.num_rows() >= self.bounds.chunk_rows;
        if is_sample && !has_own_keys(&self.first, &rows)? {
            self.refuse();
            return Ok(());
        }
        let chunk = partitioner.partition(&rows)?;
        let estimated = chunk.bytes.saturating_mul(self.rows) / rows.num_rows().max(1);
        let is_too_large = is_sample && estimated > self.bounds.bytes;
        let is_skewed = is_sample && chunk.is_skewed();
        let held = self.pool.reserved().saturating_sub(read.pending_memory.size());
        let fits = held.saturating_add(chunk.bytes) <= self.bounds.bytes;
        if is_too_large || is_skewed || !fits || self.memory.try_grow(chunk.bytes).is_err() {
            self.refuse();
            return Ok(());
        }
        read.pending.clear();
        read.pending_rows = 0;
        read.pending_memory.free();
        read.chunks.push(chunk);
        Ok(())
    }
}
