//! `_plugins/_ppl`: pipelines, their answers, plans and figures.
//!
//! A pipeline runs as a statement of SQL does, on the same threads, with the same rights, memory and formats. It has no cursors:
//! `fetch_size` cuts the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use millrace_dsl::json;
use millrace_dsl::params::Params;
use millrace_engine::Session;
use millrace_ppl::answer::error_body;
use millrace_ppl::plan::{PipelineSettings, PipelineStatement};
use millrace_runtime::Instant;
use millrace_sql::error::SqlError;
use millrace_sql::explain::StatementPlans;
use millrace_sql::format::{Format, PageFormat};
use millrace_sql::page::Page;
use millrace_sql::request::SqlRequest;
use millrace_sql::run::Bounds;
use serde_json::{Map, Value, json};
use tracing::Instrument as _;

use super::sql::{is_pretty, note};
use super::{Outcome, OutcomeBody, SearchService, TextParts};

/// Rows that a pipeline answers, where no setting says.
const DEFAULT_ROWS: usize = 10_000;
/// Time that a pipeline may take, where no setting says.
const TIMEOUT_MS: u64 = 300_000;

/// Numbers of the pipelines since the start.
#[derive(Debug, Default)]
pub(super) struct PipelineCounters {
    requests: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl PipelineCounters {
    /// Accounts for the status of an answer.
    fn add(&self, status: u16) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match status {
            500.. => self.failed.fetch_add(1, Ordering::Relaxed),
            400.. => self.refused.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

/// A request for a pipeline.
struct PipelineRequest {
    text: String,
    /// Rows that are answered at most; 0 are all.
    fetch_size: Option<usize>,
    /// A condition on every scan.
    filter: Option<Value>,
    /// Pattern of the fields whose matches the answer shows.
    highlight: Option<String>,
    /// Parts that the answer has beside its rows.
    parts: AnswerParts,
}

/// Parts of an answer beside its rows.
#[derive(Clone, Copy, Debug, Default)]
struct AnswerParts {
    /// The times of the phases.
    is_profiled: bool,
    /// The plans.
    is_analyzed: bool,
}

impl AnswerParts {
    fn is_empty(self) -> bool {
        !self.is_profiled && !self.is_analyzed
    }
}

fn not_pattern(value: &Value) -> SqlError {
    SqlError::Request(format!("highlight takes patterns of fields, but [{value}] is none"))
}

/// Parses `highlight`: a list of one pattern, or an object whose `fields` have one.
fn highlight(value: &Value) -> Result<Option<String>, SqlError> {
    let patterns: Vec<String> = match value {
        Value::Null => Vec::new(),
        Value::String(pattern) => vec![pattern.clone()],
        Value::Array(patterns) => {
            let pattern = |own: &Value| own.as_str().map(str::to_owned).ok_or_else(|| not_pattern(own));
            patterns.iter().map(pattern).collect::<Result<_, _>>()?
        }
        Value::Object(members) => match (members.len(), members.get("fields")) {
            (0, _) => Vec::new(),
            (1, Some(Value::Object(fields))) => fields.keys().cloned().collect(),
            _ => {
                return Err(SqlError::Request("highlight takes the patterns of its fields alone".to_owned()));
            }
        },
        _ => return Err(SqlError::Request("highlight is a list of patterns of fields".to_owned())),
    };
    match patterns.as_slice() {
        [] => Ok(None),
        [pattern] => Ok(Some(pattern.clone())),
        _ => Err(SqlError::Request("highlight takes one pattern of fields".to_owned())),
    }
}

impl PipelineRequest {
    /// Parses a body.
    fn parse(body: Option<&Value>) -> Result<Self, SqlError> {
        let refused = |text: &str| SqlError::Request(text.to_owned());
        let Some(Value::Object(members)) = body else {
            return Err(refused("the request needs a body that is an object"));
        };
        let mut query = None;
        let parts = AnswerParts::default();
        let mut request =
            Self { text: String::new(), fetch_size: None, filter: None, highlight: None, parts };
        for (name, value) in members {
            match (name.as_str(), value) {
                ("query", Value::String(text)) => query = Some(text.clone()),
                ("fetch_size", Value::Number(size)) => {
                    let size = size.as_u64().and_then(|size| usize::try_from(size).ok());
                    request.fetch_size =
                        Some(size.ok_or_else(|| refused("fetch_size is no number of rows"))?);
                }
                ("filter", Value::Object(_)) => request.filter = Some(value.clone()),
                ("cursor", _) => {
                    return Err(refused("a pipeline has no cursor; head says how many rows it answers"));
                }
                ("filter", Value::Null) => {}
                ("profile", Value::Bool(is_profiled)) => request.parts.is_profiled = *is_profiled,
                ("analyze", Value::Bool(is_analyzed)) => request.parts.is_analyzed = *is_analyzed,
                ("highlight", value) => request.highlight = highlight(value)?,
                ("parameters", _) => {
                    return Err(refused("a pipeline has no parameters; write their values into the query"));
                }
                (name, value) => {
                    return Err(SqlError::Request(format!(
                        "the member [{name}] of the request cannot be [{value}]"
                    )));
                }
            }
        }
        request.text = query.ok_or_else(|| refused("the member [query] of the request is missing"))?;
        Ok(request)
    }
}

/// A pipeline that is ready to run.
struct PreparedPipeline {
    request: SqlRequest,
    statement: Arc<PipelineStatement>,
    bounds: Bounds,
    parts: AnswerParts,
}

impl SearchService {
    /// Answers a pipeline. Errors of pipelines have a form of their own, so they are answers too.
    pub fn ppl<'a>(
        &'a self,
        session: &'a Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let began = Instant::now();
            let running = self.run_ppl(session, params, body.as_ref());
            let answered = running.instrument(tracing::debug_span!("pipeline")).await;
            self.timings.statement.record(began.elapsed());
            self.finished(session, answered, body.as_ref())
        })
    }

