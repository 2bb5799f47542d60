//! From a lowered query to rows: the DataFusion plan of a search and its execution.
//!
//! The planner runs with the few rules that a search can profit from; with all of DataFusion's
//! planning alone would cost more than most searches.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Float32Type, UInt32Type};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, ident};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use millrace_matching::order::Order;
use millrace_matching::table::top_k::TopKIntoScan;
use millrace_matching::table::{IndexTable, ROW, SCORE, SEGMENT};
use millrace_scoring::collect::Address;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use crate::collapse::{GroupBy, Groups};

/// Name of the table in plans.
const TABLE: &str = "documents";

/// Plans and runs searches within the memory of queries.
#[derive(Clone, Debug)]
pub struct Planner {
    state: Arc<SessionState>,
}

/// The shape of one search's plan.
#[derive(Debug)]
pub struct PlanShape<'a> {
    /// Predicate that rows match; everything where absent.
    pub filter: Option<Expr>,
    /// Predicate for rows behind the point where a continued search goes on.
    pub behind: Option<Expr>,
    /// The order of rows.
    pub order: &'a Order,
    /// `true` if scores are computed.
    pub scores: bool,
    /// Rows to skip.
    pub from: usize,
    /// Rows to return; with none the plan only counts.
    pub size: usize,
    /// By what rows are grouped, if they are.
    pub grouping: Option<&'a GroupBy>,
}

/// Rows of a search, in order.
#[derive(Clone, Debug, Default)]
pub struct FoundRows {
    /// Key arrays, in the order of the table's keys.
    pub keys: Vec<ArrayRef>,
    /// Scores; 0 where not computed.
    pub scores: Vec<f32>,
    /// Addresses.
    pub addresses: Vec<Address>,
    /// Values of the groups that rows are the best of, where matches are grouped.
    pub groups: Vec<Value>,
}

