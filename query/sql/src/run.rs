//! Runs statements: parse, pin, bind, plan, execute.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use millrace_catalog::metadata::IndicesOptions;
use millrace_dsl::params::Scope;
use millrace_dsl::query::Query;
use millrace_matching::pinned::PinnedMemory;
use millrace_matching::table::{ScanHandle, TableSnapshot};
use millrace_session::SearchSession;
use millrace_target::{lookup, target};
use millrace_work::QueryContext;
use millrace_work::compute::{Compute, StopOnDrop};
use millrace_work::error::Error;
use serde_json::Value;
use sqlparser::ast;

use super::aggregate_simplification::SimplifyAggregates;
use super::answer::Answer;
use super::bind::{Binder, PlannedQuery, Total, tables};
use super::condition_pushdown::PushDownConditions;
use super::count::StatementPlanner;
use super::dynamic_filters::PushDownDynamicFilters;
use super::elements::list_valued_fields;
use super::error::{Result, SqlError};
use super::format::{AlignedLines, LineFormat, Lines, PageFormat};
use super::functions::row::at_work;
use super::hit_layout::{HitLayout, add_line_columns};
use super::large_joins::LargeJoins;
use super::merged_sorts::SortAsMerged;
use super::node_rewriter::NodeRewriter;
use super::optimization::optimized;
use super::page::Page;
use super::parameters::Parameters;
use super::partitioned_groups::PartitionManyGroups;
use super::relational::{PlannedRelation, RelationPlanner, RelationalStatement};
use super::renderer::{RenderRefusal, RenderedSearch};
use super::request::SqlRequest;
use super::rights::{AccessWatch, ReadIndices};
use super::rows::{RowSlice, Rows};
use super::semi_joins::PushDownSemiJoin;
use super::statement::{self, Names, Statement};
use super::stop::stoppable;
use super::table::{MAX_KEY_BYTES, MAX_KEYS};
pub use super::threads::PATIENCE;
use super::threads::{Item, StatementThreads};
use super::whole_texts::WholeTexts;
use super::{group_top_rows, index_groups, late_materialization, merged_sorts, metadata};

/// Name of the cluster in metadata.
const CLUSTER: &str = "millrace";

/// Source of the parts of an answer in lines behind the first; dropping it ends the statement.
pub type LineParts = BoxStream<'static, Result<Bytes>>;

/// Runs statements within the memory of queries.
#[derive(Clone, Debug)]
pub struct Runner {
    pub(super) state: Arc<SessionState>,
    pub(super) compute: Compute,
    pub(super) threads: StatementThreads,
    pub(super) pins: PinnedMemory,
    /// Bytes that the rows behind one cursor may have on disk.
    pub(super) cursor_bytes: u64,
}

/// A statement as it is asked.
#[derive(Clone, Debug)]
pub(super) struct StatementRequest {
    pub(super) session: Arc<dyn SearchSession>,
    pub(super) request: SqlRequest,
    /// Time of the request.
    pub(super) now_ms: i64,
    /// Context that ends it, and holds its memory.
    pub(super) work: QueryContext,
    /// Indices that it reads.
    pub(super) read: ReadIndices,
    /// Texts whose keyword fields have every value, as far as they were looked at.
    pub(super) whole_texts: Arc<WholeTexts>,
}

/// A statement with what it reads, ready to run.
pub(super) struct ReadyStatement {
    pub(super) planned: PlannedQuery,
    pub(super) handles: Vec<Arc<ScanHandle>>,
    /// Stops the scans when nobody waits any more.
    pub(super) stop: StopOnDrop,
    pub(super) work: QueryContext,
    pub(super) snapshots: Vec<Arc<TableSnapshot>>,
}

/// Mode of counting the rows of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowCountMode {
    /// All that match.
    All,
    /// Those that are answered.
    Answered,
}

