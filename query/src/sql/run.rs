//! Runs statements: parse, pin, bind, plan, execute, write.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::{displayable, execute_stream};
use datafusion::prelude::SessionConfig;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use millrace_storage::metadata::IndicesOptions;
use millrace_storage::{Engine, Principal};
use serde_json::{Value, json};

use super::bind::{Binder, Planned, Total, tables};
use super::count::StatementPlanner;
use super::error::{Result, SqlError};
use super::format::{Format, Writer};
use super::metadata;
use super::request::SqlRequest;
use super::statement::{self, Names, Statement};
use crate::compute::{Compute, StopOnDrop};
use crate::error::Error;
use crate::params::Scope;
use crate::table::{ScanHandle, TableSnapshot};
use crate::target;

/// Rows answered where the statement has no LIMIT.
const DEFAULT_ROWS: usize = 200;
/// Stack of the thread that plans: expressions are nested, and planning follows them by recursion.
const PLANNING_STACK: usize = 64 << 20;
/// Name of the cluster in metadata.
const CLUSTER: &str = "millrace";

/// Runs statements within the memory of queries.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    state: Arc<SessionState>,
    compute: Compute,
}

/// A statement with what it reads, ready to run.
struct Prepared {
    planned: Planned,
    handles: Vec<Arc<ScanHandle>>,
    pushed: Vec<Value>,
}

impl Runner {
    /// Makes a runner that shares a runtime's memory.
    pub(crate) fn new(partitions: usize, runtime: Arc<RuntimeEnv>, compute: Compute) -> Self {
        // Which side of a join is collected is not chosen: no rule of the planner does here.
        let config =
            SessionConfig::new().with_target_partitions(partitions.max(1)).with_repartition_joins(false);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_query_planner(Arc::new(StatementPlanner))
            .with_analyzer_rules(Vec::new())
            .with_optimizer_rules(vec![
                Arc::new(ExtractEquijoinPredicate::new()),
                Arc::new(SingleDistinctToGroupBy::new()),
                Arc::new(PushDownLimit::new()),
                Arc::new(OptimizeProjections::new()),
            ])
            .with_physical_optimizer_rules(vec![Arc::new(EnsureRequirements::new())])
            .build();
        Self { state: Arc::new(state), compute }
    }

    /// Answers a statement.
    pub(crate) async fn answer(
        &self,
        engine: &Engine,
        principal: &Principal,
        request: SqlRequest,
        format: Format,
        now_ms: i64,
        timeout_ms: Option<u64>,
    ) -> Result<String> {
        let (query, names) = match statement::parse(&request.query)? {
            Statement::Query(query, names) => (query, names),
            Statement::ShowTables(pattern) => {
                return list(metadata::tables(engine, CLUSTER, &pattern)?, format);
            }
            Statement::DescribeTables(pattern, of) => {
                return list(metadata::columns(engine, CLUSTER, &pattern, of.as_deref())?, format);
            }
        };
        let prepared = self.prepare(engine, principal, query, names, request, now_ms).await?;
        let stops: Vec<_> =
            prepared.handles.iter().map(|handle| StopOnDrop(Arc::clone(&handle.stop))).collect();
        let run = self.execute(prepared, format);
        let answer = match timeout_ms.filter(|timeout_ms| *timeout_ms != u64::MAX) {
            None => run.await,
            Some(timeout_ms) => match tokio::time::timeout(Duration::from_millis(timeout_ms), run).await {
                Ok(answer) => answer,
                Err(_) => Err(Error::TimedOut.into()),
            },
        };
        drop(stops);
        answer
    }

    /// Explains a statement.
    pub(crate) async fn explain(
        &self,
        engine: &Engine,
        principal: &Principal,
        request: SqlRequest,
        now_ms: i64,
    ) -> Result<Value> {
        let Statement::Query(query, names) = statement::parse(&request.query)? else {
            return Err(SqlError::Unsupported("only queries can be explained".to_owned()));
        };
        let Prepared { planned, pushed, .. } =
            self.prepare(engine, principal, query, names, request, now_ms).await?;
        let optimized = self.state.optimize(&planned.plan)?;
        let physical =
            self.state.query_planner().create_physical_plan(&optimized, self.state.as_ref()).await?;
        let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (from, size) = planned.window;
        Ok(json!({
            "from": from,
            "size": size,
            "query": pushed,
            "logical_plan": lines(optimized.display_indent().to_string()),
            "physical_plan": lines(displayable(physical.as_ref()).indent(false).to_string()),
        }))
    }