impl Planner {
    /// Makes a planner for so many partitions and bytes in memory, and on disk. What is spilled goes into a directory of its own, which is
    /// emptied first: a process that was killed leaves its files behind.
    pub fn new(partitions: usize, memory_bytes: usize, spill_bytes: u64, spill_dir: &Path) -> Result<Self> {
        millrace_runtime::disk::empty_directory(spill_dir).map_err(|error| {
            Error::Execution(format!("cannot empty the directory [{}]: {error}", spill_dir.display()))
        })?;
        let runtime: RuntimeEnv = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(memory_bytes)))
            .with_temp_file_path(spill_dir)
            .with_max_temp_directory_size(spill_bytes)
            .build()?;
        // A scan has the partitions that pay; rows must not go round by another way before the sort.
        let config = SessionConfig::new()
            .with_target_partitions(partitions.max(1))
            .with_round_robin_repartition(false);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::new(runtime))
            .with_analyzer_rules(Vec::new())
            .with_optimizer_rules(vec![
                Arc::new(PushDownFilter::new()),
                Arc::new(PushDownLimit::new()),
                Arc::new(OptimizeProjections::new()),
            ])
            .with_physical_optimizer_rules(vec![Arc::new(EnsureRequirements::new()), Arc::new(TopKIntoScan)])
            .build();
        Ok(Self { state: Arc::new(state) })
    }

    /// Returns the memory in which searches run.
    pub fn runtime(&self) -> Arc<RuntimeEnv> {
        Arc::clone(self.state.runtime_env())
    }

    /// Builds the logical plan of a search.
    pub(crate) fn logical(&self, table: Arc<IndexTable>, shape: &PlanShape<'_>) -> Result<LogicalPlan> {
        let source = provider_as_source(table);
        let projection = (shape.size == 0).then(Vec::new);
        let mut plan = LogicalPlanBuilder::scan(TABLE, source, projection)?;
        if let Some(filter) = &shape.filter {
            plan = filtered(plan, filter.clone())?;
        }
        if shape.size == 0 {
            return Ok(plan.build()?);
        }
        if let Some(behind) = &shape.behind {
            plan = plan.filter(behind.clone())?;
        }
        let mut columns: Vec<Expr> = shape.order.keys.iter().map(|key| ident(&key.name)).collect();
        if shape.scores {
            columns.push(ident(SCORE));
        }
        columns.push(ident(SEGMENT));
        columns.push(ident(ROW));
        if let Some(grouping) = shape.grouping {
            columns.extend(grouping.keys().iter().map(|key| ident(&key.name)));
            return Ok(plan.project(columns)?.build()?);
        }
        let plan = plan
            .sort(shape.order.sort_expressions())?
            .limit(shape.from, Some(shape.size))?
            .project(columns)?;
        Ok(plan.build()?)
    }

    /// Plans a logical plan for execution.
    pub(crate) async fn physical(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.state.create_physical_plan(plan).await?)
    }

    /// Runs a plan and returns its rows.
    pub async fn run(&self, plan: Arc<dyn ExecutionPlan>, shape: &PlanShape<'_>) -> Result<FoundRows> {
        let schema = plan.schema();
        let batches = collect(plan, self.state.task_ctx()).await?;
        if shape.size == 0 {
            return Ok(FoundRows::default());
        }
        let batch = concat_batches(&schema, &batches)?;
        read(&batch, shape)
    }

    /// Runs a plan that has no rows but what it leaves behind.
    pub async fn drain(&self, plan: Arc<dyn ExecutionPlan>) -> Result<()> {
        collect(plan, self.state.task_ctx()).await?;
        Ok(())
    }

    /// Counts the partitions of plans.
    pub fn partitions(&self) -> usize {
        self.state.config().target_partitions()
    }

    /// Runs a plan whose rows are grouped and returns the best row of each group.
    pub(crate) async fn run_grouped(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        shape: &PlanShape<'_>,
        grouping: &GroupBy,
        compute: &Compute,
    ) -> Result<FoundRows> {
        let most = shape.from.saturating_add(shape.size);
        let mut groups = Groups::new(grouping.clone(), shape.order, shape.scores, most)?;
        let mut batches = execute_stream(plan, self.state.task_ctx())?;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            groups = compute
                .run(move || {
                    groups.add(&batch)?;
                    Ok(groups)
                })
                .await?;
        }
        groups.finish(shape.from)
    }
}

/// Filters a scan. The builder would refuse a filter over a scan without columns, so the filter is
/// given to the scan then.
fn filtered(plan: LogicalPlanBuilder, filter: Expr) -> Result<LogicalPlanBuilder> {
    match plan.plan() {
        LogicalPlan::TableScan(scan) if scan.projection.as_ref().is_some_and(Vec::is_empty) => {
            let mut scan = scan.clone();
            scan.filters = vec![filter];
            Ok(LogicalPlanBuilder::new(LogicalPlan::TableScan(scan)))
        }
        _ => Ok(plan.filter(filter)?),
    }
}

