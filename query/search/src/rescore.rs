//! Second scores: the best hits of each shard are scored again by other queries.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_dsl::query::Query;
use millrace_dsl::rescore::Rescore;
use millrace_matching::lower;
use millrace_matching::table::TableSnapshot;
use millrace_matching::table::resolve::{IndexContext, resolve};
use millrace_matching::table::statistics::Functions;
use millrace_scoring::collect::{self, Address};
use millrace_scoring::prepare::prepare;
use millrace_scoring::source::Source;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use crate::explain::{Explainer, Explanation};
use crate::plan::FoundRows;
use crate::searcher::{Search, SearchHits, Searcher};

impl Searcher {
    /// Finds the rows of a search by score, with second scores for the best of each shard.
    pub fn find_rescored<'a>(
        &'a self,
        search: Search<'a>,
        rescores: &'a [Rescore],
    ) -> BoxFuture<'a, Result<SearchHits>> {
        Box::pin(async move {
            let wanted = search.from.saturating_add(search.size);
            let window = rescores.iter().map(|rescore| rescore.window).max().unwrap_or(0).max(wanted);
            let (from, size) = (search.from, search.size);
            if size == 0 {
                return self.find(search).await;
            }
            let (snapshot, now_ms, work) = (Arc::clone(&search.snapshot), search.now_ms, search.work.clone());
            let global = search.global_statistics;
            let mut whole = self.find(Search { from: 0, size: window, ..search.clone() }).await?;
            let mut by_shard: Vec<Vec<collect::RowHit>> = Vec::new();
            if snapshot.shards <= 1 {
                by_shard.push(best(&whole.rows));
            } else {
                for shard in 0..snapshot.shards {
                    let own = Arc::new(only_shard(&snapshot, shard));
                    let search =
                        Search { snapshot: own, from: 0, size: window, track: None, ..search.clone() };
                    by_shard.push(best(&self.find(search).await?.rows));
                }
            }
            for rescore in rescores {
                for rows in &mut by_shard {
                    let again: Vec<Address> =
                        rows.iter().take(rescore.window).map(|row| row.address).collect();
                    let second =
                        self.scores(&snapshot, &rescore.query, &again, global, now_ms, &work).await?;
                    for (at, row) in rows.iter_mut().enumerate() {
                        row.score = rescored(rescore, row.score, second.get(at).copied().flatten());
                    }
                    rows.sort_unstable();
                }
            }
            let mut rows: Vec<collect::RowHit> = by_shard.into_iter().flatten().collect();
            rows.sort_unstable();
            whole.max_score = rows.first().map(|best| best.score);
            let shown = rows.into_iter().skip(from).take(size);
            let (scores, addresses) = shown.map(|row| (row.score, row.address)).unzip();
            whole.rows = FoundRows { keys: Vec::new(), scores, addresses, groups: Vec::new() };
            Ok(whole)
        })
    }

    /// Puts the second scores of a row around the explanation of its first. `seconds` explain the
    /// queries of the rescorers.
    pub async fn explain_rescored(
        &self,
        first: Explanation,
        address: Address,
        rescores: &[Rescore],
        seconds: &[Arc<Explainer>],
        work: &QueryContext,
    ) -> Result<Explanation> {
        let mut explained = first;
        for (rescore, second) in rescores.iter().zip(seconds) {
            let second = second.explain(&[address], &self.compute, work).await?.pop();
            let weighed = |part: Explanation, weight: f32, name: &str| {
                let score = part.score() * weight;
                let details = vec![part, Explanation::found(weight, name, Vec::new())];
                Explanation::found(score, "product of:", details)
            };
            let first = weighed(explained, rescore.query_weight, "primaryWeight");
            explained = match second.filter(|second| second.matched) {
                None => first,
                Some(second) => {
                    let second = weighed(second, rescore.rescore_query_weight, "secondaryWeight");
                    let score = rescore.mode.combine(first.score(), second.score());
                    Explanation::found(score, rescore.mode.description(), vec![first, second])
                }
            };
        }
        Ok(explained)
    }

    /// Scores rows by a query; `None` for those that do not match.
    async fn scores(
        &self,
        snapshot: &Arc<TableSnapshot>,
        query: &Query,
        addresses: &[Address],
        global_statistics: bool,
        now_ms: i64,
        work: &QueryContext,
    ) -> Result<Vec<Option<f32>>> {
        let predicate = lower::lower(query);
        let mut resolved = Vec::with_capacity(snapshot.indices.len());
        for index in &snapshot.indices {
            let context = IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms };
            let own = resolve(&predicate, context).map_err(|error| {
                let failure = error.into_shard_failure(&index.meta.name, &index.meta.uuid_text(), 0);
                Error::SearchPhase { failures: vec![failure] }
            })?;
            resolved.push(Some(own));
        }
        let mut by_segment: HashMap<u32, Vec<(u32, usize)>> = HashMap::new();
        for (place, address) in addresses.iter().enumerate() {
            by_segment.entry(address.segment).or_default().push((address.row, place));
        }
        let (snapshot, count, work) = (Arc::clone(snapshot), addresses.len(), work.part());
        self.compute
            .run(move || {
                let functions = Functions::new(snapshot.shards, global_statistics);
                let mut scores = vec![None; count];
                for (number, mut rows) in by_segment {
                    // Scorers go forward only.
                    rows.sort_unstable();
                    let Some(segment) = snapshot.segments.get(number as usize) else { continue };
                    let Some(Some(own)) = resolved.get(segment.index) else { continue };
                    let (index, shard) = (segment.index, segment.shard);
                    let source = Source {
                        functions: functions.of(&snapshot, &resolved, index, shard, true, &work)?,
                        ..snapshot.source(number, segment, &work)?
                    };
                    let among: RoaringBitmap = rows.iter().map(|(row, _)| *row).collect();
                    let prepared = prepare(&own.node, &source, Some(&among))?;
                    let mut scorer = prepared.scorer(source.inverted.as_ref(), source.reader.rows())?;
                    for (row, place) in rows {
                        if scorer.seek(row) == row {
                            scores[place] = Some(scorer.score());
                        }
                    }
                    drop(scorer);
                    if let Some(error) = prepared.failure() {
                        return Err(error);
                    }
                }
                Ok(scores)
            })
            .await
    }
}

/// Combines the scores of a row; a row that the second query does not match, or behind the window, keeps its weighted first
/// score.
pub(crate) fn rescored(rescore: &Rescore, first: f32, second: Option<f32>) -> f32 {
    let first = first * rescore.query_weight;
    match second {
        Some(second) => rescore.mode.combine(first, second * rescore.rescore_query_weight),
        None => first,
    }
}

fn best(rows: &FoundRows) -> Vec<collect::RowHit> {
    let scored = rows.scores.iter().zip(&rows.addresses);
    scored.map(|(score, address)| collect::RowHit { score: *score, address: *address }).collect()
}

/// Cuts a snapshot to one shard; numbers stay as they are.
fn only_shard(snapshot: &TableSnapshot, shard: u32) -> TableSnapshot {
    let mut own = snapshot.clone();
    for segment in own.segments.iter_mut().filter(|segment| segment.shard != shard) {
        let mut rows = RoaringBitmap::new();
        rows.insert_range(0..segment.reader.rows());
        segment.deleted = Arc::new(rows);
    }
    own
}
