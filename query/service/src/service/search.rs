//! `_search`: from the request to the rendered answer.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use millrace_aggregate as aggregate;
use millrace_aggregate::Aggregation;
use millrace_dsl::aggs::Aggregations;
use millrace_dsl::body::SearchBody;
use millrace_dsl::json;
use millrace_dsl::query::{MatchNoneQuery, Query};
use millrace_matching::lookup;
use millrace_matching::order::{Order, Point};
use millrace_matching::table::{ScanOptions, TableSnapshot};
use millrace_matching::target;
use millrace_search::collapse::Expansion;
use millrace_search::explain::Explainer;
use millrace_search::profile;
use millrace_search::response::{Answer, Hit, HitList, Shown};
use millrace_search::searcher::{Found, Search, fetching_limit, refused_by_all, shown, window};
use millrace_search::suggest;
use millrace_storage::Principal;
use millrace_storage::metadata::IndicesOptions;
use millrace_work::Work;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

use super::scroll::FirstPage;
use super::{Outcome, SearchService};
use crate::contexts::Kind;
use crate::request::{Lives, SearchRequest};
use crate::skip::skipped;

/// Hits that are explained at a time where time is limited.
const EXPLAINED_HITS: usize = 100;
/// Most buckets of an answer where the cluster's settings do not say.
const MAX_BUCKETS: u64 = 65_535;

