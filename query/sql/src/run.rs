//! Runs statements: parse, pin, bind, plan, execute, write.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use futures::future::BoxFuture;
use millrace_dsl::params::Scope;
use millrace_matching::pinned::Pins;
use millrace_matching::table::{ScanHandle, TableSnapshot};
use millrace_matching::target;
use millrace_storage::metadata::IndicesOptions;
use millrace_storage::{Engine, Principal};
use millrace_work::Work;
use millrace_work::compute::{Compute, StopOnDrop};
use millrace_work::error::Error;
use serde_json::{Value, json};
use sqlparser::ast;
use tokio::sync::Mutex;

use super::bind::{Binder, OutColumn, Planned, Total, tables};
use super::count::StatementPlanner;
use super::cursor::{Cursor, Progress, Token};
use super::delete::DELETED_AT_A_TIME;
use super::error::{Result, SqlError};
use super::format::{Format, Writer};
use super::functions::row::at_work;
use super::late_materialization::LateColumns;
use super::metadata;
use super::native::{self, NativeSearch};
use super::request::SqlRequest;
use super::rows::{Rows, Window};
use super::statement::{self, Names, Statement};
use super::stop::stoppable;
use super::threads::StatementThreads;

/// Name of the cluster in metadata.
const CLUSTER: &str = "millrace";

/// Runs statements within the memory of queries.
#[derive(Clone, Debug)]
pub struct Runner {
    state: Arc<SessionState>,
    compute: Compute,
    threads: StatementThreads,
    pins: Pins,
    /// Bytes that the rows behind one cursor may have on disk.
    cursor_bytes: u64,
}

/// A statement as it is asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) engine: Arc<Engine>,
    pub(super) principal: Principal,
    pub(super) request: SqlRequest,
    /// When the request came.
    pub(super) now_ms: i64,
    /// What ends it, and the memory that it holds.
    pub(super) work: Work,
}

/// A statement with what it reads, ready to run.
pub(super) struct Prepared {
    planned: Planned,
    handles: Vec<Arc<ScanHandle>>,
    /// Stops the scans when nobody waits any more.
    stop: StopOnDrop,
    work: Work,
    pushed: Vec<Value>,
    snapshots: Vec<Arc<TableSnapshot>>,
}

/// How a statement is answered.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
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
pub struct Page {
    /// What is written.
    pub writer: Writer,
    /// Rows that match.
    pub total: u64,
    /// What is left for later pages.
    pub left: Option<Cursor>,
}

impl Runner {
    /// Makes a runner that shares a runtime's memory.
    ///
    /// # Errors
    /// The threads of statements cannot be started.
    pub fn new(
        partitions: usize,
        runtime: Arc<RuntimeEnv>,
        compute: Compute,
        pins: Pins,
        cursor_bytes: u64,
    ) -> Result<Self, Error> {
        // Which side of a join is collected is not chosen: no rule of the planner does here.
        let config =
            SessionConfig::new().with_target_partitions(partitions.max(1)).with_repartition_joins(false);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_query_planner(Arc::new(StatementPlanner))
            .with_analyzer_rules(Vec::new())
            .with_optimizer_rules(vec![
                Arc::new(EliminateCrossJoin::new()),
                Arc::new(ExtractEquijoinPredicate::new()),
                Arc::new(PushDownLimit::new()),
                Arc::new(PushDownFilter::new()),
                Arc::new(OptimizeProjections::new()),
            ])
            .with_physical_optimizer_rules(vec![
                Arc::new(AggregateStatistics::new()),
                Arc::new(EnsureRequirements::new()),
                Arc::new(LateColumns),
            ])
            .build();
        let threads = StatementThreads::start(compute.threads())?;
        Ok(Self { state: Arc::new(state), compute, threads, pins, cursor_bytes })
    }

