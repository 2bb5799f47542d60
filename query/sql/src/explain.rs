//! Explanations of statements: their plans (`_explain`, `EXPLAIN`) and the work of these (`EXPLAIN ANALYZE`).
//!
//! `_explain` shows the search that a statement is ([`renderer`]), or the plans where no search answers it. `EXPLAIN` answers both as
//! lines of text. `EXPLAIN ANALYZE` runs the statement to its end and answers what each operator passed on ([`MeasuredExec`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, displayable, execute_stream};
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use millrace_runtime::Instant;
use millrace_session::SearchSession;
use millrace_work::error::Error;
use serde_json::{Value, json};

use super::bind::OutColumn;
use super::delete::DELETED_AT_A_TIME;
use super::error::{Result, SqlError};
use super::metadata::Listing;
use super::optimization::optimized;
use super::renderer::{self, RenderRefusal};
use super::request::SqlRequest;
use super::run::{Bounds, ReadyStatement, Runner, StatementRequest, failed};
use super::statement::{self, Names, Statement};
use super::table::{ScanCounts, SqlScanExec};
use super::types::SqlType;
use super::{index_groups, late_materialization};

/// Columns of `EXPLAIN`.
const PLAN_COLUMNS: [(&str, SqlType); 2] = [("plan_type", SqlType::Keyword), ("plan", SqlType::Keyword)];

/// Columns of `EXPLAIN ANALYZE`.
const OPERATOR_COLUMNS: [(&str, SqlType); 8] = [
    ("operator", SqlType::Keyword),
    ("rows", SqlType::Long),
    ("bytes", SqlType::Long),
    ("batches", SqlType::Long),
    ("elapsed_ms", SqlType::Double),
    ("postings", SqlType::Long),
    ("pages_read", SqlType::Long),
    ("pages", SqlType::Long),
];

/// Returns the columns of `EXPLAIN`, or of `EXPLAIN ANALYZE`.
pub(super) fn explain_columns(analyze: bool) -> Vec<OutColumn> {
    let columns = if analyze { OPERATOR_COLUMNS.as_slice() } else { PLAN_COLUMNS.as_slice() };
    let column = |(name, ty): &(&str, SqlType)| OutColumn {
        name: (*name).to_owned(),
        alias: None,
        ty: *ty,
        list: false,
        shown: ty.name(),
        element: None,
    };
    columns.iter().map(column).collect()
}

/// Plans of a statement.
#[derive(Debug)]
pub struct StatementPlans {
    /// Body of the equal search, where the query DSL can say it.
    pub search: Option<Value>,
    /// Optimized logical plan, a line an operator.
    pub logical: String,
    /// Physical plan, a line an operator.
    pub physical: String,
}

impl Runner {
    /// Explains a statement.
    pub fn explain<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Value>> {
        let timeout_ms = bounds.timeout_ms;
        let part = move |runner: Self, asked| async move { runner.explained(asked, bounds.rows).await };
        Box::pin(self.on_threads(session, request, bounds.now_ms, timeout_ms, part))
    }

    /// Plans a statement of either language without running it.
    pub fn explain_plans<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<StatementPlans>> {
        let timeout_ms = bounds.timeout_ms;
        let part = move |runner: Self, asked| async move { runner.statement_plans(asked, bounds.rows).await };
        Box::pin(self.on_threads(session, request, bounds.now_ms, timeout_ms, part))
    }

    async fn statement_plans(self, asked: StatementRequest, rows: Option<usize>) -> Result<StatementPlans> {
        let ReadyStatement { planned, .. } = match statement::parse_request(&asked.request)? {
            Statement::Query(query, names) => self.prepare(&asked, &query, &names, rows).await?,
            Statement::Relational(statement) => {
                self.prepare_relational(&asked, statement.as_ref(), rows).await?
            }
            _ => return Err(SqlError::Unsupported("only queries can be explained".to_owned())),
        };
        let (logical, physical) = self.plans(&planned.plan).await?;
        Ok(StatementPlans { search: planned.rendered().ok().map(|search| search.body), logical, physical })
    }

