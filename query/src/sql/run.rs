//! Runs statements: parse, pin, bind, plan, execute, write.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::{displayable, execute_stream};
use datafusion::prelude::SessionConfig;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use millrace_storage::metadata::{IndexMeta, IndicesOptions};
use millrace_storage::{Engine, Principal};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::bind::{Binder, OutColumn, Planned, Total, tables};
use super::count::StatementPlanner;
use super::cursor::{Cursor, Progress, Token};
use super::delete::DELETED_AT_A_TIME;
use super::error::{Result, SqlError};
use super::format::{Format, Writer};
use super::late::LateColumns;
use super::metadata;
use super::native::{self, NativeSearch};
use super::request::SqlRequest;
use super::rows::{Rows, Window};
use super::statement::{self, Names, Statement};
use crate::compute::{Compute, StopOnDrop};
use crate::error::Error;
use crate::params::Scope;
use crate::table::{ScanHandle, TableSnapshot};
use crate::target;

/// Stack of the thread that plans: expressions are nested, and planning follows them by recursion.
const PLANNING_STACK: usize = 64 << 20;
/// Name of the cluster in metadata.
const CLUSTER: &str = "millrace";

/// Runs statements within the memory of queries.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    state: Arc<SessionState>,
    pub(super) compute: Compute,
}

/// A statement with what it reads, ready to run.
pub(super) struct Prepared {
    planned: Planned,
    handles: Vec<Arc<ScanHandle>>,
    /// Stops the scans when nobody waits any more.
    stops: Vec<StopOnDrop>,
    pushed: Vec<Value>,
    indices: Vec<Arc<IndexMeta>>,
}

/// How a statement is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The format.
    pub format: Format,
    /// When the request came.
    pub now_ms: i64,
    /// Rows that are answered where the statement does not say; all where absent.
    pub rows: Option<usize>,
    /// Rows of a page; 0 is one page with all.
    pub page: usize,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// Whether documents may be deleted.
    pub deletes: bool,
}

