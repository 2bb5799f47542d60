//! `_search`: from the request to the rendered answer.

mod running;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use millrace_aggregate::Aggregation;
use millrace_catalog::access::Action;
use millrace_catalog::metadata::IndicesOptions;
use millrace_dsl::aggs::Aggregations;
use millrace_dsl::json;
use millrace_dsl::query::{MatchNoneQuery, Query};
use millrace_engine::Session;
use millrace_matching::pinned::PinnedSnapshot;
use millrace_matching::table::TableSnapshot;
use millrace_runtime::Instant;
use millrace_search::response::{Answer, HitList, RenderOptions};
use millrace_search::searcher::{refused_by_all, shown, window};
use millrace_target::access_checkpoint::check_access;
use millrace_target::lookup;
use millrace_target::target;
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};
use tracing::Instrument as _;

use self::running::{AggregationAnswer, Limits, RunningSearch};
use super::scroll::FirstPage;
use super::{Outcome, SearchService};
use crate::contexts::{InUse, Kind};
use crate::request::{ContextLifetimes, SearchRequest};
use crate::skip::skipped;

/// Most buckets of an answer where the cluster's settings do not say.
const MAX_BUCKETS: u64 = 65_535;

/// Guard that keeps a snapshot while it is searched.
#[derive(Default)]
struct SnapshotGuard {
    _kept: Option<PinnedSnapshot>,
    _in_use: Option<InUse<PinnedSnapshot>>,
}