    async fn explained(self, mut asked: StatementRequest, rows: Option<usize>) -> Result<Value> {
        asked.request.is_search = true;
        let (query, names, rows, deletes) = match statement::parse_request(&asked.request)? {
            Statement::Query(query, names) => (query, names, rows, false),
            Statement::Delete(query) => (query, Names::default(), Some(DELETED_AT_A_TIME), true),
            _ => return Err(SqlError::Unsupported("only queries can be explained".to_owned())),
        };
        let ready = self.prepare(&asked, &query, &names, rows).await;
        let rendered = match &ready {
            Err(_) => Err(RenderRefusal("a call of this statement".to_owned())),
            Ok(ready) if deletes => renderer::render_deletion(&ready.planned.plan, DELETED_AT_A_TIME),
            Ok(ready) => ready.planned.rendered(),
        };
        match rendered {
            Ok(mut search) => {
                names.hints().apply(&mut search);
                Ok(search.body)
            }
            Err(RenderRefusal(reason)) => {
                // The statement runs by the plan that it has in formats of rows, unless only a search answers it.
                asked.request.is_search = false;
                let ReadyStatement { planned, .. } =
                    match (self.prepare(&asked, &query, &names, rows).await, ready) {
                        (Ok(own), _) | (Err(_), Ok(own)) => own,
                        (Err(error), Err(_)) => return Err(error),
                    };
                let (logical, physical) = self.plans(&planned.plan).await?;
                let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
                let requests = renderer::render_scans(&planned.plan).into_iter();
                let requests = requests.map(|search| json!({"index": search.index, "request": search.body}));
                Ok(json!({
                    "description": format!("{reason} is not in the query DSL: plans show how the statement runs"),
                    "Logical Plan": lines(&logical),
                    "Physical Plan": lines(&physical),
                    "Requests": requests.collect::<Vec<_>>(),
                }))
            }
        }
    }

    /// Writes the optimized plan of a statement, and the physical one, as indented lines.
    async fn plans(&self, plan: &LogicalPlan) -> Result<(String, String)> {
        let optimized = optimized(plan, &self.state)?;
        let planner = self.state.query_planner();
        let physical = planner.create_physical_plan(&optimized, self.state.as_ref()).await?;
        let physical = displayable(physical.as_ref()).indent(false).to_string();
        Ok((optimized.display_indent().to_string(), physical))
    }

    /// Answers `EXPLAIN`.
    pub(super) async fn explain_query(&self, ready: &ReadyStatement, analyze: bool) -> Result<Listing> {
        if analyze {
            return self.analyze(ready).await;
        }
        let (logical, physical) = self.plans(&ready.planned.plan).await?;
        let mut lines = Vec::new();
        match ready.planned.rendered() {
            Ok(search) => lines.push(("search", search.body.to_string())),
            Err(RenderRefusal(reason)) => lines.push(("search", format!("{reason} is not in the query DSL"))),
        }
        lines.extend(logical.lines().map(|line| ("logical", line.to_owned())));
        lines.extend(physical.lines().map(|line| ("physical", line.to_owned())));
        let kinds: ArrayRef = Arc::new(StringViewArray::from_iter_values(lines.iter().map(|(kind, _)| kind)));
        let plans: ArrayRef = Arc::new(StringViewArray::from_iter_values(lines.iter().map(|(_, line)| line)));
        listing(explain_columns(false), vec![kinds, plans])
    }