    /// Answers a statement: the first page, and what is left where there are more.
    pub fn answer<'a>(
        &'a self,
        engine: &'a Arc<Engine>,
        principal: &'a Principal,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Page>> {
        let timeout_ms = bounds.timeout_ms;
        let part = move |runner: Self, asked| async move { runner.first_page(asked, bounds).await };
        Box::pin(self.on_threads(engine, principal, request, bounds.now_ms, timeout_ms, part))
    }

    /// Runs what is asked of a statement on the threads of statements, for so long.
    async fn on_threads<T, F>(
        &self,
        engine: &Arc<Engine>,
        principal: &Principal,
        request: SqlRequest,
        now_ms: i64,
        timeout_ms: Option<u64>,
        part: impl FnOnce(Self, Asked) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let work = Work::new(&self.state.runtime_env().memory_pool);
        let stop = Arc::clone(work.stop());
        let (engine, principal) = (Arc::clone(engine), principal.clone());
        let part = part(self.clone(), Asked { engine, principal, request, now_ms, work });
        self.threads.run(Some(&stop), timeout_ms, part).await
    }

    async fn first_page(self, asked: Asked, bounds: Bounds) -> Result<Page> {
        let format = bounds.format;
        let (query, names) = match statement::parse(&asked.request.query)? {
            Statement::Query(query, names) => (query, names),
            Statement::Delete(query) => return self.delete(&asked, &query, bounds).await,
            Statement::ShowTables(pattern) => {
                return list(metadata::tables(&asked.engine, CLUSTER, &pattern)?, format, &asked.work);
            }
            Statement::DescribeTables(pattern, of) => {
                let listing = metadata::columns(&asked.engine, CLUSTER, &pattern, of.as_deref())?;
                return list(listing, format, &asked.work);
            }
        };
        let prepared = self.prepare(&asked, &query, &names, bounds.rows).await?;
        self.execute(prepared, format, bounds.page).await
    }

    /// Reads the next page of a cursor, and whether there are more behind it.
    pub fn next_page<'a>(
        &'a self,
        cursor: Arc<Cursor>,
        token: Token,
        timeout_ms: Option<u64>,
    ) -> BoxFuture<'a, Result<(Bytes, bool)>> {
        Box::pin(async move {
            // Who gives up on a page may ask for it again: the statement goes on.
            let work = Work::new(&self.state.runtime_env().memory_pool);
            self.threads.run(None, timeout_ms, Self::page_of(cursor, token, work)).await
        })
    }

    async fn page_of(cursor: Arc<Cursor>, token: Token, work: Work) -> Result<(Bytes, bool)> {
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
        let (batches, more) = rows.page(cursor.size).await?;
        let mut writer = Writer::later(Arc::clone(&cursor.columns), &work);
        for batch in &batches {
            writer.rows(batch)?;
        }
        let following = more.then(|| Token::text(&token.id, token.page + 1));
        let text = writer.finish(0, following.as_deref())?;
        drop(batches);
        rows.let_go()?;
        *page = token.page;
        *last = Some(text.clone());
        Ok((text, more))
    }

    /// Explains a statement.
    pub fn explain<'a>(
        &'a self,
        engine: &'a Arc<Engine>,
        principal: &'a Principal,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Value>> {
        let timeout_ms = bounds.timeout_ms;
        let part = move |runner: Self, asked| async move { runner.explained(asked, bounds.rows).await };
        Box::pin(self.on_threads(engine, principal, request, bounds.now_ms, timeout_ms, part))
    }

    async fn explained(self, asked: Asked, rows: Option<usize>) -> Result<Value> {
        let (query, names, rows) = match statement::parse(&asked.request.query)? {
            Statement::Query(query, names) => (query, names, rows),
            Statement::Delete(query) => (query, Names::default(), Some(DELETED_AT_A_TIME)),
            _ => return Err(SqlError::Unsupported("only queries can be explained".to_owned())),
        };
        let Prepared { planned, pushed, .. } = self.prepare(&asked, &query, &names, rows).await?;
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
    pub fn native<'a>(
        &'a self,
        engine: &'a Arc<Engine>,
        principal: &'a Principal,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Option<NativeSearch>>> {
        let timeout_ms = bounds.timeout_ms;
        let part = move |runner: Self, asked| async move { runner.translated(asked, bounds.rows).await };
        Box::pin(self.on_threads(engine, principal, request, bounds.now_ms, timeout_ms, part))
    }

    async fn translated(self, asked: Asked, rows: Option<usize>) -> Result<Option<NativeSearch>> {
        let Statement::Query(query, names) = statement::parse(&asked.request.query)? else {
            return Err(SqlError::Unsupported("only queries are answered in the format [json]".to_owned()));
        };
        let index = match tables(&query).as_slice() {
            [index] => index.clone(),
            [] => {
                return Err(SqlError::Unsupported("the format [json] needs an index in FROM".to_owned()));
            }
            _ => return Ok(None),
        };
        let Prepared { planned, pushed, .. } = self.prepare(&asked, &query, &names, rows).await?;
        let snapshot = target::pin(&asked.engine, &asked.principal, &index, &pinned()).await?;
        native::search(&query, &names, &planned, &pushed, &snapshot, &index).map(Some)
    }

    /// Pins the indices of a query and binds it; `rows` are answered where it does not say how many.
    pub(super) async fn prepare(
        &self,
        asked: &Asked,
        query: &ast::Query,
        names: &Names,
        rows: Option<usize>,
    ) -> Result<Prepared> {
        let Asked { engine, principal, request, now_ms, work } = asked;
        let stop = work.until_dropped();
        let scope = pinned();
        let mut snapshots: HashMap<String, Arc<TableSnapshot>> = HashMap::new();
        for name in tables(query) {
            if let Entry::Vacant(place) = snapshots.entry(name) {
                let snapshot = target::pin(engine, principal, place.key(), &scope).await?;
                place.insert(Arc::new(snapshot));
            }
        }
        let mut binder = Binder::new(&snapshots, names, request, *now_ms, self.compute.clone(), work);
        let mut planned = binder.query(query, rows, 0)?;
        planned.plan = at_work(planned.plan, work)?;
        let (handles, pushed) = (binder.handles, binder.pushed);
        let snapshots = snapshots.into_values().collect();
        Ok(Prepared { planned, handles, stop, work: work.clone(), pushed, snapshots })
    }

    /// Runs a plan and writes the answer, or its first `page` rows.
    async fn execute(&self, prepared: Prepared, format: Format, page: usize) -> Result<Page> {
        let (mut rows, planned) = self.rows(&prepared).await?;
        let columns: Arc<[OutColumn]> = planned.columns.clone().into();
        let mut writer = Writer::new(format, Arc::clone(&columns), &prepared.work);
        let (mut size, mut more, mut pinned) = (0, false, Vec::new());
        if page == 0 {
            while let Some(batch) = rows.next().await? {
                size += batch.num_rows();
                writer.rows(&batch)?;
            }
        } else {
            let (batches, behind) = rows.page(page).await?;
            size = batches.iter().map(RecordBatch::num_rows).sum();
            more = behind;
            for batch in &batches {
                writer.rows(batch)?;
            }
            drop(batches);
            rows.let_go()?;
            if more && planned.streams {
                pinned =
                    prepared.snapshots.iter().map_while(|snapshot| self.pins.hold(snapshot).ok()).collect();
            }
            // What cannot be read when it is asked for, or may not be kept in memory until then, waits on disk.
            if more && (!planned.streams || pinned.len() < prepared.snapshots.len()) {
                pinned.clear();
                rows = rows.spooled(self.state.runtime_env(), self.cursor_bytes).await?;
            }
        }
        let (skip, limit) = planned.window;
        let cut = more || skip > 0 || limit.is_some_and(|limit| size >= limit);
        let total = match &planned.total {
            Total::Counted(counter) => counter.load(Ordering::Relaxed),
            Total::Scan(count) if cut => self.count(count, &prepared.work).await?,
            Total::Met(handle) => handle.totals.read().0,
            Total::Scan(_) | Total::Answered => size as u64,
        };
        let Prepared { stop, snapshots, .. } = prepared;
        let indices = snapshots.iter().flat_map(|snapshot| &snapshot.indices);
        let indices = indices.map(|index| Arc::clone(&index.meta)).collect();
        let progress = Mutex::new(Progress { rows, page: 1, last: None });
        let left =
            more.then_some(Cursor { columns, size: page, indices, progress, _pinned: pinned, _stop: stop });
        Ok(Page { writer, total, left })
    }

    /// Starts a plan.
    pub(super) async fn rows<'p>(&self, prepared: &'p Prepared) -> Result<(Rows, &'p Planned)> {
        let planned = &prepared.planned;
        let physical = self.physical(&planned.plan, &prepared.work).await?;
        failed(&prepared.handles)?;
        let batches = execute_stream(physical, self.state.task_ctx())?;
        let window = match (planned.uncut, planned.window) {
            (false, _) => Window::ALL,
            (true, (skip, rows)) => Window { skip, rows: rows.unwrap_or(usize::MAX), to_the_end: true },
        };
        Ok((Rows::new(batches, window, self.state.runtime_env(), &self.threads), planned))
    }

    async fn physical(&self, plan: &LogicalPlan, work: &Work) -> Result<Arc<dyn ExecutionPlan>> {
        work.check()?;
        Ok(stoppable(self.state.create_physical_plan(plan).await?, work.stop())?)
    }

    /// Counts the rows of a plan without columns.
    async fn count(&self, plan: &LogicalPlan, work: &Work) -> Result<u64> {
        let physical = self.physical(plan, work).await?;
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
pub(super) fn list(listing: metadata::Listing, format: Format, work: &Work) -> Result<Page> {
    let mut writer = Writer::new(format, listing.columns.into(), work);
    writer.rows(&listing.batch)?;
    Ok(Page { writer, total: listing.batch.num_rows() as u64, left: None })
}
