//! One search: order, plan, rows, hits.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::logical_expr::Expr;
use datafusion::physical_plan::displayable;
use futures::future::BoxFuture;
use millrace_catalog::routing;
use millrace_dsl::body::{SearchBody, Slice, StoredFields};
use millrace_dsl::query::Query;
use millrace_dsl::sort::{SortBy, SortKey};
use millrace_dsl::source_filter::SourceFilter;
use millrace_matching::lower;
use millrace_matching::order::{Order, Point};
use millrace_matching::table::resolve::setting;
use millrace_matching::table::top_k::first_of_groups;
use millrace_matching::table::{IndexTable, ScanOptions, TableSnapshot};
use millrace_runtime::Instant;
use millrace_segment::RowParts;
use millrace_work::compute::{Compute, StopOnDrop};
use millrace_work::error::{Error, MAX_REASON_BYTES, Result, ShardFailure, cut_short};
use millrace_work::{QueryContext, bytes_of};
use roaring::RoaringBitmap;

use crate::collapse::GroupBy;
use crate::fetch;
use crate::fetch::phases::Phases;
use crate::inner_hits::Definitions;
use crate::plan::{FoundRows, PlanShape, Planner};
use crate::profile::SearchProfile;
use crate::response::{Hit, RenderOptions};

/// Hits counted exactly where the request does not say.
pub const TRACKED_HITS: u64 = 10_000;
/// Hits returned where the request does not say.
const DEFAULT_SIZE: usize = 10;
/// Greatest `from + size` where the index does not say.
const MAX_RESULT_WINDOW: usize = 10_000;
/// Most slices of a scroll where the index does not say.
const MAX_SLICES: usize = 1_024;
/// Runs of rows that a slice has of a segment, and most rows of one.
const SLICE_RUNS: u64 = 16;
const MAX_SLICE_RUN: u32 = 512;
/// Rows of one step while a slice is cut.
const SLICE_STEP: usize = 10_000;

/// Runs searches over pinned snapshots.
#[derive(Clone, Debug)]
pub struct Searcher {
    /// Plans and runs.
    pub planner: Planner,
    /// Threads for the work.
    pub compute: Compute,
}

/// One search over a snapshot.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// Snapshot that is searched.
    pub snapshot: Arc<TableSnapshot>,
    /// Query that rows match.
    pub query: &'a Query,
    /// Query that must match too, without a score.
    pub post_filter: Option<&'a Query>,
    /// Least score of hits.
    pub min_score: Option<f32>,
    /// The order, as asked.
    pub sort: &'a [SortKey],
    /// Hits to skip.
    pub from: usize,
    /// Hits to return.
    pub size: usize,
    /// Point after which the search goes on.
    pub after: Option<Point>,
    /// `true` if scores are computed though they do not order.
    pub track_scores: bool,
    /// Number up to which matches are counted.
    pub track: Option<u64>,
    /// `true` if statistics of all shards are joined.
    pub global_statistics: bool,
    /// Matches after which a shard stops.
    pub terminate_after: u64,
    /// Milliseconds after which what was found so far is the result.
    pub timeout_ms: Option<u64>,
    /// Value of `now`.
    pub now_ms: i64,
    /// By what matches are grouped, if they are.
    pub collapse: Option<&'a GroupBy>,
    /// `true` if the time that shards take is measured.
    pub profile: bool,
    /// The work that it is done for.
    pub work: QueryContext,
}

impl<'a> Search<'a> {
    /// Makes a search that returns and counts nothing yet, for some work.
    pub fn new(snapshot: Arc<TableSnapshot>, query: &'a Query, now_ms: i64, work: &QueryContext) -> Self {
        Self {
            snapshot,
            query,
            post_filter: None,
            min_score: None,
            sort: &[],
            from: 0,
            size: 0,
            after: None,
            track_scores: false,
            track: None,
            global_statistics: false,
            terminate_after: 0,
            timeout_ms: None,
            now_ms,
            collapse: None,
            profile: false,
            work: work.clone(),
        }
    }

