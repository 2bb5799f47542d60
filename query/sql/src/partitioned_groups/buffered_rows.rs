//! Rows in memory: chunks of them, partitioned by a hash of keys, and the nodes of plans that read them.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result as PlanResult, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

/// A partition of more than one in so many rows keeps the others from being aggregated beside it.
const SKEW: usize = 3;

/// The rows of an input that were read.
pub(super) struct BufferedRows {
    pub(super) chunks: Vec<Chunk>,
    /// Rows that are not partitioned.
    pub(super) pending: Vec<RecordBatch>,
    pub(super) pending_rows: usize,
    /// Memory of the rows that are not partitioned.
    pub(super) pending_memory: MemoryReservation,
    /// Rows that were not read.
    pub(super) rest: Option<SendableRecordBatchStream>,
}

impl BufferedRows {
    /// Makes an input of which nothing was read.
    pub(super) fn new(pending_memory: MemoryReservation) -> Self {
        Self { chunks: Vec::new(), pending: Vec::new(), pending_rows: 0, pending_memory, rest: None }
    }

    /// Returns the pending rows as one batch.
    pub(super) fn pending_batch(&mut self, schema: &SchemaRef) -> PlanResult<RecordBatch> {
        if self.pending.len() > 1 {
            self.pending = vec![concat_batches(schema, &self.pending)?];
        }
        Ok(self.pending.first().cloned().unwrap_or_else(|| RecordBatch::new_empty(Arc::clone(schema))))
    }

    /// Returns all rows. The memory of chunks shrinks as they are read.
    pub(super) fn into_stream(
        self,
        schema: &SchemaRef,
        memory: &Arc<MemoryReservation>,
    ) -> SendableRecordBatchStream {
        let Self { chunks, pending, pending_memory, rest, .. } = self;
        let memory = Arc::clone(memory);
        let chunks = stream::iter(chunks).flat_map(move |Chunk { partitions, bytes }| {
            let (memory, last) = (Arc::clone(&memory), partitions.len());
            stream::iter(partitions).enumerate().map(move |(at, (_, rows))| {
                if at + 1 == last {
                    memory.shrink(bytes);
                }
                Ok(rows)
            })
        });
        let pending = stream::iter(pending).map(move |rows| {
            let _held = &pending_memory;
            Ok(rows)
        });
        let rest = rest.unwrap_or_else(|| Box::pin(EmptyRecordBatchStream::new(Arc::clone(schema))));
        let rows = chunks.chain(pending).chain(rest);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows))
    }
}

/// Rows that were partitioned together.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The rows of each partition that has any, by its number.
    pub(super) partitions: Vec<(usize, RecordBatch)>,
    /// Bytes that they hold.
    pub(super) bytes: usize,
}

impl Chunk {
    /// Returns whether one partition has a large share of the rows.
    pub(super) fn is_skewed(&self) -> bool {
        let rows = self.partitions.iter().map(|(_, rows)| rows.num_rows());
        rows.clone().max().unwrap_or_default() * SKEW > rows.sum()
    }
}

/// Partitions rows by a hash of keys, as exchanges do.
pub(super) struct RowPartitioner {
    inner: BatchPartitioner,
}

impl RowPartitioner {
    pub(super) fn new(keys: Vec<Arc<dyn PhysicalExpr>>, partitions: usize) -> PlanResult<Self> {
        Ok(Self { inner: BatchPartitioner::new_hash_partitioner(keys, partitions, Time::new())? })
    }

    /// Partitions rows; those of a partition keep their order.
    pub(super) fn partition(&mut self, rows: &RecordBatch) -> PlanResult<Chunk> {
        let mut partitions = Vec::new();
        let mut bytes = 0;
        for partition in self.inner.partition_iter(rows.clone())? {
            let (number, rows) = partition?;
            let columns: Vec<ArrayRef> = rows.columns().iter().map(compacted).collect();
            for column in &columns {
                bytes += held_bytes(column)?;
            }
            partitions.push((number, RecordBatch::try_new(rows.schema(), columns)?));
        }
        Ok(Chunk { partitions, bytes })
    }
}

/// Returns a column without strings of other rows, which views share.
fn compacted(column: &ArrayRef) -> ArrayRef {
    match column.as_string_view_opt() {
        Some(views) => Arc::new(views.gc()),
        None => Arc::clone(column),
    }
}

/// Returns the bytes of the rows of a column. Fixed widths are cut from longer columns.
fn held_bytes(column: &ArrayRef) -> PlanResult<usize> {
    match column.as_string_view_opt() {
        Some(views) => {
            let strings: usize = views.data_buffers().iter().map(|buffer| buffer.capacity()).sum();
            let nulls = views.nulls().map_or(0, |nulls| nulls.len().div_ceil(8));
            Ok(views.len() * size_of::<u128>() + strings + nulls)
        }
        None => Ok(column.to_data().get_slice_memory_size()?),
    }
}

/// The input of a planned aggregation: passes on the rows that were read of it before, and those behind them.
#[derive(Clone)]
pub(super) struct RowGateExec {
    pub(super) input: Arc<dyn ExecutionPlan>,
    /// The rows of each partition, until they are taken.
    rows: Arc<Mutex<Vec<Option<SendableRecordBatchStream>>>>,
}

impl RowGateExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, rows: Arc::default() }
    }

    /// Takes the rows of all partitions.
    pub(super) fn open(&self, rows: Vec<SendableRecordBatchStream>) {
        *self.rows.lock() = rows.into_iter().map(Some).collect();
    }
}

impl fmt::Debug for RowGateExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowGateExec").field("input", &self.input).finish_non_exhaustive()
    }
}

impl DisplayAs for RowGateExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowGateExec")
    }
}

impl ExecutionPlan for RowGateExec {
    fn name(&self) -> &str {
        "RowGateExec"
    }

    millrace_matching::passes_rows_on!();

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        match self.rows.lock().get_mut(partition).and_then(Option::take) {
            Some(rows) => Ok(make_cooperative(rows)),
            None => internal_err!("the rows of groups are read twice"),
        }
    }
}

/// Reads the rows of a partition.
#[derive(Debug)]
pub(super) struct BufferedRowsExec {
    rows: Vec<RecordBatch>,
    properties: Arc<PlanProperties>,
}

impl BufferedRowsExec {
    pub(super) fn new(schema: SchemaRef, rows: Vec<RecordBatch>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { rows, properties: Arc::new(properties) }
    }
}

impl DisplayAs for BufferedRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BufferedRowsExec")
    }
}

impl ExecutionPlan for BufferedRowsExec {
    fn name(&self) -> &str {
        "BufferedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    millrace_matching::without_inputs!();

    fn execute(
        &self,
        _partition: usize,
        _context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let rows = stream::iter(self.rows.clone().into_iter().map(Ok));
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows))))
    }
}