/// Bounds of a statement's answer.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time of the request.
    pub now_ms: i64,
    /// Rows that are answered where the statement does not say; all where absent.
    pub rows: Option<usize>,
    /// Time that it may take.
    pub timeout_ms: Option<u64>,
    /// `true` if documents may be deleted.
    pub deletes: bool,
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
        pins: PinnedMemory,
        cursor_bytes: u64,
    ) -> Result<Self, Error> {
        // The side of a join that is collected is the smaller one ([`JoinSelection`]); the other is not spread anew.
        // Rows that go round by another way lose the order of a sort below a projection.
        let mut config = SessionConfig::new()
            .with_target_partitions(partitions.max(1))
            .with_round_robin_repartition(false)
            .with_repartition_joins(false);
        let options = config.options_mut();
        // The physical plan takes some keys for nullable of which the logical one knows better.
        options.execution.skip_physical_aggregate_schema_check = true;
        let optimizer = &mut options.optimizer;
        optimizer.hash_join_inlist_pushdown_max_size = MAX_KEY_BYTES;
        optimizer.hash_join_inlist_pushdown_max_distinct_values = MAX_KEYS;
        let large_joins = LargeJoins::new(runtime.memory_pool.as_ref());
        let many_groups = PartitionManyGroups::new(runtime.memory_pool.as_ref());
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_query_planner(Arc::new(StatementPlanner))
            .with_analyzer_rules(Vec::new())
            .with_optimizer_rules(vec![
                // In this order, as DataFusion has them: the second takes the conditions of inner joins that have no keys yet apart.
                Arc::new(ExtractEquijoinPredicate::new()),
                Arc::new(EliminateCrossJoin::new()),
                Arc::new(PushDownSemiJoin),
                Arc::new(SimplifyAggregates),
                Arc::new(PushDownLimit::new()),
                Arc::new(PushDownConditions::default()),
                Arc::new(OptimizeProjections::new()),
            ])
            .with_physical_optimizer_rules(vec![
                Arc::new(AggregateStatistics::new()),
                Arc::new(JoinSelection::new()),
                Arc::new(large_joins),
                Arc::new(NodeRewriter { name: "index_groups", rewritten: index_groups::rewritten }),
                Arc::new(EnsureRequirements::new()),
                Arc::new(NodeRewriter { name: "sort_of_no_rows", rewritten: merged_sorts::sort_of_no_rows }),
                Arc::new(SortAsMerged),
                Arc::new(NodeRewriter { name: "late_columns", rewritten: late_materialization::rewritten }),
                Arc::new(NodeRewriter { name: "group_top_rows", rewritten: group_top_rows::rewritten }),
                // Joins and scans stay from here on: these share the filters.
                Arc::new(PushDownDynamicFilters),
                Arc::new(many_groups),
            ])
            .build();
        let threads = StatementThreads::start(compute.threads())?;
        Ok(Self { state: Arc::new(state), compute, threads, pins, cursor_bytes })
    }

    /// Answers a statement in one piece, or with the first page and what is left where that has fewer rows. 0 `rows` are all.
    pub fn page<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
        format: PageFormat,
        rows: usize,
    ) -> BoxFuture<'a, Result<Page>> {
        let timeout_ms = bounds.timeout_ms;
        let part = move |runner: Self, asked| async move {
            let answer = runner.open(&asked, bounds, RowCountMode::All).await?;
            runner.first_page(answer, format, rows).await
        };
        Box::pin(self.on_threads(session, request, bounds.now_ms, timeout_ms, part))
    }

    /// Answers the rows of a query as hits of a search.
    pub fn hits<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Page>> {
        let timeout_ms = bounds.timeout_ms;
        let part = move |runner: Self, asked: StatementRequest| async move {
            let Statement::Query(mut query, names) = statement::parse_request(&asked.request)? else {
                return Err(SqlError::Unsupported("only the rows of queries are hits".to_owned()));
            };
            let layout = HitLayout::new(&mut query);
            let prepared = runner.prepare(&asked, &query, &names, bounds.rows).await?;
            let layout = layout.with_plan(&prepared.planned.plan);
            let rows = runner.rows(&prepared, RowCountMode::All).await?;
            let answer = Answer { layout, ..Answer::of_query(prepared, rows) };
            runner.first_page(answer, PageFormat::Hits, 0).await
        };
        Box::pin(self.on_threads(session, request, bounds.now_ms, timeout_ms, part))
    }

    /// Answers a statement with lines of text, part by part: returns the first part, and what brings the others where there are
    /// any. They are written as they are read, and hold the memory of a few parts. They end with an error once the session's sender may not
    /// read on.
    pub fn lines<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
        format: LineFormat,
    ) -> BoxFuture<'a, Result<(Bytes, Option<LineParts>)>> {
        Box::pin(async move {
            let asked = self.asked(session, request, bounds.now_ms);
            let mut watch = AccessWatch::new(session, &asked.read);
            let (runner, stop) = (self.clone(), Arc::clone(asked.work.stop()));
            let owner = asked.session.principal().caller().clone();
            let mut parts =
                self.threads.stream(&owner, &stop, bounds.timeout_ms, move |parts| async move {
                    let mut statement = statement::parse_request(&asked.request)?;
                    let options = asked.request.lines;
                    if let Statement::Query(query, _) = &mut statement {
                        add_line_columns(query, options);
                    }
                    let answer = runner.start(&asked, statement, bounds, RowCountMode::Answered).await?;
                    if options.pretty && matches!(format, LineFormat::Raw { .. }) {
                        let lines = AlignedLines::new(format, options.end, &answer.columns, &answer.work);
                        return runner.write(answer, lines, parts).await;
                    }
                    let lines = Lines::new(format, &answer.columns, &answer.work);
                    let lines = lines.with_line_end(options.end);
                    runner.write(answer, lines, parts).await
                })?;
            Ok(match watch.within(parts.next()).await?? {
                Item::Given(first) => (first, Some(watch.over(parts.into_stream()).boxed())),
                Item::Last(text) => (text, None),
            })
        })
    }

    /// Computes on the threads of short jobs.
    ///
    /// # Errors
    /// The threads have ended.
    pub async fn compute<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        Ok(self.compute.run(move || Ok::<_, Error>(job())).await?)
    }

    /// Makes a statement of a request.
    pub(super) fn asked(
        &self,
        session: &dyn SearchSession,
        request: SqlRequest,
        now_ms: i64,
    ) -> StatementRequest {
        let work = QueryContext::new(&self.state.runtime_env().memory_pool);
        let (read, whole_texts) = (ReadIndices::default(), Arc::default());
        StatementRequest { session: session.to_shared(), request, now_ms, work, read, whole_texts }
    }

    /// Runs what is asked of a statement on the threads of statements, for so long, and while the session's sender may read it.
    pub(super) async fn on_threads<T, F>(
        &self,
        session: &dyn SearchSession,
        request: SqlRequest,
        now_ms: i64,
        timeout_ms: Option<u64>,
        part: impl FnOnce(Self, StatementRequest) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let asked = self.asked(session, request, now_ms);
        let stop = Arc::clone(asked.work.stop());
        let owner = asked.session.principal().caller().clone();
        let mut watch = AccessWatch::new(session, &asked.read);
        watch.within(self.threads.run(&owner, Some(&stop), timeout_ms, part(self.clone(), asked))).await?
    }

    /// Parses a statement and starts to run it.
    async fn open(&self, asked: &StatementRequest, bounds: Bounds, counted: RowCountMode) -> Result<Answer> {
        self.start(asked, statement::parse_request(&asked.request)?, bounds, counted).await
    }

    /// Starts to run a statement that was parsed.
    pub(super) async fn start(
        &self,
        asked: &StatementRequest,
        statement: Statement,
        bounds: Bounds,
        counted: RowCountMode,
    ) -> Result<Answer> {
        let listing = match statement {
            Statement::Query(query, names) => {
                let prepared = self.prepare(asked, &query, &names, bounds.rows).await?;
                let rows = self.rows(&prepared, counted).await?;
                return Ok(Answer::of_query(prepared, rows));
            }
            Statement::Relational(statement) => {
                let prepared = self.prepare_relational(asked, statement.as_ref(), bounds.rows).await?;
                let rows = self.rows(&prepared, counted).await?;
                return Ok(Answer::of_query(prepared, rows));
            }
            Statement::Explain { query, names, analyze } => {
                let prepared = self.prepare(asked, &query, &names, bounds.rows).await?;
                let listing = self.explain_query(&prepared, analyze).await?;
                // The answer has a stop of its own.
                prepared.stop.disarm();
                listing
            }
            Statement::Delete(query) => self.delete(asked, &query, bounds).await?,
            Statement::ShowTables(pattern) => metadata::tables(&*asked.session, CLUSTER, &pattern)?,
            Statement::DescribeTables(pattern, of) => {
                metadata::columns(&*asked.session, CLUSTER, &pattern, of.as_deref())?
            }
            Statement::Show(statement) => metadata::show(&*asked.session, CLUSTER, &statement)?,
        };
        let schema = listing.batch.schema();
        let batches = RecordBatchStreamAdapter::new(schema, stream::iter([Ok(listing.batch)]));
        let rows = Rows::new(Box::pin(batches), RowSlice::ALL, self.state.runtime_env(), &self.threads);
        Ok(Answer::of_listing(listing.columns, rows, &asked.work))
    }

    /// Describes the indices of `SHOW TABLES` and `DESCRIBE TABLES`; `None` for another statement.
    pub fn index_descriptions<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Option<Value>>> {
        let part = |_: Self, asked: StatementRequest| async move {
            match statement::parse_request(&asked.request)? {
                Statement::ShowTables(pattern) | Statement::DescribeTables(pattern, None) => {
                    metadata::index_descriptions(&*asked.session, &pattern).map(Some)
                }
                _ => Ok(None),
            }
        };
        Box::pin(self.on_threads(session, request, bounds.now_ms, bounds.timeout_ms, part))
    }

    /// Renders a statement as a search; `None` where its rows are hits of no search.
    pub fn search<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Option<RenderedSearch>>> {
        let timeout_ms = bounds.timeout_ms;
        let part = move |runner: Self, asked| async move { runner.rendered(asked, bounds.rows).await };
        Box::pin(self.on_threads(session, request, bounds.now_ms, timeout_ms, part))
    }

    async fn rendered(
        self,
        mut asked: StatementRequest,
        rows: Option<usize>,
    ) -> Result<Option<RenderedSearch>> {
        asked.request.is_search = true;
        let Statement::Query(query, names) = statement::parse_request(&asked.request)? else {
            return Err(SqlError::Unsupported("only queries are answered in the format [json]".to_owned()));
        };
        if tables(&query).is_empty() {
            return Err(SqlError::Unsupported("the format [json] needs an index in FROM".to_owned()));
        }
        let ready = self.prepare(&asked, &query, &names, rows).await?;
        let mut rendered = ready.planned.rendered();
        if rendered.is_err() {
            asked.whole_texts = self.whole_texts(&asked, &query).await?;
            if !asked.whole_texts.is_empty() {
                rendered = self.prepare(&asked, &query, &names, rows).await?.planned.rendered();
            }
        }
        match rendered {
            Ok(mut search) => {
                names.hints().apply(&mut search);
                Ok(Some(search))
            }
            Err(RenderRefusal(reason)) if is_grouped(&query) => Err(SqlError::Unsupported(format!(
                "{reason} cannot be shown in the format [json]; ask for jdbc, csv or raw"
            ))),
            Err(_) => Ok(None),
        }
    }

    /// Pins the indices of a query and binds it; `rows` are answered where it does not say how many.
    pub(super) async fn prepare(
        &self,
        asked: &StatementRequest,
        query: &ast::Query,
        names: &Names,
        rows: Option<usize>,
    ) -> Result<ReadyStatement> {
        self.prepare_plan(asked, tables(query), names, |binder| binder.query(query, rows, 0)).await
    }

    /// Pins the indices of a statement of another language and plans it; `rows` are answered at most.
    pub(super) async fn prepare_relational(
        &self,
        asked: &StatementRequest,
        statement: &dyn RelationalStatement,
        rows: Option<usize>,
    ) -> Result<ReadyStatement> {
        let plan = |binder: &mut Binder<'_>| {
            let without_index = binder.snapshots.iter().filter(|(_, snapshot)| snapshot.indices.is_empty());
            if let Some(index) = without_index.map(|(expression, _)| expression).min() {
                let index = index.clone();
                return Err(millrace_runtime::Error::IndexNotFound { index }.into());
            }
            binder.scores = statement.names_score();
            let PlannedRelation(planned) = statement.plan(&mut RelationPlanner::new(binder), rows)?;
            Ok(planned)
        };
        self.prepare_plan(asked, statement.index_expressions(), &Names::default(), plan).await
    }

    /// Pins index expressions and has a statement over them planned.
    async fn prepare_plan(
        &self,
        asked: &StatementRequest,
        expressions: Vec<String>,
        names: &Names,
        plan: impl FnOnce(&mut Binder<'_>) -> Result<PlannedQuery> + Send,
    ) -> Result<ReadyStatement> {
        let work = &asked.work;
        let snapshots = self.snapshots(&*asked.session, expressions).await?;
        asked.read.add(snapshots.values());
        let filters = self.filters(asked, &snapshots).await?;
        let list_valued = self.list_valued(asked, &snapshots).await?;
        let mut binder = self.binder(asked, &snapshots, names, &asked.request.parameters);
        binder.filters = filters;
        binder.list_valued = list_valued;
        binder.whole_texts = Arc::clone(&asked.whole_texts);
        let mut planned = plan(&mut binder)?;
        planned.plan = at_work(planned.plan, work)?;
        let handles = binder.handles;
        let snapshots = snapshots.into_values().collect();
        // A statement that is refused may be prepared once more, in other words.
        let stop = work.until_dropped();
        Ok(ReadyStatement { planned, handles, stop, work: work.clone(), snapshots })
    }

    /// Finds the nested fields whose elements hold several values.
    pub(super) async fn list_valued(
        &self,
        asked: &StatementRequest,
        snapshots: &HashMap<String, Arc<TableSnapshot>>,
    ) -> Result<Arc<HashSet<String>>> {
        let snapshots = snapshots.values().cloned().collect();
        // Quotes and spaces may stand between the steps of a path.
        let text: String = asked.request.query.chars().filter(|c| *c != '`' && !c.is_whitespace()).collect();
        let found = list_valued_fields(snapshots, text, &self.compute).await?;
        Ok(Arc::new(found))
    }

    /// Takes snapshots of index expressions.
    pub(super) async fn snapshots(
        &self,
        session: &dyn SearchSession,
        expressions: Vec<String>,
    ) -> Result<HashMap<String, Arc<TableSnapshot>>> {
        let scope = pinned();
        let mut snapshots: HashMap<String, Arc<TableSnapshot>> = HashMap::new();
        for name in expressions {
            if let Entry::Vacant(place) = snapshots.entry(name) {
                let snapshot = target::pin(session, place.key(), &scope).await?;
                place.insert(Arc::new(snapshot));
            }
        }
        Ok(snapshots)
    }

    /// Parses the condition on every scan, once for each index expression: it may take values from documents, which may be of the
    /// indices that are searched.
    async fn filters(
        &self,
        asked: &StatementRequest,
        snapshots: &HashMap<String, Arc<TableSnapshot>>,
    ) -> Result<HashMap<String, Query>> {
        let mut filters = HashMap::new();
        let Some(filter) = &asked.request.filter else { return Ok(filters) };
        let parsed = millrace_dsl::query::parse(filter)?;
        for (name, snapshot) in snapshots {
            let mut query = parsed.clone();
            lookup::read(&*asked.session, snapshot, &mut query, &self.compute, &asked.work).await?;
            filters.insert(name.clone(), query);
        }
        Ok(filters)
    }

    /// Makes what binds a query over snapshots.
    pub(super) fn binder<'a>(
        &self,
        asked: &'a StatementRequest,
        snapshots: &'a HashMap<String, Arc<TableSnapshot>>,
        names: &'a Names,
        parameters: &'a Parameters,
    ) -> Binder<'a> {
        let StatementRequest { request, now_ms, work, .. } = asked;
        Binder::new(snapshots, names, request, parameters, *now_ms, self.compute.clone(), work)
    }

    /// Starts a plan.
    pub(super) async fn rows(&self, prepared: &ReadyStatement, counted: RowCountMode) -> Result<Rows> {
        let planned = &prepared.planned;
        let physical = self.physical(&planned.plan, &prepared.work).await?;
        failed(&prepared.handles)?;
        if let (Total::ByScan(handle), RowCountMode::Answered) = (&planned.total, counted) {
            handle.totals.waive();
        }
        let batches = execute_stream(physical, self.state.task_ctx())?;
        let cut = match (planned.uncut, planned.cut) {
            (false, _) => RowSlice::ALL,
            (true, (skip, rows)) => {
                RowSlice { skip, rows: rows.unwrap_or(usize::MAX), to_the_end: counted == RowCountMode::All }
            }
        };
        Ok(Rows::new(batches, cut, self.state.runtime_env(), &self.threads))
    }

    pub(super) async fn physical(
        &self,
        plan: &LogicalPlan,
        work: &QueryContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        work.check()?;
        let optimized = optimized(plan, &self.state)?;
        let planner = self.state.query_planner();
        Ok(stoppable(planner.create_physical_plan(&optimized, self.state.as_ref()).await?, work.stop())?)
    }

    /// Counts the rows of a plan without columns.
    pub(super) async fn count(&self, plan: &LogicalPlan, work: &QueryContext) -> Result<u64> {
        let physical = self.physical(plan, work).await?;
        let mut batches = execute_stream(physical, self.state.task_ctx())?;
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            rows += batch?.num_rows() as u64;
        }
        Ok(rows)
    }
}

/// Returns the options of a statement's index expressions: a missing index is an error, unless a pattern stands for none.
fn pinned() -> Scope {
    Scope { options: IndicesOptions::open_only(), routing: None, shards: None, said: Vec::new() }
}

/// Returns whether a query over one source makes groups: no document is a hit of these.
fn is_grouped(query: &ast::Query) -> bool {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return false };
    let has_groups = match &select.group_by {
        ast::GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
        ast::GroupByExpr::All(_) => true,
    };
    let is_single = matches!(select.from.as_slice(), [from] if from.joins.is_empty());
    is_single && query.with.is_none() && (has_groups || select.having.is_some() || select.distinct.is_some())
}

/// Refuses a statement of which an index refuses a condition.
pub(super) fn failed(handles: &[Arc<ScanHandle>]) -> Result<()> {
    let failures: Vec<_> =
        handles.iter().flat_map(|handle| std::mem::take(&mut *handle.failures.lock())).collect();
    if failures.is_empty() { Ok(()) } else { Err(Error::SearchPhase { failures }.into()) }
}