    /// Returns the filter of the plan; none where everything matches.
    fn filter(&self, scored: bool) -> Option<Expr> {
        let query = match (lower::is_everything(self.query), scored) {
            // What must match too would take the place of the score.
            (true, true) if self.post_filter.is_some() => Some(lower::lower(self.query).whole_expr()),
            (true, _) => None,
            (false, true) => Some(lower::lower(self.query).whole_expr()),
            (false, false) => Some(lower::lower_filter(self.query).expr()),
        };
        match (query, self.post_filter.map(|query| lower::lower_filter(query).expr())) {
            (Some(query), Some(post_filter)) => Some(query.and(post_filter)),
            (query, post_filter) => query.or(post_filter),
        }
    }
}

/// Hits of a search.
#[derive(Debug)]
pub struct SearchHits {
    /// Rows in order.
    pub rows: FoundRows,
    /// The order.
    pub order: Order,
    /// `true` if scores were computed.
    pub scored: bool,
    /// Matches and whether there are more, where counted.
    pub total: Option<(u64, bool)>,
    /// Greatest score.
    pub max_score: Option<f32>,
    /// `true` if time was over.
    pub timed_out: bool,
    /// Set if shards stopped early, where they could.
    pub terminated_early: Option<bool>,
    /// Shards that could not answer.
    pub failures: Vec<ShardFailure>,
    /// Profile, where measured.
    pub profile: Option<SearchProfile>,
}

/// Least time that hits which were found in time are fetched for.
const LEAST_FETCHING_MS: u64 = 1_000;
/// Hits that are fetched at a time where time is limited: hits that are not done in time are left out, so many at once.
const LIMITED_HITS: usize = 500;

/// Returns how long hits are fetched for where the search for them is limited to a time: as long, but a second at least.
pub fn fetching_limit(timeout_ms: Option<u64>) -> Option<u64> {
    timeout_ms.map(|timeout_ms| timeout_ms.max(LEAST_FETCHING_MS))
}

impl Searcher {
    /// Begins the work of a request, which ends when the guard is dropped.
    pub fn begin(&self) -> (QueryContext, StopOnDrop) {
        let work = QueryContext::new(&self.planner.runtime().memory_pool);
        let guard = work.until_dropped();
        (work, guard)
    }

    /// Finds the rows of a search. Rows are not fetched yet.
    pub fn find<'a>(&'a self, search: Search<'a>) -> BoxFuture<'a, Result<SearchHits>> {
        Box::pin(self.find_rows(search))
    }

