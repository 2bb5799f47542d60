//! Aggregations of one search: from the compiled tree to results.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::physical_plan::displayable;
use futures::future::BoxFuture;
use millrace_dsl::aggs::{Aggregations, validate};
use millrace_dsl::query::Query;
use millrace_matching::lower;
use millrace_matching::order::Order;
use millrace_matching::table::partitions::Openings;
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::statistics::Functions;
use millrace_matching::table::{IndexTable, ScanOptions, TableSnapshot};
use millrace_search::element_hits::{self, ElementRendering, WantedElement};
use millrace_search::plan::FoundRows;
use millrace_search::response::HitList;
use millrace_search::searcher::{
    SearchHits, Searcher, fetching_limit, index_failures, refused_by_all, silenced,
};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result, ShardFailure};
use serde_json::Value;

use super::collector::{Reduction, SubCollectors};
use super::compile::compile;
use super::field::EVERY_INDEX;
use super::hit_fetch::{HitFetch, TopRow};
use super::operator::{AggregateExec, OperatorState, PartitionStates, States};
use super::pipeline;
use super::result::{Entry, Outcome, Results};
use super::segment::SegmentSets;
use super::tree::{Root, Tree};

/// Request of an aggregation.
#[derive(Debug)]
pub struct Request<'a> {
    /// Snapshot that is searched.
    pub snapshot: Arc<TableSnapshot>,
    /// Query that rows match.
    pub query: &'a Query,
    /// Options of the scan.
    pub options: ScanOptions,
    /// Milliseconds after which what was collected so far is the result.
    pub timeout_ms: Option<u64>,
    /// Most buckets of the answer.
    pub max_buckets: u64,
    /// The work that it is done for.
    pub work: QueryContext,
}

/// Results of aggregations.
#[derive(Debug)]
pub struct AggregationResults {
    /// The results.
    pub results: Results,
    /// `true` if time was over.
    pub timed_out: bool,
    /// Holds the results.
    pub work: QueryContext,
}

/// The aggregations of a search, ready to run.
#[derive(Debug)]
pub struct Aggregation<'a> {
    aggregations: &'a Aggregations,
    tree: Arc<Tree>,
    /// Shards whose index refuses an aggregation.
    pub failures: Vec<ShardFailure>,
}

impl<'a> Aggregation<'a> {
    /// Lets aggregations meet the mappings of a snapshot. Indices that refuse one are left out of it.
    ///
    /// # Errors
    /// What every index refuses.
    pub fn new(
        aggregations: &'a Aggregations,
        snapshot: &mut Arc<TableSnapshot>,
        now_ms: i64,
        profile: bool,
    ) -> Result<Self> {
        validate(aggregations)?;
        let mut tree = compile(aggregations, snapshot, now_ms, profile)?;
        let mut failures = Vec::new();
        let mut places: Vec<usize> = Vec::new();
        for (place, error) in std::mem::take(&mut tree.failed) {
            if place == EVERY_INDEX {
                return Err(refused_by_all(snapshot, error));
            }
            if !places.contains(&place) {
                places.push(place);
                failures.extend(index_failures(snapshot, place, error));
            }
        }
        if !places.is_empty() {
            if places.len() == snapshot.indices.len() {
                return Err(Error::SearchPhase { failures });
            }
            *snapshot = Arc::new(silenced(snapshot, &places));
        }
        Ok(Self { aggregations, tree: Arc::new(tree), failures })
    }

    /// Renders what they measured, by shard of a search over so many.
    pub fn profile(&self, shards: u32) -> Vec<Vec<Value>> {
        self.tree.profile(shards)
    }

    /// Runs them.
    pub fn run<'r>(
        &'r self,
        searcher: &'r Searcher,
        request: Request<'r>,
    ) -> BoxFuture<'r, Result<AggregationResults>> {
        Box::pin(async move {
            let mut done = aggregate(searcher, Arc::clone(&self.tree), request).await?;
            let aggregations = self.aggregations.clone();
            let compute = searcher.compute.clone();
            compute
                .run(move || {
                    pipeline::apply(&aggregations, &mut done.results, &done.work)
                        .map_err(Error::while_reducing)?;
                    Ok(done)
                })
                .await
        })
    }
}