    /// Runs a statement to its end and lists what its operators passed on.
    async fn analyze(&self, ready: &ReadyStatement) -> Result<Listing> {
        let physical = self.physical(&ready.planned.plan, &ready.work).await?;
        failed(&ready.handles)?;
        let measured = measured(physical)?;
        let mut batches = execute_stream(Arc::clone(&measured), self.state.task_ctx())?;
        while let Some(batch) = batches.next().await {
            batch?;
            ready.work.check()?;
        }
        drop(batches);
        let mut operators = Vec::new();
        list_operators(&measured, 0, &mut operators);
        let names = operators.iter().map(|(name, _)| name.as_str());
        let names: ArrayRef = Arc::new(StringViewArray::from_iter_values(names));
        let count = |read: fn(&Measures) -> &AtomicU64| -> ArrayRef {
            let counts = operators.iter().map(|(_, measures)| read(measures).load(Ordering::Relaxed));
            Arc::new(Int64Array::from_iter_values(
                counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
            ))
        };
        let (rows, bytes) = (count(|own| &own.rows), count(|own| &own.bytes));
        let batches = count(|own| &own.batches);
        let nanos = operators.iter().map(|(_, measures)| measures.nanos.load(Ordering::Relaxed));
        let elapsed: ArrayRef =
            Arc::new(Float64Array::from_iter_values(nanos.map(|nanos| nanos as f64 / 1e6)));
        let scanned = |read: fn(&ScanCounts) -> u64| -> ArrayRef {
            let counts = operators.iter().map(|(_, measures)| measures.scan.as_deref().map(read));
            Arc::new(Int64Array::from_iter(
                counts.map(|count| Some(i64::try_from(count?).unwrap_or(i64::MAX))),
            ))
        };
        let (found, read) = (scanned(ScanCounts::found), scanned(|own| own.pages().0));
        let held = scanned(|own| own.pages().1);
        listing(explain_columns(true), vec![names, rows, bytes, batches, elapsed, found, read, held])
    }
}

fn listing(columns: Vec<OutColumn>, arrays: Vec<ArrayRef>) -> Result<Listing> {
    let fields = columns.iter().map(|column| Field::new(&column.name, column.ty.arrow(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(schema, arrays).map_err(Error::from)?;
    Ok(Listing { columns, batch })
}

/// Counts of what an operator passed on. Its time includes that of the operators below.
#[derive(Debug, Default)]
struct Measures {
    rows: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    nanos: AtomicU64,
    /// Counts of what it reads of columns, if it does.
    scan: Option<Arc<ScanCounts>>,
}

/// Counts what its input passes on.
#[derive(Clone, Debug)]
struct MeasuredExec {
    input: Arc<dyn ExecutionPlan>,
    measures: Arc<Measures>,
}

impl DisplayAs for MeasuredExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeasuredExec")
    }
}

impl ExecutionPlan for MeasuredExec {
    fn name(&self) -> &str {
        "MeasuredExec"
    }

    millrace_matching::passes_rows_on!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let mut rows = self.input.execute(partition, context)?;
        let measures = Arc::clone(&self.measures);
        let measured = stream::poll_fn(move |context| {
            let started = Instant::now();
            let next = rows.poll_next_unpin(context);
            let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            measures.nanos.fetch_add(nanos, Ordering::Relaxed);
            if let Poll::Ready(Some(Ok(batch))) = &next {
                measures.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                measures.bytes.fetch_add(batch.get_array_memory_size() as u64, Ordering::Relaxed);
                measures.batches.fetch_add(1, Ordering::Relaxed);
            }
            next
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.input.schema(), measured)))
    }
}

/// Measures each operator of a plan.
fn measured(plan: Arc<dyn ExecutionPlan>) -> PlanResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|input| {
        let counts = Arc::<ScanCounts>::default();
        let counting = match input.downcast_ref::<SqlScanExec>() {
            Some(scan) => Some(Arc::new(scan.counting(&counts)) as Arc<dyn ExecutionPlan>),
            None => index_groups::counting(&input, &counts)
                .or_else(|| late_materialization::counting(&input, &counts)),
        };
        let (input, scan) = match counting {
            Some(counting) => (counting, Some(counts)),
            None => (input, None),
        };
        let measures = Arc::new(Measures { scan, ..Measures::default() });
        let node: Arc<dyn ExecutionPlan> = Arc::new(MeasuredExec { input, measures });
        Ok(Transformed::yes(node))
    })
    .data()
}

/// Lists the operators of a measured plan, indented by their depth.
fn list_operators(plan: &Arc<dyn ExecutionPlan>, depth: usize, operators: &mut Vec<(String, Arc<Measures>)>) {
    let Some(own) = plan.downcast_ref::<MeasuredExec>() else { return };
    let line = displayable(own.input.as_ref()).one_line().to_string();
    operators.push((format!("{}{}", "  ".repeat(depth), line.trim()), Arc::clone(&own.measures)));
    for child in own.input.children() {
        list_operators(child, depth + 1, operators);
    }
}