    async fn find_rows(&self, search: Search<'_>) -> Result<SearchHits> {
        let sort = implied(search.sort);
        let (order, failed) = Order::new(sort, &search.snapshot, search.now_ms)
            .map_err(|error| refused_by_all(&search.snapshot, error))?;
        let mut failures = Vec::new();
        let mut snapshot = Arc::clone(&search.snapshot);
        if !failed.is_empty() {
            let places: Vec<usize> = failed.iter().map(|(place, _)| *place).collect();
            for (place, error) in failed {
                failures.extend(index_failures(&snapshot, place, error));
            }
            snapshot = Arc::new(silenced(&snapshot, &places));
        }
        let scored = order.by_score() || search.track_scores;
        let cursor = search.after.as_ref().and_then(|after| order.cursor(after));
        let behind = match (&search.after, cursor) {
            (Some(after), None) => Some(order.behind(after)),
            _ => None,
        };
        let started = Instant::now();
        // What is held while rows are looked for is given back when they are found.
        let phase = search.work.phase().part();
        let _guard = phase.until_dropped();
        let filter = search.filter(scored || search.min_score.is_some());
        let options = ScanOptions {
            now_ms: search.now_ms,
            track: search.track,
            global_statistics: search.global_statistics,
            cursor,
            after_key: behind.as_ref().and_then(|_| order.first_key(search.after.as_ref()?)),
            terminate_after: search.terminate_after,
            min_score: search.min_score,
            profile: search.profile,
            work: phase.clone(),
        };
        let mut keys = order.keys.clone();
        let grouping = search.collapse.filter(|_| search.size > 0);
        keys.extend(grouping.into_iter().flat_map(GroupBy::keys));
        let table = Arc::new(IndexTable::new(snapshot, keys, options, self.compute.clone()));
        let handle = Arc::clone(table.handle());
        let shape = PlanShape {
            filter,
            behind,
            order: &order,
            scores: scored,
            from: search.from,
            size: search.size,
            grouping,
        };
        let logical = self.planner.logical(table, &shape)?;
        let mut physical = self.planner.physical(&logical).await?;
        if let Some(grouping) = grouping.filter(|grouping| grouping.is_told(&search)) {
            let (sorts, most) = (order.sort_expressions(), search.from.saturating_add(search.size));
            physical = first_of_groups(physical, &sorts, most, grouping.key())?;
        }
        failures.extend(std::mem::take(&mut *handle.failures.lock()));
        if !failures.is_empty() && failures.len() >= search.snapshot.shards as usize {
            return Err(Error::SearchPhase { failures });
        }
        tracing::debug!(plan = %displayable(physical.as_ref()).one_line(), "search planned");
        let plan = search.profile.then(|| displayable(physical.as_ref()).indent(false).to_string());
        let planned = started.elapsed();
        let run = async {
            match grouping {
                None => self.planner.run(physical, &shape).await,
                Some(grouping) => self.planner.run_grouped(physical, &shape, grouping, &self.compute).await,
            }
        };
        let rows = match phase.within(search.timeout_ms, run).await {
            // Time was over before anything was ready.
            Err(Error::TimedOut) if phase.timed_out() => FoundRows::default(),
            rows => rows?,
        };
        let best = scored.then(|| handle.max_score()).filter(|_| !rows.addresses.is_empty());
        Ok(SearchHits {
            max_score: best.filter(|_| !order.explicit || search.track_scores),
            rows,
            scored,
            total: search.track.map(|_| handle.totals.read()),
            timed_out: phase.timed_out(),
            terminated_early: (search.terminate_after > 0).then(|| handle.terminated_early()),
            failures,
            order,
            profile: plan.map(|plan| SearchProfile {
                plan,
                planned,
                run: started.elapsed().saturating_sub(planned),
                handle,
            }),
        })
    }