/// Runs the aggregations of a search.
async fn aggregate(searcher: &Searcher, tree: Arc<Tree>, request: Request<'_>) -> Result<AggregationResults> {
    let scored = tree.scores || request.options.min_score.is_some();
    let predicate = match (lower::is_everything(request.query), scored) {
        (true, _) => Predicate::All,
        (false, true) => lower::lower(request.query),
        (false, false) => lower::lower_filter(request.query),
    };
    let now_ms = request.options.now_ms;
    let global = request.options.global_statistics;
    // What is held while rows are collected is given back with the phase.
    let phase = request.work.phase().part();
    let _guard = phase.until_dropped();
    let options = ScanOptions { track: None, profile: false, work: phase.clone(), ..request.options.clone() };
    let table = IndexTable::new(Arc::clone(&request.snapshot), Vec::new(), options, searcher.compute.clone());
    let state = Arc::clone(table.state());
    let snapshot = &request.snapshot;
    let openings = |predicate: &Predicate, global: bool, min_score: Option<f32>| {
        let functions = Functions::new(snapshot.shards, global);
        Openings::new(snapshot, table.resolve(predicate), functions, min_score, &phase)
    };
    let shared = OperatorState {
        matching: openings(&predicate, global, state.options.min_score),
        everything: openings(&Predicate::All, false, None),
        sets: snapshot.segments.iter().map(|_| Arc::new(SegmentSets::new(&tree.scan, &phase))).collect(),
        table: state,
        tree: Arc::clone(&tree),
        predicate,
        gathered: PartitionStates::default(),
    };
    let operator = Arc::new(AggregateExec::new(shared, searcher.planner.partitions()));
    tracing::debug!(plan = %displayable(operator.as_ref()).one_line(), "aggregations planned");
    phase.within(request.timeout_ms, searcher.planner.drain(Arc::clone(&operator) as Arc<_>)).await?;
    let gathered = std::mem::take(&mut *operator.shared().gathered.lock());
    let max_buckets = request.max_buckets;
    // The phase may be over its time, and what it has gathered counts.
    let merging = request.work.clone();
    let reduced = searcher.compute.run(move || {
        let mut parts = gathered.into_iter().flatten();
        let (mut states, reservation) = match parts.next() {
            Some(first) => first,
            None => return Ok((States::new(&tree), None)),
        };
        for (other, others) in parts {
            states.merge(other, &merging)?;
            reservation.try_resize(states.memory())?;
            drop(others);
        }
        Ok((states, Some((reservation, tree))))
    });
    let (states, held) = reduced.await?;
    let tree = Arc::clone(&operator.shared().tree);
    let work = request.work.part();
    let (mut results, wanted, work) = searcher
        .compute
        .run(move || reduce(states, &tree, max_buckets, work).map_err(Error::while_reducing))
        .await?;
    drop(held);
    let fetching = work.phase();
    let fetch = all_top_hits(searcher, &request, wanted, now_ms, &fetching);
    let mut hits = fetching.within(fetching_limit(request.timeout_ms), fetch).await?;
    place_hits(&mut results, &mut hits);
    Ok(AggregationResults { results, timed_out: phase.timed_out() || fetching.timed_out(), work })
}

/// Fetches the hits of buckets; the last have none where time is over.
async fn all_top_hits(
    searcher: &Searcher,
    request: &Request<'_>,
    wanted: Vec<HitFetch>,
    now_ms: i64,
    work: &QueryContext,
) -> Result<Vec<Bytes>> {
    let mut hits = Vec::with_capacity(wanted.len());
    for mut wanted in wanted {
        if work.timed_out() {
            wanted.rows.clear();
        }
        hits.push(top_hits(searcher, request, &wanted, now_ms, work).await?);
    }
    Ok(hits)
}

