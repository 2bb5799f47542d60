//! Scrolls: page after page of one snapshot.

use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_catalog::access::Action;
use millrace_dsl::json;
use millrace_dsl::query::Query;
use millrace_dsl::sort::SortKey;
use millrace_engine::Session;
use millrace_matching::order::Point;
use millrace_matching::pinned::PinnedSnapshot;
use millrace_matching::table::TableSnapshot;
use millrace_search::response::{Answer, HitList, RenderOptions};
use millrace_search::searcher::{Search, SearchHits, refused_by_all};
use millrace_target::access_checkpoint::check_access;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::search::rendered;
use super::{Outcome, SearchService};
use crate::contexts::{Kind, free};
use crate::request::{SearchRequest, keep_alive};

/// Most scroll ids of one clearing request.
const MAX_CLEARED: usize = 10_000;

/// State that a scroll keeps between pages.
#[derive(Debug)]
pub(super) struct Scroll {
    shards: u32,
    /// Progress of the scroll: the point of the next page, and the count of the first one. Held while a page is made: two
    /// requests for the same scroll get one page after the other.
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    after: Option<Point>,
    total: Option<(u64, bool)>,
    /// Source of the next page; nothing once the last one was made.
    pages: Option<Arc<Pages>>,
}

/// Source of a scroll's pages.
#[derive(Debug)]
struct Pages {
    query: Query,
    post_filter: Option<Query>,
    min_score: Option<f32>,
    sort: Vec<SortKey>,
    size: usize,
    track_scores: bool,
    global_statistics: bool,
    render_options: Arc<RenderOptions>,
    now_ms: i64,
    /// Snapshot that is searched; holds the memory of all of it.
    pinned: PinnedSnapshot,
}

impl SearchService {
    /// Opens a scroll behind its first page, and returns its id.
    pub(super) fn open_scroll(
        &self,
        session: &Session,
        request: &SearchRequest,
        first: FirstPage<'_>,
        keep_alive_ms: u64,
    ) -> Result<String> {
        let FirstPage { snapshot, query, found, render_options, size, now_ms } = first;
        let pages = match ends_at(found, found.rows.addresses.len(), size) {
            true => None,
            false => {
                let filter_bytes = request.body.post_filter.as_ref().map_or(0, Query::bytes);
                let asked = request.body_bytes.saturating_add(query.bytes()).saturating_add(filter_bytes);
                let pins = self.pins()?;
                let pinned = pins.hold_with(snapshot, asked).map_err(|error| {
                    pins.refused();
                    refused_by_all(snapshot, error)
                })?;
                Some(Arc::new(Pages {
                    query: query.clone(),
                    post_filter: request.body.post_filter.clone(),
                    min_score: request.body.min_score,
                    sort: request.body.sort.clone(),
                    size,
                    track_scores: request.body.track_scores,
                    global_statistics: request.global_statistics,
                    render_options: Arc::clone(render_options),
                    now_ms,
                    pinned,
                }))
            }
        };
        let progress = Progress { after: last_point(found)?, total: found.total, pages };
        let scroll = Scroll { shards: snapshot.shards, progress: Mutex::new(progress) };
        self.scrolls
            .open(
                session.principal(),
                scroll,
                self.counted_over(Kind::Scroll, snapshot),
                keep_alive_ms,
                self.most_open(Kind::Scroll),
            )
            .map_err(|error| refused_by_all(snapshot, error))
    }