    /// Reads what hits show, for some work, which holds it. Of work whose time is over the last hits are missing.
    pub fn hits<'a>(
        &'a self,
        snapshot: &'a Arc<TableSnapshot>,
        query: &'a Query,
        found: &'a SearchHits,
        shown: &'a RenderOptions,
        now_ms: i64,
        work: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Vec<Hit>>> {
        Box::pin(async move {
            let count = found.rows.addresses.len();
            let step = if work.is_limited() { LIMITED_HITS } else { count.max(1) };
            let mut hits = Vec::with_capacity(count);
            for from in (0..count).step_by(step) {
                let places = from..count.min(from + step);
                match self.some_hits(snapshot, query, found, places, shown, now_ms, work).await {
                    Ok(some) => hits.extend(some),
                    Err(Error::TimedOut) if work.timed_out() => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(hits)
        })
    }

    /// Reads what some of the hits show.
    #[allow(clippy::too_many_arguments)]
    async fn some_hits(
        &self,
        snapshot: &Arc<TableSnapshot>,
        query: &Query,
        found: &SearchHits,
        places: Range<usize>,
        shown: &RenderOptions,
        now_ms: i64,
        work: &QueryContext,
    ) -> Result<Vec<Hit>> {
        let addresses = &found.rows.addresses[places.clone()];
        let definitions = Definitions::new(query)?;
        let parts = RowParts {
            source: shown.source != SourceFilter::None
                || shown.phases.reads_source()
                || !definitions.is_empty(),
            versions: shown.version || shown.seq_no || shown.phases.reads_versions(),
        };
        let compute = &self.compute;
        let rows = fetch::rows(snapshot, addresses, parts, compute, work).await?;
        let named: Vec<&Query> = [query].into_iter().chain(&shown.post_filter).collect();
        let with_scores = shown.matched_scores;
        let matched = fetch::matched_queries(snapshot, &named, with_scores, addresses, compute, now_ms, work);
        let mut matched = matched.await?;
        let phases = &shown.phases;
        let mut extras = phases.run(snapshot, query, addresses, &rows, compute, now_ms, work).await?;
        let mut hits = Vec::with_capacity(rows.len());
        for (number, (at, row)) in places.zip(rows).enumerate() {
            let address = addresses[number];
            let index = snapshot.segments[address.segment as usize].index;
            let score = found.rows.scores[at];
            let sort =
                found.order.explicit.then(|| found.order.render(&found.rows.keys, at, index, score, address));
            work.hold(sort.as_ref().map_or(0, bytes_of))?;
            hits.push(Hit {
                index: snapshot.indices[index].meta.name.to_string(),
                nested: None,
                row,
                score: found.scored.then_some(score),
                sort,
                matched_queries: std::mem::take(&mut matched[number]),
                extras: std::mem::take(&mut extras[number]),
                inner_hits: Vec::new(),
                explanation: None,
            });
        }
        definitions.fill(snapshot, addresses, &mut hits, compute, now_ms, work).await?;
        fetch::conceal(snapshot, addresses, hits, compute, work).await
    }

    /// Cuts a snapshot to a slice: by shard where there are enough of them; by the places of rows where the requests for
    /// other slices are of the same snapshot, as those of a point in time are; else by document id.
    pub fn cut<'a>(
        &'a self,
        snapshot: &'a Arc<TableSnapshot>,
        slice: Slice,
        shared: bool,
        query: &'a Query,
        now_ms: i64,
        work: &'a QueryContext,
    ) -> BoxFuture<'a, Result<TableSnapshot>> {
        Box::pin(async move {
            for index in &snapshot.indices {
                let limit = setting(&index.meta, "index.max_slices_per_scroll", MAX_SLICES);
                if slice.max > limit as u64 {
                    return Err(refused_by_all(
                        snapshot,
                        Error::IllegalArgument(format!(
                            "The number of slices [{}] is too large. It must be less than [{limit}]. This limit can be set by changing the [index.max_slices_per_scroll] index level setting.",
                            slice.max
                        )),
                    ));
                }
            }
            let mut listed: HashMap<u32, RoaringBitmap> = HashMap::new();
            if slice.max <= u64::from(snapshot.shards) {
                for (number, segment) in snapshot.segments.iter().enumerate() {
                    if u64::from(segment.shard) % slice.max == slice.id {
                        let mut rows = RoaringBitmap::new();
                        rows.insert_range(0..segment.reader.rows());
                        listed.insert(number as u32, rows);
                    }
                }
                return Ok(TableSnapshot { listed: Some(Arc::new(listed)), ..snapshot.as_ref().clone() });
            }
            if shared {
                for (number, segment) in snapshot.segments.iter().enumerate() {
                    let rows = rows_of_slice(slice, number as u64, segment.reader.rows());
                    work.hold_rows(&rows)?;
                    listed.insert(number as u32, rows);
                }
                return Ok(TableSnapshot { listed: Some(Arc::new(listed)), ..snapshot.as_ref().clone() });
            }
            let by_address = [SortKey { by: SortBy::Doc, descending: false }];
            let mut after: Option<Point> = None;
            loop {
                let search = Search {
                    sort: &by_address,
                    size: SLICE_STEP,
                    after: after.take(),
                    ..Search::new(Arc::clone(snapshot), query, now_ms, work)
                };
                let found = self.find(search).await?;
                let addresses = &found.rows.addresses;
                let parts = RowParts { source: false, versions: false };
                let rows = fetch::rows(snapshot, addresses, parts, &self.compute, &work.part()).await?;
                for (address, row) in addresses.iter().zip(&rows) {
                    if slice_of(&row.id, slice.max) == slice.id {
                        listed.entry(address.segment).or_default().insert(address.row);
                    }
                }
                match addresses.last() {
                    Some(last) if addresses.len() == SLICE_STEP => {
                        after = Some(found.order.point(&[], 0, 0.0, *last)?);
                    }
                    _ => break,
                }
            }
            Ok(TableSnapshot { listed: Some(Arc::new(listed)), ..snapshot.as_ref().clone() })
        })
    }
}