fn read(batch: &RecordBatch, shape: &PlanShape<'_>) -> Result<FoundRows> {
    let column = |name: &str| {
        batch
            .column_by_name(name)
            .ok_or_else(|| Error::Execution(format!("the plan's result lacks column [{name}]")))
    };
    let mut keys = Vec::with_capacity(shape.order.keys.len());
    for key in &shape.order.keys {
        keys.push(Arc::clone(column(&key.name)?));
    }
    let scores = match shape.scores {
        true => column(SCORE)?.as_primitive::<Float32Type>().values().to_vec(),
        false => vec![0.0; batch.num_rows()],
    };
    let segments = column(SEGMENT)?.as_primitive::<UInt32Type>();
    let rows = column(ROW)?.as_primitive::<UInt32Type>();
    let addresses = segments
        .values()
        .iter()
        .zip(rows.values())
        .map(|(segment, row)| Address { segment: *segment, row: *row })
        .collect();
    Ok(FoundRows { keys, scores, addresses, groups: Vec::new() })
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::displayable;
    use millrace_dsl::{query, sort};
    use millrace_matching::lower;
    use millrace_matching::table::{ScanOptions, TableSnapshot};
    use millrace_work::compute::Compute;
    use serde_json::json;

    use super::*;

    /// Explains a search without indices: logical plan, optimized plan, physical plan.
    async fn explained(query: Value, order: &str, size: usize) -> String {
        let directory = tempfile::tempdir().unwrap();
        let planner = Planner::new(2, 1 << 20, 1 << 20, &directory.path().join("spill")).unwrap();
        let snapshot = Arc::new(TableSnapshot::default());
        let sort = sort::parse_param(order).unwrap();
        let (order, _) = Order::new(&sort, &snapshot, 0).unwrap();
        let options = ScanOptions { track: Some(10_000), ..ScanOptions::default() };
        let table = Arc::new(IndexTable::new(
            snapshot,
            order.keys.clone(),
            options,
            Compute::new(millrace_runtime::Compute::start(1).unwrap()),
        ));
        let filter = Some(lower::lower(&query::parse(&query).unwrap()).whole_expr());
        let scores = order.by_score();
        let shape = PlanShape { filter, behind: None, order: &order, scores, from: 0, size, grouping: None };
        let logical = planner.logical(table, &shape).unwrap();
        let physical = planner.physical(&logical).await.unwrap();
        let text =
            format!("{}\n---\n{}", logical.display_indent(), displayable(physical.as_ref()).indent(false));
        planner.run(physical, &shape).await.unwrap();
        text
    }

    #[tokio::test]
    async fn a_search_by_score_is_scan_sort_and_limit() {
        let query =
            json!({"bool": {"must": {"match": {"message": "x"}}, "filter": {"term": {"status": 404}}}});
        insta::assert_snapshot!(explained(query, "", 10).await, @r#"
        Projection: documents._score, documents._segment, documents._row
          Limit: skip=0, fetch=10
            Sort: documents._score DESC NULLS LAST, documents._segment ASC NULLS LAST, documents._row ASC NULLS LAST
              Filter: match(documents._row, Utf8("message = "x"")) AND term(documents._row, Utf8("~status = 404"))
                TableScan: documents
        ---
        SortExec: TopK(fetch=10), expr=[_score@0 DESC NULLS LAST, _segment@1 ASC NULLS LAST, _row@2 ASC NULLS LAST], preserve_partitioning=[false]
          IndexScanExec: indices=[], segments=0, predicate=(match(message = "x") AND term(~status = 404)), columns=[_score, _segment, _row], top=10 by _score
        "#);
    }

    #[tokio::test]
    async fn a_search_by_field_sorts_above_the_scan() {
        let plan = explained(json!({"term": {"status": 404}}), "size:desc", 10).await;
        insta::assert_snapshot!(plan, @r#"
        Projection: documents.sort_0(size), documents._segment, documents._row
          Limit: skip=0, fetch=10
            Sort: documents.sort_0(size) DESC NULLS LAST, documents._segment ASC NULLS LAST, documents._row ASC NULLS LAST
              Filter: term(documents._row, Utf8("status = 404"))
                TableScan: documents
        ---
        SortExec: TopK(fetch=10), expr=[sort_0(size)@0 DESC NULLS LAST, _segment@1 ASC NULLS LAST, _row@2 ASC NULLS LAST], preserve_partitioning=[false]
          IndexScanExec: indices=[], segments=0, predicate=term(status = 404), columns=[sort_0(size), _segment, _row], first=10 by sort_0(size)
        "#);
    }

    #[tokio::test]
    async fn a_count_asks_for_no_columns() {
        insta::assert_snapshot!(explained(json!({"term": {"status": 404}}), "", 0).await, @r#"
        TableScan: documents projection=[], full_filters=[term(_row, Utf8("status = 404"))]
        ---
        IndexScanExec: indices=[], segments=0, predicate=term(status = 404), columns=[]
        "#);
    }
}
