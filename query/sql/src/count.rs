//! Counts the rows that pass: an answer tells how many there are before the cut.

use std::cmp::Ordering as CmpOrdering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchemaRef, Result, plan_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::StreamExt;

use super::error::evaluation;
use super::output_columns::OutputColumns;
use super::shared::Shared;

/// The node of a plan that counts rows.
#[derive(Clone, Debug)]
pub(crate) struct RowCount {
    input: LogicalPlan,
    counter: Arc<AtomicU64>,
    limit: u64,
}

impl RowCount {
    /// Counts the rows of a plan into a counter.
    pub(crate) fn new(input: LogicalPlan, counter: Arc<AtomicU64>) -> Self {
        Self { input, counter, limit: u64::MAX }
    }

    /// Fails where a plan has more rows than a limit.
    pub(crate) fn with_limit(input: LogicalPlan, limit: u64) -> Self {
        Self { input, counter: Arc::default(), limit }
    }
}

impl PartialEq for RowCount {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.counter, &other.counter) && self.input == other.input
    }
}

impl Eq for RowCount {}

impl Hash for RowCount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
    }
}

impl PartialOrd for RowCount {
    fn partial_cmp(&self, other: &Self) -> Option<CmpOrdering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for RowCount {
    fn name(&self) -> &str {
        "RowCount"
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
        f.write_str("RowCount")
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match inputs.pop() {
            Some(input) => Ok(Self { input, ..self.clone() }),
            None => plan_err!("rows of no plan cannot be counted"),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}

/// Plans statements with the nodes that DataFusion does not know.
#[derive(Debug, Default)]
pub(crate) struct StatementPlanner;

#[async_trait]
impl QueryPlanner for StatementPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Self)]);
        planner.create_physical_plan(plan, session).await
    }
}

#[async_trait]
impl ExtensionPlanner for StatementPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(input) = inputs.first().map(Arc::clone) else { return Ok(None) };
        if let Some(node) = node.as_any().downcast_ref::<Shared>() {
            return Ok(Some(node.exec(input)));
        }
        if let Some(node) = node.as_any().downcast_ref::<OutputColumns>() {
            return node.exec(input).map(Some);
        }
        Ok(node.as_any().downcast_ref::<RowCount>().map(|node| {
            let RowCount { counter, limit, .. } = node.clone();
            Arc::new(RowCountExec { input, counter, limit }) as Arc<dyn ExecutionPlan>
        }))
    }
}

/// Counts the rows that pass.
#[derive(Clone, Debug)]
pub(crate) struct RowCountExec {
    input: Arc<dyn ExecutionPlan>,
    counter: Arc<AtomicU64>,
    limit: u64,
}

impl DisplayAs for RowCountExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowCountExec")
    }
}

impl ExecutionPlan for RowCountExec {
    fn name(&self) -> &str {
        "RowCountExec"
    }

    millrace_matching::passes_rows_on!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (counter, limit) = (Arc::clone(&self.counter), self.limit);
        let rows = self.input.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            let rows = batch.num_rows() as u64;
            if counter.fetch_add(rows, Ordering::Relaxed).saturating_add(rows) > limit {
                return Err(evaluation(format!("a recursive query makes more than {limit} rows")));
            }
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.input.schema(), rows)))
    }
}