/// Lists the rows of a segment that belong to a slice: runs of them in turns, which begin with another slice in each segment.
/// Slices are about as large also where segments are small.
fn rows_of_slice(slice: Slice, segment: u64, rows: u32) -> RoaringBitmap {
    let runs = slice.max.saturating_mul(SLICE_RUNS);
    let length =
        u32::try_from(u64::from(rows) / runs.max(1)).unwrap_or(MAX_SLICE_RUN).clamp(1, MAX_SLICE_RUN);
    let mut own = RoaringBitmap::new();
    for (run, first) in (0..rows).step_by(length as usize).enumerate() {
        if (segment + run as u64) % slice.max == slice.id {
            own.insert_range(first..rows.min(first.saturating_add(length)));
        }
    }
    own
}

/// Returns the slice that a document belongs to.
pub fn slice_of(id: &str, slices: u64) -> u64 {
    i64::from(routing::murmur3_utf16(id)).rem_euclid(slices.max(1) as i64) as u64
}

/// A sort by score alone is no order of its own.
pub fn implied(sort: &[SortKey]) -> &[SortKey] {
    match sort {
        [only] if only.is_score() && only.descending => &[],
        other => other,
    }
}

/// Makes the failures of the shards of an index.
pub fn index_failures(snapshot: &TableSnapshot, place: usize, error: Error) -> Vec<ShardFailure> {
    let Some(index) = snapshot.indices.get(place) else { return Vec::new() };
    let failure = error.into_shard_failure(&index.meta.name, &index.meta.uuid_text(), 0);
    index.shards.iter().map(|shard| ShardFailure { shard: *shard, ..failure.clone() }).collect()
}

/// Leaves out the rows of some indices; numbers stay as they are.
pub fn silenced(snapshot: &TableSnapshot, places: &[usize]) -> TableSnapshot {
    let mut silenced = snapshot.clone();
    for segment in &mut silenced.segments {
        if places.contains(&segment.index) {
            let mut rows = RoaringBitmap::new();
            rows.insert_range(0..segment.reader.rows());
            segment.deleted = Arc::new(rows);
        }
    }
    silenced
}

/// Makes the error of a request that every shard refuses.
pub fn refused_by_all(snapshot: &TableSnapshot, error: Error) -> Error {
    let (status, error_type) = (error.status(), error.error_type());
    let reason = cut_short(error.reason(), MAX_REASON_BYTES);
    let failures = snapshot.shards().map(|(index, shard)| ShardFailure {
        index: index.meta.name.to_string(),
        index_uuid: index.meta.uuid_text(),
        shard,
        error_type: error_type.clone(),
        reason: reason.clone(),
        caused_by: None,
        status,
    });
    let failures: Vec<ShardFailure> = failures.collect();
    if failures.is_empty() { error } else { Error::SearchPhase { failures } }
}