    /// Pins the indices of a query and binds it.
    async fn prepare(
        &self,
        engine: &Engine,
        principal: &Principal,
        query: Box<ast::Query>,
        names: Names,
        request: SqlRequest,
        now_ms: i64,
    ) -> Result<Prepared> {
        let scope = Scope {
            // An index that is not there is an error, unless a pattern stands for none.
            options: IndicesOptions::open_only(),
            routing: None,
            shards: None,
            said: Vec::new(),
        };
        let mut snapshots: HashMap<String, Arc<TableSnapshot>> = HashMap::new();
        for name in tables(&query) {
            if let Entry::Vacant(place) = snapshots.entry(name) {
                let snapshot = target::pin(engine, principal, place.key(), &scope).await?;
                place.insert(Arc::new(snapshot));
            }
        }
        let compute = self.compute.clone();
        let scores = request.query.contains("_score");
        // Dropping the tree takes as deep a stack as binding it, so the thread does both.
        let plan = move || {
            let mut binder = Binder::new(
                &snapshots,
                &names,
                &request.parameters,
                request.filter.as_ref(),
                now_ms,
                compute,
                scores,
            );
            let planned = binder.query(&query, Some(DEFAULT_ROWS), 0)?;
            Ok(Prepared { planned, handles: binder.handles, pushed: binder.pushed })
        };
        on_deep_stack(plan).await
    }

    /// Runs a plan and writes the answer.
    async fn execute(&self, prepared: Prepared, format: Format) -> Result<String> {
        let Planned { plan, columns, total, window } = prepared.planned;
        let mut writer = Writer::new(format, columns);
        let mut size = 0u64;
        let physical = self.physical(&plan).await?;
        failed(&prepared.handles)?;
        let mut batches = execute_stream(physical, self.state.task_ctx())?;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            size += batch.num_rows() as u64;
            writer = self
                .compute
                .run(move || Ok(writer.rows(&batch).map(|()| writer)))
                .await
                .map_err(SqlError::from)??;
        }
        let (skip, limit) = window;
        let cut = skip > 0 || limit.is_some_and(|limit| size >= limit as u64);
        let total = match total {
            Total::Counted(counter) => counter.load(Ordering::Relaxed),
            Total::Scan(count) if cut => self.count(&count).await?,
            Total::Scan(_) | Total::Answered => size,
        };
        Ok(writer.finish(total, size))
    }

    async fn physical(
        &self,
        plan: &LogicalPlan,
    ) -> Result<Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
        Ok(self.state.create_physical_plan(plan).await?)
    }

    /// Counts the rows of a plan without columns.
    async fn count(&self, plan: &LogicalPlan) -> Result<u64> {
        let physical = self.physical(plan).await?;
        let mut batches = execute_stream(physical, self.state.task_ctx())?;
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            rows += batch?.num_rows() as u64;
        }
        Ok(rows)
    }
}

/// Refuses a statement of which an index refuses a condition.
fn failed(handles: &[Arc<ScanHandle>]) -> Result<()> {
    let failures: Vec<_> =
        handles.iter().flat_map(|handle| std::mem::take(&mut *handle.failures.lock())).collect();
    if failures.is_empty() { Ok(()) } else { Err(Error::SearchPhase { failures }.into()) }
}

/// Writes a list of metadata.
fn list(listing: metadata::Listing, format: Format) -> Result<String> {
    let rows = listing.batch.num_rows() as u64;
    let mut writer = Writer::new(format, listing.columns);
    writer.rows(&listing.batch)?;
    Ok(writer.finish(rows, rows))
}

/// Runs work on a thread of its own with a deep stack.
async fn on_deep_stack<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("sql-plan".to_owned())
        .stack_size(PLANNING_STACK)
        .spawn(move || {
            // Nobody waits any more where the client went away.
            let _ = tell.send(work());
        })
        .map_err(|error| Error::Rejected(format!("cannot start a thread: {error}")))?;
    told.await.map_err(|_| Error::Execution("planning the statement failed".to_owned()))?
}