impl SearchService {
    /// Answers `_search`.
    ///
    /// # Errors
    /// See [`Error`]; an error of single shards is part of the answer instead.
    pub fn search<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let opened = self.open(expression, "_search", params, body)?;
            let request =
                SearchRequest::parse(opened.params, opened.body.as_ref(), expression, &self.lives())?;
            self.answer(session, expression, request, opened.now_ms).await.map(Outcome::raw)
        })
    }

    /// Returns how long the contexts of searches may be kept alive.
    pub(super) fn lives(&self) -> ContextLifetimes {
        ContextLifetimes {
            scroll: self.longest_life(Kind::Scroll),
            point_in_time: self.longest_life(Kind::PointInTime),
        }
    }

    /// Runs a search and renders its answer.
    pub(super) async fn answer(
        &self,
        session: &Session,
        expression: &str,
        mut request: SearchRequest,
        started_ms: i64,
    ) -> Result<Bytes> {
        let searcher = self.searcher()?;
        // Who does not wait for the answer any more drops this, and with it all that is done for it.
        let (work, _ends) = searcher.begin();
        let (mut snapshot, _held) = self.searched(session, expression, &request).await?;
        for query in request.body.queries_mut() {
            lookup::read(session, &snapshot, query, &searcher.compute, &work).await?;
        }
        let request = &request;
        let body = &request.body;
        let unasked = match body.only_suggests() {
            true => MatchNoneQuery::default().into(),
            false => Query::match_all(),
        };
        let query = body.query.as_ref().unwrap_or(&unasked);
        if !body.indices_boost.is_empty() {
            snapshot =
                Arc::new(Self::boosted(session, &snapshot, &body.indices_boost, &request.scope.options)?);
        }
        if let Some(slice) = body.slice {
            let shared = body.point_in_time.is_some();
            let cut = searcher.cut(&snapshot, slice, shared, query, started_ms, &work).await?;
            snapshot = Arc::new(cut);
        }
        let (from, size) = window(body, &snapshot, request.scroll_ms.is_some())?;
        let render_options = Arc::new(shown(body, &snapshot)?);
        let grouping = request.grouping(&snapshot)?;
        let aggregation = match body.aggregations.as_ref().filter(|aggregations| !aggregations.is_empty()) {
            None => None,
            Some(aggregations) => {
                Some(Aggregation::new(aggregations, &mut snapshot, started_ms, body.profile)?)
            }
        };
        let limits = Limits::new(request, self.default_timeout());
        let (snapshot, render_options, work) = (&snapshot, &render_options, &work);
        let search =
            RunningSearch { searcher, request, query, snapshot, render_options, limits, started_ms, work };
        let began = Instant::now();
        let finding = search.find((from, size), grouping.as_ref());
        let mut found = finding
            .instrument(tracing::debug_span!(
                "query phase",
                index = &expression[..expression.floor_char_boundary(512)]
            ))
            .await?;
        let mut aggregated = AggregationAnswer::default();
        if let Some(aggregation) = aggregation {
            let aggregating = search.aggregate(aggregation, self.max_buckets(), &mut found);
            aggregated = aggregating.instrument(tracing::debug_span!("aggregations")).await?;
        }
        let suggestions = search.suggest(&mut found).await?;
        let queried_ms = self.now_ms();
        self.timings.queried(session, snapshot, began.elapsed(), found.total.map(|(total, _)| total));
        search.in_time(found.timed_out)?;
        if !request.allow_partial && !found.failures.is_empty() {
            return Err(Error::SearchPhase { failures: found.failures });
        }
        let (mut fetched_ms, fetching) = (queried_ms, Instant::now());
        let fetch = search.fetch(&mut found, || fetched_ms = self.now_ms());
        let hits = fetch.instrument(tracing::debug_span!("fetch phase")).await?;
        self.timings.fetched(session, snapshot, fetching.elapsed());
        search.in_time(found.timed_out)?;
        let profile = search.profile(&found, size > 0, aggregated.measured)?;
        let scroll_id = match request.scroll_ms {
            None => None,
            Some(keep_alive_ms) => {
                let first =
                    FirstPage { snapshot, query, found: &found, render_options, size, now_ms: started_ms };
                Some(self.open_scroll(session, request, first, keep_alive_ms)?)
            }
        };
        let visits_all = body.aggregations.as_ref().is_some_and(Aggregations::visit_all);
        let skipped = match u64::from(snapshot.shards) > request.pre_filtered && !visits_all {
            true => skipped(snapshot, query, started_ms, &searcher.compute, work).await?,
            false => 0,
        };
        let ended_ms = self.now_ms();
        let answer = Answer {
            took_ms: ended_ms - started_ms,
            phase_took: request
                .phase_took
                .then(|| phases_took([started_ms, queried_ms, fetched_ms, ended_ms])),
            timed_out: found.timed_out,
            terminated_early: found.terminated_early,
            skipped,
            profile,
            aggregations: aggregated.results,
            suggestions,
            failures: found.failures,
            total_as_int: request.totals_as_int,
            list: HitList { total: found.total, max_score: found.max_score, hits },
            scroll_id,
            point_in_time: body.point_in_time.as_ref().map(|pit| pit.id.clone()),
            ..Answer::new(snapshot.shards)
        };
        rendered(answer, Arc::clone(render_options), &searcher.compute, work).await
    }

    /// Pins what a search is over, and returns what keeps it. It is held from the start: a scroll that may not be kept is not
    /// searched for.
    async fn searched(
        &self,
        session: &Session,
        expression: &str,
        request: &SearchRequest,
    ) -> Result<(Arc<TableSnapshot>, SnapshotGuard)> {
        Ok(match &request.body.point_in_time {
            None if request.scroll_ms.is_some() => {
                let kept = self.pin_to_keep(session, expression, &request.scope, 0).await?;
                (Arc::clone(&kept.snapshot), SnapshotGuard { _kept: Some(kept), ..SnapshotGuard::default() })
            }
            None => (self.pin(session, expression, &request.scope).await?, SnapshotGuard::default()),
            Some(pit) => {
                let opened =
                    self.points_in_time.get(&pit.id, session.principal(), request.point_in_time_ms)?;
                check_access(&opened.snapshot, session, Action::Search)?;
                (
                    Arc::clone(&opened.snapshot),
                    SnapshotGuard { _in_use: Some(opened), ..SnapshotGuard::default() },
                )
            }
        })
    }

    /// Gives the indices of a snapshot the factors of the first expressions that stand for them.
    fn boosted(
        session: &Session,
        snapshot: &TableSnapshot,
        boosts: &[(String, f32)],
        options: &IndicesOptions,
    ) -> Result<TableSnapshot> {
        let mut boosted = snapshot.clone();
        let mut done = vec![false; boosted.indices.len()];
        for (expression, boost) in boosts {
            let named = target::resolve(session, expression, options)?;
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

    /// Returns the timeout that `search.default_search_timeout` gives searches that name none.
    pub(super) fn default_timeout(&self) -> Option<u64> {
        const SETTING: &str = "search.default_search_timeout";
        let setting = self.engine.metadata().cluster_setting(SETTING)?;
        json::parse_time(SETTING, &json::text(&setting)?).ok().flatten()
    }
}

/// Renders an answer, for some work; the text holds its own memory.
pub(super) async fn rendered(
    answer: Answer,
    render_options: Arc<RenderOptions>,
    compute: &Compute,
    work: &QueryContext,
) -> Result<Bytes> {
    let (is_small, work) = (answer.is_small(), work.clone());
    let render = move || answer.render(&render_options, &work);
    // The way to another thread and back is longer than that.
    if is_small { render() } else { compute.run(render).await }
}

/// Tells how long the phases of a search took, by when it started, was queried, fetched, and ended.
fn phases_took([started, queried, fetched, ended]: [i64; 4]) -> Value {
    json!({
        "dfs_pre_query": 0, "query": (queried - started).max(0), "fetch": (fetched - queried).max(0),
        "dfs_query": 0, "expand": (ended - fetched).max(0), "can_match": 0,
    })
}