impl SearchService {
    /// Answers `_search`.
    ///
    /// # Errors
    /// See [`Error`]; an error of single shards is part of the answer instead.
    pub fn search<'a>(
        &'a self,
        principal: &'a Principal,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let opened = self.open(principal, expression, "_search", params, body)?;
            let request =
                SearchRequest::parse(opened.params, opened.body.as_ref(), expression, &self.lives())?;
            self.answer(principal, expression, request, opened.now_ms).await.map(Outcome::raw)
        })
    }

    /// Returns how long the contexts of searches may be kept alive.
    pub(super) fn lives(&self) -> Lives {
        Lives { scroll: self.longest_life(Kind::Scroll), point_in_time: self.longest_life(Kind::PointInTime) }
    }

    /// Runs a search and renders its answer.
    pub(super) async fn answer(
        &self,
        principal: &Principal,
        expression: &str,
        mut request: SearchRequest,
        started_ms: i64,
    ) -> Result<Bytes> {
        let searcher = self.searcher()?;
        // Who does not wait for the answer any more drops this, and with it all that is done for it.
        let (work, _ends) = searcher.begin();
        // Held from the start: a scroll that may not be kept is not searched for.
        let (mut _kept, mut _in_use) = (None, None);
        let mut snapshot = match &request.body.point_in_time {
            None if request.scroll_ms.is_some() => {
                let kept = self.pin_to_keep(principal, expression, &request.scope).await?;
                Arc::clone(&_kept.insert(kept).snapshot)
            }
            None => self.pin(principal, expression, &request.scope).await?,
            Some(pit) => {
                let opened = self.points_in_time.get(&pit.id, principal, request.point_in_time_ms)?;
                Arc::clone(&_in_use.insert(opened).snapshot)
            }
        };
        for query in request.body.queries_mut() {
            lookup::read(&self.engine, principal, &snapshot, query, &searcher.compute, &work).await?;
        }
        let request = &request;
        let body = &request.body;
        let unasked = match body.only_suggests() {
            true => MatchNoneQuery::default().into(),
            false => Query::match_all(),
        };
        let query = body.query.as_ref().unwrap_or(&unasked);
        if !body.indices_boost.is_empty() {
            snapshot = Arc::new(self.boosted(&snapshot, &body.indices_boost, &request.scope.options)?);
        }
        if let Some(slice) = body.slice {
            let shared = body.point_in_time.is_some();
            let cut = searcher.cut(&snapshot, slice, shared, query, started_ms, &work).await?;
            snapshot = Arc::new(cut);
        }
        let (from, size) = window(body, &snapshot, request.scroll_ms.is_some())?;
        let shown = Arc::new(shown(body, &snapshot)?);
        let grouping = request.grouping(&snapshot)?;
        // A scroll goes on behind the last hit of a page, which has to be a whole one: as in OpenSearch, time does not cut it.
        let timeout_ms = body.timeout_ms.or_else(|| self.default_timeout());
        let timeout_ms = timeout_ms.filter(|_| request.scroll_ms.is_none());
        let cancelled_first =
            request.cancel_after_ms.filter(|ms| timeout_ms.is_none_or(|timeout| *ms < timeout));
        let aggregation = match body.aggregations.as_ref().filter(|aggregations| !aggregations.is_empty()) {
            None => None,
            Some(aggregations) => {
                Some(Aggregation::new(aggregations, &mut snapshot, started_ms, body.profile)?)
            }
        };
        let search = Search {
            post_filter: body.post_filter.as_ref(),
            min_score: body.min_score,
            sort: &body.sort,
            from,
            size,
            after: parse_after(body, &snapshot, started_ms)?,
            track_scores: body.track_scores,
            track: request.tracked(),
            global_statistics: request.global_statistics,
            terminate_after: body.terminate_after,
            timeout_ms: cancelled_first.or(timeout_ms),
            collapse: grouping.as_ref(),
            profile: body.profile,
            ..Search::new(Arc::clone(&snapshot), query, started_ms, &work)
        };
        let options = ScanOptions {
            now_ms: started_ms,
            global_statistics: request.global_statistics,
            terminate_after: body.terminate_after,
            min_score: body.min_score,
            ..ScanOptions::default()
        };
        let timeout_ms = search.timeout_ms;
        let mut found = match body.rescore.as_slice() {
            [] => searcher.find(search).await?,
            rescores => searcher.find_rescored(search, rescores).await?,
        };
        let mut aggregations = None;
        // Held until the answer is text.
        let mut _rendered = None;
        let (shards, mut measured) = (snapshot.shards, Vec::new());
        if let Some(aggregation) = aggregation {
            let (snapshot, max_buckets) = (Arc::clone(&snapshot), self.max_buckets());
            let work = work.clone();
            let wanted = aggregate::Request { snapshot, query, options, timeout_ms, max_buckets, work };
            let done = aggregation.run(searcher, wanted).await?;
            found.timed_out |= done.timed_out;
            measured = aggregation.profile(shards);
            found.failures.extend(aggregation.failures);
            let typed_keys = request.typed_keys;
            let render = move || Ok((Value::Object(done.results.render(typed_keys)), done.work));
            let (rendered, held) = searcher.compute.run(render).await?;
            (aggregations, _rendered) = (Some(rendered), Some(held));
        }
        let mut suggestions = None;
        if let Some(asked) = &body.suggestions {
            let phase = work.phase();
            let run = suggest::run(searcher, &snapshot, asked, &shown, request.typed_keys, &phase);
            let suggested = phase.within(timeout_ms, run).await?;
            found.timed_out |= phase.timed_out();
            found.failures.extend(suggested.failures);
            suggestions = Some(suggested.answer);
        }
        let queried_ms = self.now_ms();
        // Fails where time was over and what was found by then is not wanted.
        let in_time = |timed_out: bool| match (timed_out, cancelled_first, request.allow_partial) {
            (false, ..) | (true, None, true) => Ok(()),
            (true, None, false) => Err(Error::TimedOut),
            (true, Some(limit_ms), _) => Err(Error::Exception {
                kind: "task_cancelled_exception",
                status: 500,
                reason: format!("Cancellation timeout of {limit_ms}ms is expired"),
            }),
        };
        in_time(found.timed_out)?;
        if !request.allow_partial && !found.failures.is_empty() {
            return Err(Error::SearchPhase { failures: found.failures });
        }
        let phase = work.phase();
        let mut fetched_ms = queried_ms;
        let fetch = async {
            let mut hits = searcher.hits(&snapshot, query, &found, &shown, started_ms, &phase).await?;
            fetched_ms = self.now_ms();
            if let Some(collapse) = &body.collapse {
                let expansion = Expansion {
                    snapshot: &snapshot,
                    query: body.query.as_ref(),
                    global_statistics: request.global_statistics,
                    now_ms: started_ms,
                    work: &phase,
                };
                let expanded = expansion.run(searcher, collapse, &found.rows.groups, &mut hits).await?;
                hits.truncate(expanded);
            }
            if body.explain {
                let explained =
                    self.explain_hits(&snapshot, query, request, &found, &mut hits, started_ms, &phase);
                let explained = explained.await?;
                hits.truncate(explained);
            }
            Ok::<_, Error>(hits)
        };
        let hits = phase.within(fetching_limit(timeout_ms), fetch).await?;
        found.timed_out |= phase.timed_out();
        in_time(found.timed_out)?;
        let profile = match &found.profile {
            None => None,
            Some(found_in) => {
                let explainer = Explainer::new(query, &snapshot, false, started_ms)?;
                Some(profile::render(found_in, &snapshot, size > 0, measured, &|index| {
                    explainer.describe(index)
                }))
            }
        };
        let scroll_id = match request.scroll_ms {
            None => None,
            Some(keep_alive_ms) => {
                let first = FirstPage {
                    snapshot: &snapshot,
                    query,
                    found: &found,
                    shown: &shown,
                    size,
                    now_ms: started_ms,
                };
                Some(self.open_scroll(principal, request, first, keep_alive_ms)?)
            }
        };
        let visits_all = body.aggregations.as_ref().is_some_and(Aggregations::visit_all);
        let skipped = match u64::from(snapshot.shards) > request.pre_filtered && !visits_all {
            true => skipped(&snapshot, query, started_ms, &searcher.compute, &work).await?,
            false => 0,
        };
        let ended_ms = self.now_ms();
        let phase_took = request.phase_took.then(|| {
            json!({
                "dfs_pre_query": 0, "query": (queried_ms - started_ms).max(0),
                "fetch": (fetched_ms - queried_ms).max(0), "dfs_query": 0,
                "expand": (ended_ms - fetched_ms).max(0), "can_match": 0,
            })
        });
        let answer = Answer {
            took_ms: ended_ms - started_ms,
            phase_took,
            timed_out: found.timed_out,
            terminated_early: found.terminated_early,
            skipped,
            profile,
            aggregations,
            suggestions: suggestions.filter(|found| found.as_object().is_some_and(|found| !found.is_empty())),
            failures: found.failures,
            total_as_int: request.totals_as_int,
            list: HitList { total: found.total, max_score: found.max_score, hits },
            scroll_id,
            point_in_time: body.point_in_time.as_ref().map(|pit| pit.id.clone()),
            ..Answer::of(snapshot.shards)
        };
        rendered(answer, shown, &searcher.compute, &work).await
    }

    /// Explains hits; returns how many have their explanations, all but the last ones of work whose time is over.
    #[allow(clippy::too_many_arguments)]
    async fn explain_hits(
        &self,
        snapshot: &Arc<TableSnapshot>,
        query: &Query,
        request: &SearchRequest,
        found: &Found,
        hits: &mut [Hit],
        now_ms: i64,
        work: &Work,
    ) -> Result<usize> {
        let (searcher, body) = (self.searcher()?, &request.body);
        let explainer =
            |query: &Query| Explainer::new(query, snapshot, request.global_statistics, now_ms).map(Arc::new);
        let seconds = body.rescore.iter().map(|rescore| explainer(&rescore.query));
        let seconds = seconds.collect::<Result<Vec<_>>>()?;
        let first = explainer(query)?;
        let step = if work.is_limited() { EXPLAINED_HITS } else { hits.len().max(1) };
        let mut done = 0;
        for (hits, addresses) in hits.chunks_mut(step).zip(found.rows.addresses.chunks(step)) {
            let explained = match first.explain(addresses, &searcher.compute, work).await {
                Err(Error::TimedOut) if work.timed_out() => return Ok(done),
                explained => explained?,
            };
            for ((hit, mut explanation), address) in hits.iter_mut().zip(explained).zip(addresses) {
                if !body.rescore.is_empty() {
                    let rescores = &body.rescore;
                    explanation =
                        searcher.explain_rescored(explanation, *address, rescores, &seconds, work).await?;
                }
                let shard = snapshot.shard_of(*address);
                let shard = shard
                    .map_or_else(String::new, |(index, shard)| format!("[{}][{shard}]", index.meta.name));
                hit.explanation = Some((explanation.to_json(), shard));
            }
            done += hits.len();
        }
        Ok(done)
    }

    /// Gives the indices of a snapshot the factors of the first expressions that stand for them.
    fn boosted(
        &self,
        snapshot: &TableSnapshot,
        boosts: &[(String, f32)],
        options: &IndicesOptions,
    ) -> Result<TableSnapshot> {
        let mut boosted = snapshot.clone();
        let mut done = vec![false; boosted.indices.len()];
        for (expression, boost) in boosts {
            let named = target::resolve(&self.engine, expression, options)?;
            let named: Vec<_> = named.iter().map(|index| index.meta()).collect();
            for (index, done) in boosted.indices.iter_mut().zip(&mut done) {
                if !*done && named.iter().any(|meta| meta.uuid == index.meta.uuid) {
                    if !boost.is_finite() || *boost < 0.0 {
                        return Err(refused_by_all(
                            snapshot,
                            Error::IllegalArgument(format!("boost must be a positive float, got {boost:?}")),
                        ));
                    }
                    (index.boost, *done) = (*boost, true);
                }
            }
        }
        Ok(boosted)
    }

    /// Returns how many buckets an answer may have.
    fn max_buckets(&self) -> u64 {
        let setting = self.engine.metadata().cluster_setting("search.max_buckets");
        let setting = setting.and_then(|setting| json::text(&setting)?.parse().ok());
        setting.unwrap_or(MAX_BUCKETS)
    }

    /// Returns what `search.default_search_timeout` gives searches that name no timeout.
    pub(super) fn default_timeout(&self) -> Option<u64> {
        const SETTING: &str = "search.default_search_timeout";
        let setting = self.engine.metadata().cluster_setting(SETTING)?;
        json::parse_time(SETTING, &json::text(&setting)?).ok().flatten()
    }
}

/// Renders an answer, for some work, which holds it while it is rendered; the text holds its own memory then.
pub(super) async fn rendered(
    answer: Answer,
    shown: Arc<Shown>,
    compute: &Compute,
    work: &Work,
) -> Result<Bytes> {
    let (is_small, work) = (answer.is_small(), work.clone());
    let render = move || {
        let _rendering = work.part_of(answer.list.bytes())?;
        work.keep(answer.render(&shown, &work)?)
    };
    // The way to another thread and back is longer than that.
    if is_small { render() } else { compute.run(render).await }
}

fn parse_after(body: &SearchBody, snapshot: &TableSnapshot, now_ms: i64) -> Result<Option<Point>> {
    let Some(values) = &body.search_after else { return Ok(None) };
    Order::new(&body.sort, snapshot, now_ms)
        .and_then(|(order, _)| order.parse_after(values, snapshot, &body.sort, now_ms))
        .map(Some)
        .map_err(|error| refused_by_all(snapshot, error))
}
