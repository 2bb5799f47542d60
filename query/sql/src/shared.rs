//! A relation that several nodes of a plan read runs once: a query of WITH that is named twice, the values of an IN.
//!
//! Each reader has a plan of the relation. The first that asks for rows runs its own and leaves them to the others, which run
//! none. The rows are memory of the statement until its plan is dropped; where queries may not hold so much, all of them are on disk.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DFSchemaRef, Result, plan_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::spill_file::SpillFile;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SpillManager, execute_stream,
};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

/// Consumer of the memory and the disk that rows take.
const CONSUMER: &str = "rows that are read twice";

/// Rows go to disk where one in so many bytes of the memory of queries is in use.
const POOL_SHARE: usize = 2;

/// The rows of a relation, once they are there.
type SharedRows = OnceCell<StoredRows>;

/// Rows that every reader gets from the first.
enum StoredRows {
    /// In memory, which is held.
    Memory(Vec<RecordBatch>, MemoryReservation),
    /// In a file, if there are any.
    Disk(SpillManager, Option<Arc<dyn SpillFile>>),
}

impl fmt::Debug for StoredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(batches, memory) => {
                write!(f, "{} batches of {} bytes", batches.len(), memory.size())
            }
            Self::Disk(..) => f.write_str("batches on disk"),
        }
    }
}

impl StoredRows {
    /// Reads all rows.
    fn stream(&self, schema: SchemaRef) -> Result<SendableRecordBatchStream> {
        Ok(match self {
            Self::Memory(batches, _) => {
                let batches = stream::iter(batches.clone().into_iter().map(Ok));
                Box::pin(RecordBatchStreamAdapter::new(schema, batches))
            }
            Self::Disk(spill, Some(file)) => spill.read_spill_as_stream(Arc::clone(file), None)?,
            Self::Disk(_, None) => Box::pin(EmptyRecordBatchStream::new(schema)),
        })
    }
}

/// The node of a plan that reads a shared relation.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    input: LogicalPlan,
    rows: Arc<SharedRows>,
}

impl Shared {
    /// Makes a relation that clones of the node share.
    pub(crate) fn new(input: LogicalPlan) -> Self {
        Self { input, rows: Arc::default() }
    }

    /// Makes the physical node.
    pub(crate) fn exec(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Arc::new(SharedExec { input, rows: Arc::clone(&self.rows), properties: Arc::new(properties) })
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rows, &other.rows)
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
    }
}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for Shared {
    fn name(&self) -> &str {
        "Shared"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match inputs.pop() {
            Some(input) => Ok(Self { input, ..self.clone() }),
            None => plan_err!("a shared relation needs a plan"),
        }
    }

    // Every reader takes all columns: they have the same ones. Rows are kept by `PushDownConditions`.
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![(0..self.input.schema().fields().len()).collect()])
    }
}

/// Reads a shared relation.
#[derive(Clone, Debug)]
struct SharedExec {
    input: Arc<dyn ExecutionPlan>,
    rows: Arc<SharedRows>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedExec")
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    millrace_matching::over_one_input!();

    fn execute(&self, _partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Self { input, rows, .. } = self.clone();
        let schema = input.schema();
        let read_schema = Arc::clone(&schema);
        let read = async move {
            // A reader may wait for another stream of its task while this one is not polled.
            let run = || async {
                let run = SpawnedTask::spawn(collected(input, context));
                run.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
            };
            rows.get_or_try_init(run).await?.stream(read_schema)
        };
        let batches = stream::once(read).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// Runs a plan, within the memory of the statement, or else on disk.
async fn collected(input: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<StoredRows> {
    let memory = MemoryConsumer::new(CONSUMER).with_can_spill(true).register(context.memory_pool());
    let mut batches = Vec::new();
    let mut stream = execute_stream(input, Arc::clone(&context))?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let bytes = batch.get_array_memory_size();
        let is_held = leaves_memory(context.memory_pool(), bytes) && memory.try_grow(bytes).is_ok();
        batches.push(batch);
        if !is_held {
            return spilled((batches, memory), stream, &context).await;
        }
    }
    Ok(StoredRows::Memory(batches, memory))
}

/// Returns whether so many bytes more leave memory for the operators that make the rows.
fn leaves_memory(pool: &Arc<dyn MemoryPool>, bytes: usize) -> bool {
    match pool.memory_limit() {
        MemoryLimit::Finite(limit) => pool.reserved().saturating_add(bytes) <= limit / POOL_SHARE,
        _ => true,
    }
}

/// Writes rows, and those that come behind them, to disk.
///
/// # Errors
/// Errors of the plan; queries may not have so much on disk.
async fn spilled(
    (batches, memory): (Vec<RecordBatch>, MemoryReservation),
    mut stream: SendableRecordBatchStream,
    context: &TaskContext,
) -> Result<StoredRows> {
    let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
    let spill = SpillManager::new(context.runtime_env(), metrics, stream.schema());
    let mut file = spill.create_in_progress_file(CONSUMER)?;
    for batch in batches {
        file.append_batch(&batch)?;
    }
    drop(memory);
    while let Some(batch) = stream.next().await {
        file.append_batch(&batch?)?;
    }
    let file = file.finish()?;
    Ok(StoredRows::Disk(spill, file))
}