/// Checks the window of hits against the indices' settings; returns `from` and `size`.
pub fn window(body: &SearchBody, snapshot: &TableSnapshot, scroll: bool) -> Result<(usize, usize)> {
    let from = body.from.unwrap_or(0);
    let size = body.size.unwrap_or(DEFAULT_SIZE);
    let refuse = |error: Error| Err(refused_by_all(snapshot, error));
    if body.search_after.is_some() && from > 0 {
        return refuse(Error::SearchContext(
            "`from` parameter must be set to 0 when `search_after` is used.".to_owned(),
        ));
    }
    if body.slice.is_some() && !scroll && body.point_in_time.is_none() {
        return refuse(Error::SearchContext(
            "`slice` cannot be used outside of a scroll context or PIT context".to_owned(),
        ));
    }
    if !body.rescore.is_empty() && !implied(&body.sort).is_empty() {
        return refuse(Error::IllegalArgument(
            "Cannot use [sort] option in conjunction with [rescore].".to_owned(),
        ));
    }
    let window = from.saturating_add(size);
    for index in &snapshot.indices {
        let limit = setting(&index.meta, "index.max_result_window", MAX_RESULT_WINDOW);
        let rescored = setting(&index.meta, "index.max_rescore_window", limit);
        if let Some(rescore) = body.rescore.iter().find(|rescore| rescore.window > rescored) {
            return refuse(Error::IllegalArgument(format!(
                "Rescore window [{}] is too large. It must be less than [{rescored}]. This prevents allocating massive heaps for storing the results to be rescored. This limit can be set by changing the [index.max_rescore_window] index level setting.",
                rescore.window
            )));
        }
        if window > limit {
            return refuse(Error::IllegalArgument(match scroll {
                true => format!(
                    "Batch size is too large, size must be less than or equal to: [{limit}] but was [{window}]. Scroll batch sizes cost as much memory as result windows so they are controlled by the [index.max_result_window] index level setting."
                ),
                false => format!(
                    "Result window is too large, from + size must be less than or equal to: [{limit}] but was [{window}]. See the scroll api for a more efficient way to request large data sets. This limit can be set by changing the [index.max_result_window] index level setting."
                ),
            }));
        }
    }
    Ok((from, size))
}

/// Decides which parts of hits are shown.
pub fn shown(body: &SearchBody, snapshot: &TableSnapshot) -> Result<RenderOptions> {
    let mut shown = RenderOptions {
        source: body.source.clone().unwrap_or(SourceFilter::All),
        id: true,
        version: body.version,
        seq_no: body.seq_no_primary_term,
        post_filter: body.post_filter.clone(),
        matched_scores: body.matched_scores,
        phases: Phases::default(),
    };
    let mut stored = Vec::new();
    match &body.stored_fields {
        None => {}
        Some(StoredFields::None) => {
            if body.source.as_ref().is_some_and(|source| *source != SourceFilter::None) {
                return Err(search_refused("[stored_fields] cannot be disabled if [_source] is requested"));
            }
            if !body.fields.is_empty() {
                return Err(search_refused(
                    "[stored_fields] cannot be disabled when using the [fields] option",
                ));
            }
            shown.source = SourceFilter::None;
            shown.id = false;
        }
        Some(StoredFields::Named(names)) => {
            if body.source.is_none() && !names.iter().any(|name| name == "_source") {
                shown.source = SourceFilter::None;
            }
            stored.clone_from(names);
        }
    }
    shown.phases = Phases::new(body, snapshot, stored)?;
    Ok(shown)
}

/// Makes the error of a request whose parts exclude each other, as shards answer it.
pub fn search_refused(reason: &str) -> Error {
    let failure = ShardFailure {
        index: String::new(),
        index_uuid: String::new(),
        shard: 0,
        error_type: "search_exception".to_owned(),
        reason: reason.to_owned(),
        caused_by: None,
        status: 400,
    };
    Error::SearchPhase { failures: vec![failure] }
}

#[cfg(test)]
mod tests;