    /// Answers `_search/scroll`; `expression` is the id of the path, if there is one.
    ///
    /// # Errors
    /// [`Error::ContextNotFound`] when the scroll is closed, expired, or another caller's.
    pub fn scroll<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let mut opened = self.open("", "_search/scroll", params, body)?;
            let totals_as_int = opened.params.boolean("rest_total_hits_as_int")?.unwrap_or(false);
            let in_path = (!expression.is_empty()).then(|| expression.to_owned());
            let mut id = opened.params.take("scroll_id").or(in_path);
            let mut scroll = opened.params.take("scroll");
            opened.params.finish()?;
            match &opened.body {
                None => {}
                Some(Value::String(text)) => id = Some(text.trim().to_owned()),
                Some(Value::Object(fields)) => {
                    for (key, value) in fields {
                        match (key.as_str(), json::text(value)) {
                            ("scroll_id", Some(text)) => id = Some(text),
                            ("scroll", Some(text)) => scroll = Some(text),
                            _ => return Err(unknown_parameter(key, value)),
                        }
                    }
                }
                Some(other) => return Err(malformed(other)),
            }
            let id = id
                .filter(|id| !id.is_empty())
                .ok_or_else(|| Error::Validation("scrollId is missing".to_owned()))?;
            let longest = self.longest_life(Kind::Scroll);
            let keep_alive_ms =
                scroll.as_deref().map(|text| keep_alive("scroll", text, &longest)).transpose()?;
            let context = self.scrolls.get(&id, session.principal(), keep_alive_ms)?;
            let searcher = self.searcher()?;
            let (work, _ends) = searcher.begin();
            let mut progress = context.progress.lock().await;
            if let Some(pages) = &progress.pages {
                check_access(&pages.pinned.snapshot, session, Action::Search)?;
            }
            let mut answer = Answer {
                list: HitList { total: progress.total, ..HitList::default() },
                total_as_int: totals_as_int,
                scroll_id: Some(id),
                ..Answer::new(context.shards)
            };
            let (mut render_options, mut last, mut ends) = (None, None, false);
            if let Some(pages) = progress.pages.clone() {
                let snapshot = Arc::clone(&pages.pinned.snapshot);
                let search = Search {
                    post_filter: pages.post_filter.as_ref(),
                    min_score: pages.min_score,
                    sort: &pages.sort,
                    size: pages.size,
                    after: progress.after.clone(),
                    track_scores: pages.track_scores,
                    global_statistics: pages.global_statistics,
                    ..Search::new(Arc::clone(&snapshot), &pages.query, pages.now_ms, &work)
                };
                let found = searcher.find(search).await?;
                let hits = searcher.hits(
                    &snapshot,
                    &pages.query,
                    &found,
                    &pages.render_options,
                    pages.now_ms,
                    &work,
                );
                answer.list.hits = hits.await?;
                last = last_point(&found)?;
                render_options = Some(Arc::clone(&pages.render_options));
                ends = ends_at(&found, answer.list.hits.len(), pages.size);
                answer.list.max_score = found.max_score;
                answer.failures = found.failures;
            }
            answer.took_ms = self.now_ms() - opened.now_ms;
            let text = match render_options {
                Some(render_options) => rendered(answer, render_options, &searcher.compute, &work).await?,
                None => answer.render(&RenderOptions::nothing(), &work)?,
            };
            // A page that was refused is answered again.
            if last.is_some() {
                progress.after = last;
            }
            if ends {
                free(progress.pages.take());
            }
            Ok(Outcome::raw(text))
        })
    }

    /// Answers the closing of scrolls; `expression` are the ids of the path, if there are any.
    ///
    /// # Errors
    /// An invalid-input error when no id is given.
    pub fn clear_scroll<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let mut opened = self.open("", "_search/scroll", params, body)?;
            let mut ids: Vec<String> =
                expression.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect();
            ids.extend(opened.params.list("scroll_id").unwrap_or_default());
            opened.params.finish()?;
            match &opened.body {
                None => {}
                Some(Value::String(text)) => ids = text.trim().split(',').map(str::to_owned).collect(),
                Some(Value::Object(fields)) => {
                    for (key, value) in fields {
                        let named = (key == "scroll_id").then(|| json::strings(value)).flatten();
                        ids = named.ok_or_else(|| unknown_parameter(key, value))?;
                    }
                }
                Some(other) => return Err(malformed(other)),
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
                [all] if all == "_all" => self.scrolls.close_all(session.principal()).await.len(),
                _ => {
                    let closed = self.scrolls.close_each(ids, session.principal()).await;
                    closed.iter().filter(|(_, was_open)| *was_open).count()
                }
            };
            let status = if freed == 0 { 404 } else { 200 };
            Ok(Outcome::json(status, json!({"succeeded": true, "num_freed": freed})))
        })
    }
}

/// The search that a scroll begins with.
#[derive(Debug)]
pub(super) struct FirstPage<'a> {
    pub snapshot: &'a Arc<TableSnapshot>,
    pub query: &'a Query,
    pub found: &'a SearchHits,
    pub render_options: &'a Arc<RenderOptions>,
    pub size: usize,
    pub now_ms: i64,
}

/// Returns whether a page is the last one: it is short, and not because shards failed or ended early. Those are asked again.
fn ends_at(found: &SearchHits, hits: usize, size: usize) -> bool {
    let is_cut = !found.failures.is_empty() || found.timed_out || found.terminated_early == Some(true);
    hits < size && !is_cut
}

fn unknown_parameter(key: &str, value: &Value) -> Error {
    Error::IllegalArgument(format!(
        "Unknown parameter [{key}] in request body or parameter is of the wrong type[{}] ",
        json::token(value)
    ))
}

fn malformed(body: &Value) -> Error {
    Error::IllegalArgument(format!(
        "Malformed content, must start with an object, found [{}]",
        json::token(body)
    ))
}

fn last_point(found: &SearchHits) -> Result<Option<Point>> {
    let rows = &found.rows;
    let Some(at) = rows.addresses.len().checked_sub(1) else { return Ok(None) };
    found.order.point(&rows.keys, at, rows.scores[at], rows.addresses[at]).map(Some)
}