/// An answer, but for its end.
#[derive(Debug)]
pub(crate) struct Page {
    /// What is written.
    pub writer: Writer,
    /// Rows that match.
    pub total: u64,
    /// What is left for later pages.
    pub left: Option<Cursor>,
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
                Arc::new(PushDownLimit::new()),
                Arc::new(OptimizeProjections::new()),
            ])
            .with_physical_optimizer_rules(vec![
                Arc::new(AggregateStatistics::new()),
                Arc::new(EnsureRequirements::new()),
                Arc::new(LateColumns),
            ])
            .build();
        Self { state: Arc::new(state), compute }
    }

    /// Answers a statement: the first page, and what is left where there are more.
    pub(crate) async fn answer(
        &self,
        engine: &Arc<Engine>,
        principal: &Principal,
        request: SqlRequest,
        bounds: Bounds,
    ) -> Result<Page> {
        let Bounds { format, now_ms, rows, page, timeout_ms, .. } = bounds;
        let (query, names) = match statement::parse(&request.query)? {
            Statement::Query(query, names) => (query, names),
            Statement::Delete(query) => return self.delete(engine, principal, query, request, bounds).await,
            Statement::ShowTables(pattern) => {
                return list(metadata::tables(engine, CLUSTER, &pattern)?, format);
            }
            Statement::DescribeTables(pattern, of) => {
                return list(metadata::columns(engine, CLUSTER, &pattern, of.as_deref())?, format);
            }
        };
        let prepared = self.prepare(engine, principal, query, names, request, now_ms, rows).await?;
        within(timeout_ms, self.execute(prepared, format, page)).await
    }

    /// Reads the next page of a cursor, and whether there are more behind it.
    pub(crate) async fn next_page(
        &self,
        cursor: &Cursor,
        token: &Token,
        timeout_ms: Option<u64>,
    ) -> Result<(Bytes, bool)> {
        let mut progress = cursor.progress.lock().await;
        let Progress { rows, page, last } = &mut *progress;
        if token.page == *page
            && let Some(last) = last
        {
            return Ok((last.clone(), true));
        }
        if token.page != *page + 1 {
            return Err(SqlError::Cursor(format!(
                "the cursor is at page [{}], its page [{}] is gone",
                *page + 1,
                token.page
            )));
        }
        let make = async {
            let (batches, more) = rows.page(cursor.size).await?;
            let writer = self.written(Writer::later(Arc::clone(&cursor.columns)), batches).await?;
            let following = more.then(|| Token::text(&token.id, token.page + 1));
            let text = Bytes::from(writer.finish(0, following.as_deref()));
            rows.keep(text.len())?;
            Ok((text, more))
        };
        let (text, more) = within(timeout_ms, make).await?;
        *page = token.page;
        *last = Some(text.clone());
        Ok((text, more))
    }

    /// Explains a statement.
    pub(crate) async fn explain(
        &self,
        engine: &Engine,
        principal: &Principal,
        request: SqlRequest,
        now_ms: i64,
        rows: Option<usize>,
    ) -> Result<Value> {
        let (query, names, rows) = match statement::parse(&request.query)? {
            Statement::Query(query, names) => (query, names, rows),
            Statement::Delete(query) => (query, Names::default(), Some(DELETED_AT_A_TIME)),
            _ => return Err(SqlError::Unsupported("only queries can be explained".to_owned())),
        };
        let Prepared { planned, pushed, .. } =
            self.prepare(engine, principal, query, names, request, now_ms, rows).await?;
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

    /// Makes the search that a statement is; `None` for a join, which is none.
    pub(crate) async fn native(
        &self,
        engine: &Engine,
        principal: &Principal,
        request: SqlRequest,
        now_ms: i64,
        rows: Option<usize>,
    ) -> Result<Option<NativeSearch>> {
        let Statement::Query(query, names) = statement::parse(&request.query)? else {
            return Err(SqlError::Unsupported("only queries are answered in the format [json]".to_owned()));
        };
        let index = match tables(&query).as_slice() {
            [index] => index.clone(),
            [] => {
                return Err(SqlError::Unsupported("the format [json] needs an index in FROM".to_owned()));
            }
            _ => return Ok(None),
        };
        let text = request.query.clone();
        let prepared = self.prepare(engine, principal, query, names, request, now_ms, rows).await?;
        let snapshot = target::pin(engine, principal, &index, &pinned()).await?;
        // The tree is made once more: one is not copied without a deep stack.
        let make = move || match statement::parse(&text)? {
            Statement::Query(query, names) => {
                native::search(&query, &names, &prepared.planned, &prepared.pushed, &snapshot, &index)
            }
            _ => Err(SqlError::Unsupported("only queries are answered in the format [json]".to_owned())),
        };
        on_deep_stack(make).await.map(Some)
    }

    /// Pins the indices of a query and binds it; `rows` are answered where it does not say how many.
    #[allow(clippy::too_many_arguments)]
    pub(super) async fn prepare(
        &self,
        engine: &Engine,
        principal: &Principal,
        query: Box<ast::Query>,
        names: Names,
        request: SqlRequest,
        now_ms: i64,
        rows: Option<usize>,
    ) -> Result<Prepared> {
        let scope = pinned();
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
            let planned = binder.query(&query, rows, 0)?;
            let (handles, pushed) = (binder.handles, binder.pushed);
            let stops = handles.iter().map(|handle| StopOnDrop(Arc::clone(&handle.stop))).collect();
            let indices = snapshots.values().flat_map(|snapshot| &snapshot.indices);
            let indices = indices.map(|index| Arc::clone(&index.meta)).collect();
            Ok(Prepared { planned, handles, stops, pushed, indices })
        };
        on_deep_stack(plan).await
    }

    /// Runs a plan and writes the answer, or its first `page` rows.
    async fn execute(&self, prepared: Prepared, format: Format, page: usize) -> Result<Page> {
        let (mut rows, planned) = self.rows(&prepared).await?;
        let columns: Arc<[OutColumn]> = planned.columns.clone().into();
        let mut writer = Writer::new(format, Arc::clone(&columns));
        let (mut size, mut more) = (0, false);
        if page == 0 {
            while let Some(batch) = rows.next().await? {
                size += batch.num_rows();
                writer = self.written(writer, vec![batch]).await?;
            }
        } else {
            let (batches, behind) = rows.page(page).await?;
            size = batches.iter().map(RecordBatch::num_rows).sum();
            more = behind;
            writer = self.written(writer, batches).await?;
            if more && !planned.streams {
                rows = rows.spooled(self.state.runtime_env(), &self.compute).await?;
            }
        }
        let (skip, limit) = planned.window;
        let cut = more || skip > 0 || limit.is_some_and(|limit| size >= limit);
        let total = match &planned.total {
            Total::Counted(counter) => counter.load(Ordering::Relaxed),
            Total::Scan(count) if cut => self.count(count).await?,
            Total::Met(handle) => handle.totals.read().0,
            Total::Scan(_) | Total::Answered => size as u64,
        };
        let Prepared { stops, indices, .. } = prepared;
        let progress = Mutex::new(Progress { rows, page: 1, last: None });
        let left = more.then_some(Cursor { columns, size: page, indices, progress, _stops: stops });
        Ok(Page { writer, total, left })
    }

    /// Starts a plan.
    pub(super) async fn rows<'p>(&self, prepared: &'p Prepared) -> Result<(Rows, &'p Planned)> {
        let planned = &prepared.planned;
        let physical = self.physical(&planned.plan).await?;
        failed(&prepared.handles)?;
        let batches = execute_stream(physical, self.state.task_ctx())?;
        let window = match (planned.uncut, planned.window) {
            (false, _) => Window::ALL,
            (true, (skip, rows)) => Window { skip, rows: rows.unwrap_or(usize::MAX), to_the_end: true },
        };
        Ok((Rows::new(batches, window, self.state.runtime_env()), planned))
    }

    /// Writes rows on a compute thread.
    async fn written(&self, mut writer: Writer, batches: Vec<RecordBatch>) -> Result<Writer> {
        let write = move || {
            for batch in &batches {
                if let Err(error) = writer.rows(batch) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(writer))
        };
        self.compute.run(write).await.map_err(SqlError::from)?
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

/// What index expressions of statements stand for: an index that is not there is an error, unless a pattern
/// stands for none.
fn pinned() -> Scope {
    Scope { options: IndicesOptions::open_only(), routing: None, shards: None, said: Vec::new() }
}

/// Refuses a statement of which an index refuses a condition.
fn failed(handles: &[Arc<ScanHandle>]) -> Result<()> {
    let failures: Vec<_> =
        handles.iter().flat_map(|handle| std::mem::take(&mut *handle.failures.lock())).collect();
    if failures.is_empty() { Ok(()) } else { Err(Error::SearchPhase { failures }.into()) }
}

/// Writes a list of metadata.
pub(super) fn list(listing: metadata::Listing, format: Format) -> Result<Page> {
    let mut writer = Writer::new(format, listing.columns.into());
    writer.rows(&listing.batch)?;
    Ok(Page { writer, total: listing.batch.num_rows() as u64, left: None })
}

/// Bounds the time of a part of a statement.
pub(super) async fn within<T>(timeout_ms: Option<u64>, work: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout_ms.filter(|timeout_ms| *timeout_ms != u64::MAX) {
        None => work.await,
        Some(timeout_ms) => match tokio::time::timeout(Duration::from_millis(timeout_ms), work).await {
            Ok(done) => done,
            Err(_) => Err(Error::TimedOut.into()),
        },
    }
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
