//! A search at work, phase by phase: its hits are found, its aggregations and suggestions made, then the hits are read.

use std::sync::Arc;

use millrace_aggregate as aggregate;
use millrace_aggregate::Aggregation;
use millrace_dsl::query::Query;
use millrace_matching::order::{Order, Point};
use millrace_matching::table::{ScanOptions, TableSnapshot};
use millrace_search::collapse::{Expansion, GroupBy};
use millrace_search::explain::Explainer;
use millrace_search::response::{Hit, RenderOptions};
use millrace_search::searcher::{Search, SearchHits, Searcher, fetching_limit, refused_by_all};
use millrace_search::{profile, suggest};
use millrace_work::QueryContext;
use millrace_work::answer::{AnswerBuffer, WriteAnswer};
use millrace_work::error::{Error, Result};
use serde_json::Value;

use crate::request::SearchRequest;

/// Hits that are explained at a time where time is limited.
const EXPLAINED_HITS: usize = 100;

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Milliseconds after which what was found so far is the result.
    pub timeout_ms: Option<u64>,
    /// Milliseconds after which the search is given up, where that comes first.
    pub cancelled_ms: Option<u64>,
}

impl Limits {
    /// Joins the times of a request and of the cluster.
    pub(super) fn new(request: &SearchRequest, default_ms: Option<u64>) -> Self {
        let timeout_ms = request.body.timeout_ms.or(default_ms);
        // A scroll goes on behind the last hit of a page, which has to be a whole one: as in OpenSearch, time does not cut it.
        let timeout_ms = timeout_ms.filter(|_| request.scroll_ms.is_none());
        let cancelled_ms =
            request.cancel_after_ms.filter(|ms| timeout_ms.is_none_or(|timeout| *ms < timeout));
        Self { timeout_ms: cancelled_ms.or(timeout_ms), cancelled_ms }
    }
}

/// A search at work.
#[derive(Debug)]
pub(super) struct RunningSearch<'a> {
    pub searcher: &'a Searcher,
    pub request: &'a SearchRequest,
    pub query: &'a Query,
    pub snapshot: &'a Arc<TableSnapshot>,
    pub render_options: &'a Arc<RenderOptions>,
    pub limits: Limits,
    /// Value of `now`.
    pub started_ms: i64,
    pub work: &'a QueryContext,
}

/// Aggregations of an answer.
#[derive(Default)]
pub(super) struct AggregationAnswer {
    /// The results, where they are asked for.
    pub results: Option<Box<dyn WriteAnswer>>,
    /// Timings of each shard, where measured.
    pub measured: Vec<Vec<Value>>,
}

/// Results of aggregations that are written with the answer.
#[derive(Debug)]
struct AggregationResults {
    results: aggregate::Results,
    typed_keys: bool,
    /// Holds the results.
    _held: QueryContext,
}

impl WriteAnswer for AggregationResults {
    fn write(&self, out: &mut AnswerBuffer) -> Result<()> {
        self.results.write(self.typed_keys, out)
    }
}

