//! Groups that the index knows: asks the sources of aggregations for an aggregation over a scan.
//!
//! DataFusion aggregates in two steps: states of groups for each partition, which it merges then. The rule here ([`rewritten`]) puts a leaf in
//! the place of the first step and the scan below it. The leaf has segments tell the states ([`shape`]): values of a column and how many
//! rows have each, from dictionaries, counts by minute and pages; or what is known of whole columns. Parts of segments of which
//! nobody tells are scanned and aggregated as they were. So the steps above, which see states in any case, need not know.

mod groups_request;
mod shape;
mod spans;
mod states;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as PlanResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use millrace_work::error::Result;
use tokio::sync::mpsc::Sender;

use self::groups_request::GroupsRequest;
pub(crate) use self::groups_request::is_repeatable;
use self::shape::StateAggregate;
use super::node_rewriter::with_inputs;
use super::table::{ScanCounts, SqlScanExec};

/// Makes the leaf of the first step of an aggregation over a scan; `None` of everything else.
pub(super) fn rewritten(node: &Arc<dyn ExecutionPlan>) -> PlanResult<Option<Arc<dyn ExecutionPlan>>> {
    let Some(first) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let plain = *first.mode() == AggregateMode::Partial
        && !first.group_expr().has_grouping_set()
        && first.limit_options().is_none()
        && first.filter_expr().iter().all(Option::is_none);
    let projection = first.input().downcast_ref::<ProjectionExec>();
    let input = projection.map_or(first.input(), ProjectionExec::input);
    let scan = input.downcast_ref::<SqlScanExec>().filter(|scan| plain && scan.is_plain());
    let Some(scan) = scan else { return Ok(None) };
    let asked = GroupsRequest::new(first, projection)?;
    let Some(shape) = StateAggregate::new(&asked, scan)? else { return Ok(None) };
    let schema = first.schema();
    let properties = PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(&schema)),
        Partitioning::UnknownPartitioning(scan.finder().partitions().len()),
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
    .with_scheduling_type(SchedulingType::Cooperative);
    let shared = GroupsState { first: Arc::clone(node), scan: scan.clone(), shape, schema };
    let (shared, properties) = (Arc::new(shared), Arc::new(properties));
    Ok(Some(Arc::new(IndexGroupsExec { shared, properties, counts: None })))
}

/// Returns a node that counts the rows it reads because their segment tells no groups; `None` of other nodes.
pub(super) fn counting(
    node: &Arc<dyn ExecutionPlan>,
    counts: &Arc<ScanCounts>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let groups = node.downcast_ref::<IndexGroupsExec>()?;
    Some(Arc::new(IndexGroupsExec { counts: Some(Arc::clone(counts)), ..groups.clone() }))
}

/// Has segments tell the states of groups.
#[derive(Clone, Debug)]
struct IndexGroupsExec {
    shared: Arc<GroupsState>,
    properties: Arc<PlanProperties>,
    /// Counts of the rows that are read, where these are asked for.
    counts: Option<Arc<ScanCounts>>,
}

#[derive(Debug)]
struct GroupsState {
    /// Plan that makes states of rows.
    first: Arc<dyn ExecutionPlan>,
    scan: SqlScanExec,
    shape: StateAggregate,
    schema: SchemaRef,
}

impl DisplayAs for IndexGroupsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupsState { scan, shape, schema, .. } = &*self.shared;
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "IndexGroupsExec: states=[{}], from={shape}, rows=(", names.join(", "))?;
        scan.finder().fmt_as(format, f)?;
        f.write_str(")")
    }
}

impl ExecutionPlan for IndexGroupsExec {
    fn name(&self) -> &str {
        "IndexGroupsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    millrace_matching::without_inputs!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new("IndexGroupsExec").register(context.memory_pool());
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.shared.schema), 2);
        let (out, node) = (stream.tx(), self.clone());
        stream.spawn(async move { node.run(partition, context, memory, out).await.map_err(Into::into) });
        Ok(stream.build())
    }
}

impl IndexGroupsExec {
    /// Sends the states of a partition: those that segments tell, and then those of the rows that are left.
    async fn run(
        self,
        partition: usize,
        context: Arc<TaskContext>,
        memory: MemoryReservation,
        out: Sender<PlanResult<RecordBatch>>,
    ) -> Result<()> {
        let (memory, state) = (Arc::new(memory), self.shared);
        let mut left = Vec::new();
        for part in state.scan.finder().partitions().get(partition).into_iter().flatten() {
            let compute = state.scan.finder().table().compute.clone();
            let (shared, held, asked) = (Arc::clone(&state), Arc::clone(&memory), part.clone());
            let told =
                compute.run(move || shared.shape.tell(shared.scan.finder(), &asked, &shared.schema, &held));
            let Some(batches) = told.await? else {
                left.push(part.clone());
                memory.free();
                continue;
            };
            for batch in batches {
                if out.send(Ok(batch)).await.is_err() {
                    return Ok(());
                }
            }
            memory.free();
        }
        if left.is_empty() || state.scan.stopped() {
            return Ok(());
        }
        let scan = state.scan.of_parts(left, self.counts.clone());
        let mut states = over(&state.first, Arc::new(scan))?.execute(0, context)?;
        while let Some(batch) = states.next().await {
            if out.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// Puts the nodes above a scan above another one.
fn over(node: &Arc<dyn ExecutionPlan>, scan: Arc<dyn ExecutionPlan>) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let children = node.children();
    let Some(child) = children.first() else { return Ok(scan) };
    with_inputs(node, vec![over(child, scan)?])
}
