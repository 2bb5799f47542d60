//! The way in: searches, counts, scrolls and deletions by query for one caller each.

use std::sync::Arc;

use bytes::Bytes;
use millrace_storage::{Engine, Principal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::collapse::Expansion;
use crate::compute::Compute;
use crate::delete_by_query;
use crate::dsl::body::SearchBody;
use crate::dsl::json;
use crate::dsl::query::Query;
use crate::dsl::sort::SortKey;
use crate::error::{Error, Result};
use crate::lookup;
use crate::order::{Order, Point};
use crate::params::Params;
use crate::plan::Planner;
use crate::request::{LongestScroll, SearchRequest, keep_alive};
use crate::response::{Answer, HitList, Shown, shards_json};
use crate::scroll::Scrolls;
use crate::search::{Found, Search, Searcher, shown, window};
use crate::table::TableSnapshot;
use crate::target;

/// Most scroll ids of one clearing request.
const MAX_CLEARED: usize = 10_000;

/// The section of the configuration that queries have.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes that all running queries may hold together; a query beyond is refused.
    pub memory_bytes: usize,
    /// Compute threads that one query may use at a time; 0 means all.
    pub threads: usize,
    /// Scrolls that may be open at the same time.
    pub max_open_scrolls: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { memory_bytes: 512 << 20, threads: 0, max_open_scrolls: 500 }
    }
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum OutcomeBody {
    /// A JSON value.
    Json(Value),
    /// JSON text.
    Raw(Bytes),
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: OutcomeBody,
}

impl Outcome {
    pub(crate) fn json(status: u16, body: Value) -> Self {
        Self { status, body: OutcomeBody::Json(body) }
    }
}

/// Answers searches over an engine.
#[derive(Debug)]
pub struct SearchService {
    pub(crate) engine: Arc<Engine>,
    pub(crate) searcher: Result<Searcher, String>,
    scrolls: Scrolls<Scroll>,
    max_scrolls: usize,
}

/// What a scroll keeps between pages.
#[derive(Debug)]
struct Scroll {
    snapshot: Arc<TableSnapshot>,
    query: Query,
    sort: Vec<SortKey>,
    size: usize,
    track_scores: bool,
    global_statistics: bool,
    shown: Shown,
    now_ms: i64,
    /// Where the next page goes on and what the first one counted. Held while a page is made: two
    /// requests for the same scroll get one page after the other.
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    after: Option<Point>,
    total: Option<(u64, bool)>,
    exhausted: bool,
}

impl SearchService {
    /// Makes the service over an engine.
    pub fn new(engine: Arc<Engine>, config: Config) -> Self {
        let compute = Compute::new(engine.compute().clone());
        let partitions = match config.threads {
            0 => compute.threads(),
            threads => threads.min(compute.threads()),
        };
        let searcher = Planner::new(partitions, config.memory_bytes)
            .map(|planner| Searcher { planner, compute })
            .map_err(|error| error.to_string());
        let clock = Arc::clone(engine.clock());
        Self { engine, searcher, scrolls: Scrolls::new(clock), max_scrolls: config.max_open_scrolls }
    }

    pub(crate) fn searcher(&self) -> Result<&Searcher> {
        self.searcher.as_ref().map_err(|error| Error::Execution(error.clone()))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.engine.clock().now_ms()
    }

    fn longest_scroll(&self) -> LongestScroll {
        LongestScroll::of(self.engine.metadata().cluster_setting("search.max_keep_alive").as_ref())
    }