impl RunningSearch<'_> {
    /// Finds the rows of the hits.
    pub(super) async fn find(
        &self,
        (from, size): (usize, usize),
        grouping: Option<&GroupBy>,
    ) -> Result<SearchHits> {
        let (request, body) = (self.request, &self.request.body);
        let search = Search {
            post_filter: body.post_filter.as_ref(),
            min_score: body.min_score,
            sort: &body.sort,
            from,
            size,
            after: self.after()?,
            track_scores: body.track_scores,
            track: request.tracked(),
            global_statistics: request.global_statistics,
            terminate_after: body.terminate_after,
            timeout_ms: self.limits.timeout_ms,
            collapse: grouping,
            profile: body.profile,
            ..Search::new(Arc::clone(self.snapshot), self.query, self.started_ms, self.work)
        };
        match body.rescore.as_slice() {
            [] => self.searcher.find(search).await,
            rescores => self.searcher.find_rescored(search, rescores).await,
        }
    }

    /// Reads the point behind which the search goes on.
    fn after(&self) -> Result<Option<Point>> {
        let (body, snapshot) = (&self.request.body, self.snapshot.as_ref());
        let Some(values) = &body.search_after else { return Ok(None) };
        Order::new(&body.sort, snapshot, self.started_ms)
            .and_then(|(order, _)| order.parse_after(values, snapshot, &body.sort, self.started_ms))
            .map(Some)
            .map_err(|error| refused_by_all(snapshot, error))
    }

    /// Runs aggregations, of at most so many buckets.
    pub(super) async fn aggregate(
        &self,
        aggregation: Aggregation<'_>,
        max_buckets: u64,
        found: &mut SearchHits,
    ) -> Result<AggregationAnswer> {
        let (request, body) = (self.request, &self.request.body);
        let options = ScanOptions {
            now_ms: self.started_ms,
            global_statistics: request.global_statistics,
            terminate_after: body.terminate_after,
            min_score: body.min_score,
            ..ScanOptions::default()
        };
        let wanted = aggregate::Request {
            snapshot: Arc::clone(self.snapshot),
            query: self.query,
            options,
            timeout_ms: self.limits.timeout_ms,
            max_buckets,
            work: self.work.clone(),
        };
        let done = aggregation.run(self.searcher, wanted).await?;
        found.timed_out |= done.timed_out;
        let measured = aggregation.profile(self.snapshot.shards);
        found.failures.extend(aggregation.failures);
        let typed_keys = request.typed_keys;
        let results = AggregationResults { results: done.results, typed_keys, _held: done.work };
        Ok(AggregationAnswer { results: Some(Box::new(results)), measured })
    }

    /// Makes suggestions, where they are asked for.
    pub(super) async fn suggest(&self, found: &mut SearchHits) -> Result<Option<Value>> {
        let Some(asked) = &self.request.body.suggestions else { return Ok(None) };
        let (phase, typed_keys) = (self.work.phase(), self.request.typed_keys);
        let run = suggest::run(self.searcher, self.snapshot, asked, self.render_options, typed_keys, &phase);
        let suggested = phase.within(self.limits.timeout_ms, run).await?;
        found.timed_out |= phase.timed_out();
        found.failures.extend(suggested.failures);
        Ok(Some(suggested.answer)
            .filter(|answer| answer.as_object().is_some_and(|answer| !answer.is_empty())))
    }

    /// Fails where time was over and what was found by then is not wanted.
    pub(super) fn in_time(&self, timed_out: bool) -> Result<()> {
        match (timed_out, self.limits.cancelled_ms, self.request.allow_partial) {
            (false, ..) | (true, None, true) => Ok(()),
            (true, None, false) => Err(Error::TimedOut),
            (true, Some(limit_ms), _) => Err(Error::Exception {
                kind: "task_cancelled_exception",
                status: 500,
                reason: format!("Cancellation timeout of {limit_ms}ms is expired"),
            }),
        }
    }

    /// Reads what the hits show, then calls `fetched`, then expands and explains them.
    pub(super) async fn fetch(&self, found: &mut SearchHits, fetched: impl FnOnce()) -> Result<Vec<Hit>> {
        let phase = self.work.phase();
        let read = async {
            let (snapshot, query) = (self.snapshot, self.query);
            let hits =
                self.searcher.hits(snapshot, query, found, self.render_options, self.started_ms, &phase);
            let mut hits = hits.await?;
            fetched();
            if let Some(collapse) = &self.request.body.collapse {
                let expansion = Expansion {
                    snapshot,
                    query: self.request.body.query.as_ref(),
                    global_statistics: self.request.global_statistics,
                    now_ms: self.started_ms,
                    work: &phase,
                };
                let expanded = expansion.run(self.searcher, collapse, &found.rows.groups, &mut hits).await?;
                hits.truncate(expanded);
            }
            if self.request.body.explain {
                let explained = self.explain(found, &mut hits, &phase).await?;
                hits.truncate(explained);
            }
            Ok::<_, Error>(hits)
        };
        let hits = phase.within(fetching_limit(self.limits.timeout_ms), read).await?;
        found.timed_out |= phase.timed_out();
        Ok(hits)
    }

    /// Explains hits; returns how many have their explanations, all but the last ones of work whose time is over.
    async fn explain(&self, found: &SearchHits, hits: &mut [Hit], work: &QueryContext) -> Result<usize> {
        let (searcher, snapshot, request) = (self.searcher, self.snapshot, self.request);
        let explainer = |query: &Query| {
            Explainer::new(query, snapshot, request.global_statistics, self.started_ms).map(Arc::new)
        };
        let rescores = &request.body.rescore;
        let seconds = rescores.iter().map(|rescore| explainer(&rescore.query));
        let seconds = seconds.collect::<Result<Vec<_>>>()?;
        let first = explainer(self.query)?;
        let step = if work.is_limited() { EXPLAINED_HITS } else { hits.len().max(1) };
        let mut done = 0;
        for (hits, addresses) in hits.chunks_mut(step).zip(found.rows.addresses.chunks(step)) {
            let explained = match first.explain(addresses, &searcher.compute, work).await {
                Err(Error::TimedOut) if work.timed_out() => return Ok(done),
                explained => explained?,
            };
            for ((hit, mut explanation), address) in hits.iter_mut().zip(explained).zip(addresses) {
                if !rescores.is_empty() {
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

    /// Renders where the time went, where that was measured.
    pub(super) fn profile(
        &self,
        found: &SearchHits,
        shows_hits: bool,
        measured: Vec<Vec<Value>>,
    ) -> Result<Option<Value>> {
        let Some(found_in) = &found.profile else { return Ok(None) };
        let explainer = Explainer::new(self.query, self.snapshot, false, self.started_ms)?;
        let describe = |index: usize| explainer.describe(index);
        Ok(Some(profile::render(found_in, self.snapshot, shows_hits, measured, &describe)))
    }
}