/// Fetches and writes the hits of one bucket, for some work, which holds their text.
async fn top_hits(
    searcher: &Searcher,
    request: &Request<'_>,
    wanted: &HitFetch,
    now_ms: i64,
    work: &QueryContext,
) -> Result<Bytes> {
    // What is fetched is given back once it is written.
    let (holder, work) = (work.clone(), &work.part());
    let shape = &wanted.shape;
    let (snapshot, query) = (&request.snapshot, request.query);
    let render = |list: HitList| {
        // What was fetched in time is rendered, also when time is over by then.
        let (shape, work) = (Arc::clone(shape), request.work.clone());
        searcher.compute.run(move || {
            let text = list.to_text(&shape.shown, &work)?;
            holder.hold(text.len())?;
            Ok(text)
        })
    };
    if let Some(path) = &shape.path {
        let element =
            |row: &TopRow| WantedElement { address: row.address, score: row.score, sort: row.sort.clone() };
        let rows = wanted.rows.iter().map(element).collect();
        let showing = ElementRendering {
            shown: &shape.shown,
            query: &Query::match_all(),
            scored: shape.scored,
            now_ms,
            work,
        };
        let hits = match element_hits::of_elements(snapshot, path, showing, rows, &searcher.compute).await {
            Err(Error::TimedOut) if work.timed_out() => Vec::new(),
            hits => hits?,
        };
        let list = HitList { total: Some((wanted.total, false)), max_score: wanted.max_score, hits };
        return render(list).await;
    }
    let (order, _) = Order::new(&[], snapshot, now_ms)?;
    let found = SearchHits {
        rows: FoundRows {
            keys: Vec::new(),
            scores: wanted.rows.iter().map(|row| row.score).collect(),
            addresses: wanted.rows.iter().map(|row| row.address).collect(),
            groups: Vec::new(),
        },
        order,
        scored: shape.scored,
        total: Some((wanted.total, false)),
        max_score: wanted.max_score,
        timed_out: false,
        terminated_early: None,
        failures: Vec::new(),
        profile: None,
    };
    let mut hits = searcher.hits(snapshot, query, &found, &shape.shown, now_ms, work).await?;
    for (hit, row) in hits.iter_mut().zip(&wanted.rows) {
        hit.sort.clone_from(&row.sort);
    }
    let list = HitList { total: found.total, max_score: found.max_score, hits };
    render(list).await
}

/// Makes results of merged states, in the order of the request.
pub(crate) fn reduce(
    mut states: States,
    tree: &Tree,
    max_buckets: u64,
    work: QueryContext,
) -> Result<(Results, Vec<HitFetch>, QueryContext)> {
    let mut reduction = Reduction {
        max_buckets,
        made: 0,
        backgrounds: &states.backgrounds,
        hits: Vec::new(),
        only: None,
        work,
    };
    let mut entries: Vec<(usize, Entry)> = Vec::new();
    let mut add = |subs: &mut SubCollectors, roots: &[Root]| -> Result<()> {
        for (sub, root) in subs.0.iter_mut().zip(roots) {
            for outcome in sub.collector.reduce(&[0], &mut reduction)? {
                entries.push((root.place, Entry { header: Arc::clone(&sub.header), outcome }));
            }
        }
        Ok(())
    };
    add(&mut states.roots, &tree.roots)?;
    add(&mut states.globals, &tree.globals)?;
    entries.sort_by_key(|(place, _)| *place);
    let Reduction { hits, work, .. } = reduction;
    Ok((Results(entries.into_iter().map(|(_, entry)| entry).collect()), hits, work))
}

/// Puts fetched hits where their numbers stand.
fn place_hits(results: &mut Results, hits: &mut [Bytes]) {
    for entry in &mut results.0 {
        match &mut entry.outcome {
            Outcome::TopHits { number, text } => {
                if let Some(hits) = hits.get_mut(*number) {
                    *text = std::mem::take(hits);
                }
            }
            Outcome::Single(single) => place_hits(&mut single.subs, hits),
            Outcome::Buckets(buckets) => {
                buckets.buckets.iter_mut().for_each(|bucket| place_hits(&mut bucket.subs, hits));
            }
            Outcome::Metric(_) => {}
        }
    }
}