    /// Most scrolls open at once: what the configuration allows, or less by `search.max_open_scroll_context`.
    fn most_scrolls(&self) -> usize {
        let setting = self.engine.metadata().cluster_setting("search.max_open_scroll_context");
        let wanted = setting.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok());
        wanted.map_or(self.max_scrolls, |wanted: usize| wanted.min(self.max_scrolls))
    }

    /// Answers `_search`.
    ///
    /// # Errors
    /// See [`Error`]; an error of single shards is part of the answer instead.
    pub async fn search(
        &self,
        principal: &Principal,
        expression: &str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome> {
        let started_ms = self.now_ms();
        let mut request =
            SearchRequest::parse(path(expression, "_search"), params, body.as_ref(), &self.longest_scroll())?;
        if let Some(query) = &mut request.body.query {
            lookup::read(&self.engine, principal, query).await?;
        }
        let searcher = self.searcher()?;
        let mut snapshot =
            target::pin(&self.engine, principal, expression, &request.options, request.routing.as_deref())
                .await?;
        let everything = Query::match_all();
        let query = request.body.query.as_ref().unwrap_or(&everything);
        if let Some(slice) = request.body.slice {
            snapshot = searcher.cut(snapshot, slice, query, started_ms).await?;
        }
        let snapshot = Arc::new(snapshot);
        let (from, size) = window(&request.body, &snapshot, request.scroll_ms.is_some())?;
        let shown = shown(&request.body, &snapshot)?;
        let after = parse_after(&request.body, &snapshot, started_ms)?;
        let grouping = request.grouping(&snapshot)?;
        let search = Search {
            snapshot: Arc::clone(&snapshot),
            query,
            sort: &request.body.sort,
            from,
            size,
            after,
            track_scores: request.body.track_scores,
            track: request.tracked(),
            global_statistics: request.global_statistics,
            terminate_after: request.body.terminate_after,
            timeout_ms: request.body.timeout_ms,
            now_ms: started_ms,
            collapse: grouping.as_ref(),
        };
        let found = searcher.find(search).await?;
        if !request.allow_partial {
            if found.timed_out {
                return Err(Error::TimedOut);
            }
            if !found.failures.is_empty() {
                return Err(Error::SearchPhase { failures: found.failures });
            }
        }
        let mut hits = searcher.hits(&snapshot, query, &found, &shown, started_ms).await?;
        if let Some(collapse) = &request.body.collapse {
            let expansion = Expansion {
                snapshot: &snapshot,
                query: request.body.query.as_ref(),
                global_statistics: request.global_statistics,
                now_ms: started_ms,
            };
            expansion.run(searcher, collapse, &found.rows.groups, &mut hits).await?;
        }
        let scroll_id = match request.scroll_ms {
            None => None,
            Some(keep_alive_ms) => {
                let progress = Progress {
                    after: last_point(&found)?,
                    total: found.total,
                    exhausted: found.rows.addresses.len() < size,
                };
                let scroll = Scroll {
                    snapshot: Arc::clone(&snapshot),
                    query: query.clone(),
                    sort: request.body.sort.clone(),
                    size,
                    track_scores: request.body.track_scores,
                    global_statistics: request.global_statistics,
                    shown: shown.clone(),
                    now_ms: started_ms,
                    progress: Mutex::new(progress),
                };
                Some(self.scrolls.open(principal, scroll, keep_alive_ms, self.most_scrolls())?)
            }
        };
        let answer = Answer {
            took_ms: self.now_ms() - started_ms,
            timed_out: found.timed_out,
            terminated_early: found.terminated_early,
            shards: snapshot.shards,
            failures: found.failures,
            total_as_int: request.totals_as_int,
            list: HitList { total: found.total, max_score: found.max_score, hits },
            scroll_id,
        };
        Ok(Outcome { status: 200, body: OutcomeBody::Raw(answer.render(&shown)?) })
    }

    /// Answers `_count`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn count(
        &self,
        principal: &Principal,
        expression: &str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome> {
        let now_ms = self.now_ms();
        let mut params = Params::new(path(expression, "_count"), params);
        let from_param = params.source()?;
        let query = match body.as_ref().or(from_param.as_ref()) {
            Some(body) => SearchBody::parse_query_only(body)?,
            None => None,
        };
        let mut query = query.unwrap_or_else(Query::match_all);
        lookup::read(&self.engine, principal, &mut query).await?;
        let options = params.indices_options()?;
        let routing = params.list("routing");
        params.take("preference");
        let terminate_after = match params.integer("terminate_after")? {
            None => 0,
            Some(number) => crate::dsl::body::terminate_after(number)?,
        };
        if params.take("q").is_some_and(|q| !matches!(q.as_str(), "*" | "*:*")) {
            return Err(Error::Parsing("unknown query [query_string]".to_owned()));
        }
        params.finish()?;
        let snapshot = target::pin(&self.engine, principal, expression, &options, routing.as_deref()).await?;
        let snapshot = Arc::new(snapshot);
        let search = Search {
            snapshot: Arc::clone(&snapshot),
            query: &query,
            sort: &[],
            from: 0,
            size: 0,
            after: None,
            track_scores: false,
            track: Some(u64::MAX),
            global_statistics: false,
            terminate_after,
            timeout_ms: None,
            now_ms,
            collapse: None,
        };
        let found = self.searcher()?.find(search).await?;
        let mut body = serde_json::Map::new();
        body.insert("count".into(), json!(found.total.map_or(0, |(total, _)| total)));
        if let Some(early) = found.terminated_early {
            body.insert("terminated_early".into(), json!(early));
        }
        body.insert("_shards".into(), shards_json(snapshot.shards, &found.failures));
        Ok(Outcome::json(200, Value::Object(body)))
    }

    /// Answers `_search/scroll`; `expression` is the id of the path, if there is one.
    ///
    /// # Errors
    /// [`Error::ScrollNotFound`] when the scroll is closed, expired, or another caller's.
    pub async fn scroll(
        &self,
        principal: &Principal,
        expression: &str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome> {
        let started_ms = self.now_ms();
        let mut params = Params::new("/_search/scroll".to_owned(), params);
        let totals_as_int = params.boolean("rest_total_hits_as_int")?.unwrap_or(false);
        let mut id = params.take("scroll_id").or((!expression.is_empty()).then(|| expression.to_owned()));
        let mut scroll = params.take("scroll");
        params.finish()?;
        match &body {
            None => {}
            Some(Value::String(text)) => id = Some(text.trim().to_owned()),
            Some(Value::Object(fields)) => {
                for (key, value) in fields {
                    match key.as_str() {
                        "scroll_id" => id = json::text(value),
                        "scroll" => scroll = json::text(value),
                        _ => {
                            return Err(Error::IllegalArgument(format!(
                                "Unknown parameter [{key}] in request body or parameter is of the wrong type[{}] ",
                                json::token(value)
                            )));
                        }
                    }
                }
            }
            Some(other) => {
                return Err(Error::IllegalArgument(format!(
                    "Malformed content, must start with an object, found [{}]",
                    json::token(other)
                )));
            }
        }
        let id = id
            .filter(|id| !id.is_empty())
            .ok_or_else(|| Error::Validation("scrollId is missing".to_owned()))?;
        let keep_alive_ms =
            scroll.as_deref().map(|text| keep_alive(text, &self.longest_scroll())).transpose()?;
        let context = self.scrolls.get(&id, principal, keep_alive_ms)?;
        let mut progress = context.progress.lock().await;
        let mut answer = Answer {
            took_ms: 0,
            timed_out: false,
            terminated_early: None,
            shards: context.snapshot.shards,
            failures: Vec::new(),
            total_as_int: totals_as_int,
            list: HitList { total: progress.total, max_score: None, hits: Vec::new() },
            scroll_id: Some(id),
        };
        if !progress.exhausted {
            let searcher = self.searcher()?;
            let search = Search {
                snapshot: Arc::clone(&context.snapshot),
                query: &context.query,
                sort: &context.sort,
                from: 0,
                size: context.size,
                after: progress.after.clone(),
                track_scores: context.track_scores,
                track: None,
                global_statistics: context.global_statistics,
                terminate_after: 0,
                timeout_ms: None,
                now_ms: context.now_ms,
                collapse: None,
            };
            let found = searcher.find(search).await?;
            answer.list.hits = searcher
                .hits(&context.snapshot, &context.query, &found, &context.shown, context.now_ms)
                .await?;
            progress.exhausted = answer.list.hits.len() < context.size;
            if let Some(last) = last_point(&found)? {
                progress.after = Some(last);
            }
            answer.list.max_score = found.max_score;
            answer.failures = found.failures;
        }
        answer.took_ms = self.now_ms() - started_ms;
        Ok(Outcome { status: 200, body: OutcomeBody::Raw(answer.render(&context.shown)?) })
    }

    /// Answers the closing of scrolls; `expression` are the ids of the path, if there are any.
    ///
    /// # Errors
    /// An invalid-input error when no id is given.
    pub async fn clear_scroll(
        &self,
        principal: &Principal,
        expression: &str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome> {
        let mut params = Params::new("/_search/scroll".to_owned(), params);
        let mut ids: Vec<String> =
            expression.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect();
        ids.extend(params.list("scroll_id").unwrap_or_default());
        params.finish()?;
        match &body {
            None => {}
            Some(Value::String(text)) => ids = text.trim().split(',').map(str::to_owned).collect(),
            Some(Value::Object(fields)) => {
                for (key, value) in fields {
                    let named = (key == "scroll_id").then(|| json::strings(value)).flatten();
                    ids = named.ok_or_else(|| {
                        Error::IllegalArgument(format!(
                            "Unknown parameter [{key}] in request body or parameter is of the wrong type[{}] ",
                            json::token(value)
                        ))
                    })?;
                }
            }
            Some(other) => {
                return Err(Error::IllegalArgument(format!(
                    "Malformed content, must start with an object, found [{}]",
                    json::token(other)
                )));
            }
        }
        if ids.is_empty() {
            return Err(Error::Validation("no scroll ids specified".to_owned()));
        }
        if ids.len() > MAX_CLEARED {
            return Err(Error::IllegalArgument(format!(
                "too many scroll ids: {} given, at most {MAX_CLEARED} allowed",
                ids.len()
            )));
        }
        let freed = match ids.as_slice() {
            [all] if all == "_all" => self.scrolls.close_all(principal),
            ids => ids.iter().filter(|id| self.scrolls.close(id, principal)).count(),
        };
        let status = if freed == 0 { 404 } else { 200 };
        Ok(Outcome::json(status, json!({"succeeded": true, "num_freed": freed})))
    }

    /// Answers `_delete_by_query`.
    ///
    /// # Errors
    /// See [`Error`]; conflicts and failures of single documents are part of the answer instead.
    pub async fn delete_by_query(
        &self,
        principal: &Principal,
        expression: &str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome> {
        delete_by_query::run(self, principal, expression, params, body).await
    }
}

/// The path of a request, as error texts name it.
pub(crate) fn path(expression: &str, action: &str) -> String {
    if expression.is_empty() { format!("/{action}") } else { format!("/{expression}/{action}") }
}

fn parse_after(body: &SearchBody, snapshot: &TableSnapshot, now_ms: i64) -> Result<Option<Point>> {
    let Some(values) = &body.search_after else { return Ok(None) };
    let (order, _) = Order::new(&body.sort, snapshot, now_ms)?;
    order.parse_after(values, snapshot, &body.sort, now_ms).map(Some)
}

fn last_point(found: &Found) -> Result<Option<Point>> {
    let rows = &found.rows;
    let Some(at) = rows.addresses.len().checked_sub(1) else { return Ok(None) };
    found.order.point(&rows.keys, at, rows.scores[at], rows.addresses[at]).map(Some)
}