    /// Explains a pipeline; see [`SearchService::ppl`].
    pub fn explain_ppl<'a>(
        &'a self,
        session: &'a Session,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let explained = self.run_explain_ppl(session, params, body.as_ref()).await;
            self.finished(session, explained, body.as_ref())
        })
    }

    /// Returns the numbers of pipelines since the start.
    pub fn ppl_stats(&self) -> Outcome {
        let counters = &self.pipelines;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Outcome::json(
            200,
            json!({
                "ppl_request_total": count(&counters.requests),
                "ppl_request_count": count(&counters.requests),
                "ppl_failed_request_count_syserr": count(&counters.failed),
                "ppl_failed_request_count_cuserr": count(&counters.refused),
            }),
        )
    }

    /// Makes the answer of a pipeline, and accounts for it.
    fn finished(
        &self,
        session: &Session,
        answered: Result<Outcome, SqlError>,
        body: Option<&Value>,
    ) -> Outcome {
        let outcome = answered.unwrap_or_else(|error| {
            note(session, &error);
            let text = body.and_then(|body| body.get("query")).and_then(Value::as_str).unwrap_or_default();
            Outcome::json(error.status(), error_body(&error, text))
        });
        self.pipelines.add(outcome.status);
        outcome
    }

    async fn run_ppl(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<&Value>,
    ) -> Result<Outcome, SqlError> {
        let format = params.iter().rev().find(|(name, _)| name == "format").map(|(_, value)| value.clone());
        let format = format.unwrap_or_default().to_ascii_lowercase();
        let pretty = is_pretty(&params);
        let mut params = Params::new("/_plugins/_ppl".to_owned(), params);
        let sanitize = params.boolean("sanitize")?.unwrap_or(true);
        params.finish()?;
        let PreparedPipeline { mut request, statement, mut bounds, parts } = self.pipeline(body)?;
        request.lines.pretty = pretty;
        if format == "viz" {
            self.limit_rows(&mut bounds);
        }
        if statement.explain().is_some() {
            return self.explained(session, request, bounds).await;
        }
        let shown = if format == "viz" { Format::Jdbc } else { Format::new(&format, sanitize)? };
        let timewrap = statement.timewrap(self.now_ms())?;
        if timewrap.is_some() {
            self.limit_rows(&mut bounds);
        }
        if !matches!(shown, Format::Jdbc) && (timewrap.is_some() || !parts.is_empty()) {
            return Err(SqlError::Unsupported(
                "timewrap, profile and analyze are only supported in the formats jdbc and viz".to_owned(),
            ));
        }
        let runner = self.runner()?;
        if let Format::Lines(lines) = shown {
            let (first, rest) = runner.lines(session, request, bounds, lines).await?;
            let body = match rest {
                None => OutcomeBody::Text(first),
                Some(rest) => OutcomeBody::TextParts(TextParts::new(first, rest)),
            };
            return Ok(Outcome { status: 200, body });
        }
        let began = Instant::now();
        let Page { writer, total, .. } = runner.page(session, request, bounds, PageFormat::Jdbc, 0).await?;
        let (executed, formatting) = (began.elapsed(), Instant::now());
        let text = runner.finish_page(writer, total, None).await?;
        let formatted = formatting.elapsed();
        let is_visualized = format == "viz";
        if !is_visualized && timewrap.is_none() && parts.is_empty() {
            return Ok(Outcome::raw(text));
        }
        let table = runner
            .compute(move || {
                let table: Value = serde_json::from_slice(&text)
                    .map_err(|error| millrace_work::error::Error::Execution(error.to_string()))?;
                let table = match &timewrap {
                    Some(timewrap) => timewrap.table(&table)?,
                    None => table,
                };
                Ok::<_, SqlError>(if is_visualized { visualized(table) } else { table })
            })
            .await?;
        let mut table = table?;
        if parts.is_profiled {
            let millis = |time: std::time::Duration| json!({"time_ms": time.as_secs_f64() * 1e3});
            let rows = table["size"].clone();
            table["profile"] = json!({
                "summary": {"total_time_ms": (executed + formatted).as_secs_f64() * 1e3},
                "phases": {"execute": millis(executed), "format": millis(formatted)},
                "plan": {"node": "Pipeline", "time_ms": executed.as_secs_f64() * 1e3, "rows": rows},
            });
        }
        if parts.is_analyzed {
            let PreparedPipeline { request, bounds, .. } = self.pipeline(body)?;
            let StatementPlans { logical, physical, .. } =
                runner.explain_plans(session, request, bounds).await?;
            let nodes = logical.lines().map(|line| {
                let (kind, details) = line.trim().split_once(':').unwrap_or((line.trim(), ""));
                json!({"node_type": kind, "description": details.trim()})
            });
            table["operator_tree"] = nodes.collect();
            table["query"] = json!(statement.text());
            (table["logicalPlan"], table["physicalPlan"]) = (json!(logical), json!(physical));
        }
        Ok(Outcome::json(200, table))
    }

    async fn run_explain_ppl(
        &self,
        session: &Session,
        params: Vec<(String, String)>,
        body: Option<&Value>,
    ) -> Result<Outcome, SqlError> {
        let known = ["format", "mode", "sanitize"];
        let params = params.into_iter().filter(|(name, _)| !known.contains(&name.as_str())).collect();
        Params::new("/_plugins/_ppl/_explain".to_owned(), params).finish()?;
        // The plan of a statement has no times; parts of answers change none.
        let PreparedPipeline { request, bounds, .. } = self.pipeline(body)?;
        self.explained(session, request, bounds).await
    }

    async fn explained(
        &self,
        session: &Session,
        request: SqlRequest,
        bounds: Bounds,
    ) -> Result<Outcome, SqlError> {
        let StatementPlans { search, logical, physical } =
            self.runner()?.explain_plans(session, request, bounds).await?;
        let mut explained = json!({"calcite": {"logical": logical, "physical": physical}});
        if let Some(search) = search {
            explained["request"] = search;
        }
        Ok(Outcome::json(200, explained))
    }

    /// Makes a request of a pipeline for a client that reads Arrow.
    pub(super) fn pipeline_request(&self, text: &str) -> Result<SqlRequest, SqlError> {
        self.ppl_enabled()?;
        let statement = PipelineStatement::parse(text.to_owned(), self.pipeline_settings())?;
        if statement.explain().is_some() || statement.timewrap(self.now_ms())?.is_some() {
            return Err(SqlError::Unsupported(
                "explain and timewrap are only supported over HTTP, where columns may depend on the rows"
                    .to_owned(),
            ));
        }
        Ok(SqlRequest {
            query: text.to_owned(),
            statement: Some(Arc::new(statement)),
            ..SqlRequest::default()
        })
    }

    /// Refuses pipelines where a setting does.
    fn ppl_enabled(&self) -> Result<(), SqlError> {
        match self.ppl_flag("plugins.ppl.enabled", true) {
            true => Ok(()),
            false => Err(SqlError::Disabled(
                "Either plugins.ppl.enabled or rest.action.multi.allow_explicit_index setting is false"
                    .to_owned(),
            )),
        }
    }

    /// Parses a pipeline, with the bounds of its answer.
    fn pipeline(&self, body: Option<&Value>) -> Result<PreparedPipeline, SqlError> {
        self.ppl_enabled()?;
        let PipelineRequest { text, fetch_size, filter, highlight, parts } = PipelineRequest::parse(body)?;
        let statement = PipelineStatement::parse(text.clone(), self.pipeline_settings())?;
        let statement = Arc::new(statement.with_highlight(highlight));
        let rows = match fetch_size {
            Some(0) => None,
            Some(size) => Some(size.min(self.pipeline_rows())),
            None => Some(self.pipeline_rows()),
        };
        let own = Arc::clone(&statement);
        let request = SqlRequest { query: text, filter, statement: Some(own), ..SqlRequest::default() };
        let mut bounds =
            Bounds { rows, timeout_ms: self.pipeline_timeout(), deletes: false, ..self.all_rows() };
        if !parts.is_empty() {
            self.limit_rows(&mut bounds);
        }
        Ok(PreparedPipeline { request, statement, bounds, parts })
    }

    /// Bounds the rows of an answer that is a value in memory as a whole.
    fn limit_rows(&self, bounds: &mut Bounds) {
        let most = self.pipeline_rows().min(DEFAULT_ROWS);
        bounds.rows = Some(bounds.rows.map_or(most, |rows| rows.min(most)));
    }

    /// Returns how many rows a pipeline answers: a setting that is set means both languages.
    fn pipeline_rows(&self) -> usize {
        const SETTING: &str = "plugins.query.size_limit";
        let metadata = self.engine.metadata();
        match metadata.persistent.contains_key(SETTING) || metadata.transient.contains_key(SETTING) {
            true => self.number(SETTING).unwrap_or(DEFAULT_ROWS),
            false => DEFAULT_ROWS,
        }
    }

    fn pipeline_timeout(&self) -> Option<u64> {
        const SETTING: &str = "plugins.ppl.query.timeout";
        let limited = |timeout_ms: &u64| *timeout_ms != u64::MAX;
        let own = match self.setting(SETTING) {
            None => Some(TIMEOUT_MS),
            Some(text) => json::parse_time(SETTING, &text).ok().flatten(),
        };
        [self.default_timeout(), own].into_iter().flatten().filter(limited).min()
    }

    fn pipeline_settings(&self) -> PipelineSettings {
        let rows = |name: &str, default: u64| match self.number(name).map_or(default, |rows| rows as u64) {
            0 => None,
            rows => Some(rows),
        };
        PipelineSettings {
            subsearch_rows: rows("plugins.ppl.subsearch.maxout", 10_000),
            join_rows: rows("plugins.ppl.join.subsearch_maxout", 50_000),
            all_joins: self.ppl_flag("plugins.calcite.all_join_types.allowed", true),
            rex_matches: self.number("plugins.ppl.rex.max_match.limit").unwrap_or(10) as u64,
            values_limit: self.number("plugins.ppl.values.max.limit").unwrap_or(0) as u64,
            legacy_syntax: self.ppl_flag("plugins.ppl.syntax.legacy.preferred", true),
        }
    }

    fn ppl_flag(&self, name: &str, default: bool) -> bool {
        self.setting(name).map_or(default, |text| text == "true")
    }
}

/// Makes an answer for charts of a table: the values of each column.
fn visualized(table: Value) -> Value {
    let empty = Vec::new();
    let schema = table["schema"].as_array().unwrap_or(&empty);
    let rows = table["datarows"].as_array().unwrap_or(&empty);
    let mut data = Map::new();
    for (at, column) in schema.iter().enumerate() {
        let values: Vec<Value> = rows.iter().map(|row| row.get(at).cloned().unwrap_or_default()).collect();
        data.insert(column["name"].as_str().unwrap_or_default().to_owned(), Value::Array(values));
    }
    json!({"data": data, "metadata": {"fields": schema}, "size": rows.len(), "status": 200})
}
