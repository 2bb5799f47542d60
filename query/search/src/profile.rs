//! `profile`: the plan of a search and where its time went, in the shape of OpenSearch's.
//!
//! Each shard has one query entry: what is evaluated inside of its segments. The parts of Lucene's
//! breakdown that have a counterpart carry measured times, the others are 0. The plan around the
//! scans, which all shards share, is told beside them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_matching::table::{ScanHandle, TableSnapshot};
use millrace_work::error::cut_short;
use serde_json::{Map, Value, json};

use crate::response::NODE;

/// Longest text of a query that is told for each shard, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 16 << 10;

/// Measurements of a search.
#[derive(Clone, Debug)]
pub struct SearchProfile {
    /// The physical plan.
    pub plan: String,
    /// Time until the plan was made.
    pub planned: Duration,
    /// Time that it ran.
    pub run: Duration,
    /// Times of shards, and what was counted.
    pub handle: Arc<ScanHandle>,
}

/// Times and counts of Lucene's breakdown, in its names.
const BREAKDOWN: [&str; 9] = [
    "advance",
    "build_scorer",
    "compute_max_score",
    "create_weight",
    "match",
    "next_doc",
    "score",
    "set_min_competitive_score",
    "shallow_advance",
];

/// Renders the profile: `aggregations` are those of each shard, `text` describes the query for an index, by
/// its place in the snapshot.
pub fn render(
    measured: &SearchProfile,
    snapshot: &TableSnapshot,
    hits_wanted: bool,
    aggregations: Vec<Vec<Value>>,
    text: &dyn Fn(usize) -> String,
) -> Value {
    let planned = nanos(measured.planned);
    let mut shards = Vec::new();
    let mut aggregations = aggregations.into_iter();
    for (at, (index, shard)) in snapshot.shards().enumerate() {
        let timing = measured.handle.timings.get(at);
        let read = |part: fn(&millrace_matching::table::Timing) -> &std::sync::atomic::AtomicU64| {
            timing.map_or(0, |timing| part(timing).load(Ordering::Relaxed))
        };
        let (prepare, visit) = (read(|timing| &timing.prepare), read(|timing| &timing.visit));
        let segments = read(|timing| &timing.segments);
        let mut breakdown = Map::new();
        for name in BREAKDOWN {
            let (time, count) = match name {
                "create_weight" => (planned, 1),
                "build_scorer" => (prepare, segments),
                "next_doc" => (visit, segments),
                _ => (0, 0),
            };
            breakdown.insert(name.into(), json!(time));
            breakdown.insert(format!("{name}_count"), json!(count));
        }
        let place = snapshot.indices.iter().position(|own| std::ptr::eq(own, index)).unwrap_or_default();
        let query = json!({
            "type": "IndexScanExec",
            "description": cut_short(text(place), MAX_DESCRIPTION_BYTES),
            "time_in_nanos": planned + prepare + visit,
            "breakdown": breakdown,
        });
        let (collector, reason) = match hits_wanted {
            true => ("SortExec", "search_top_hits"),
            false => ("IndexScanExec", "search_count"),
        };
        shards.push(json!({
            "id": format!("[{NODE}][{}][{shard}]", index.meta.name),
            "inbound_network_time_in_millis": 0,
            "outbound_network_time_in_millis": 0,
            "searches": [{
                "query": [query],
                "rewrite_time": planned,
                "collector": [{"name": collector, "reason": reason, "time_in_nanos": visit}],
            }],
            "aggregations": aggregations.next().unwrap_or_default(),
        }));
    }
    json!({
        "shards": shards,
        "plan": {
            "description": measured.plan.trim_end().lines().collect::<Vec<_>>(),
            "planning_time_in_nanos": planned,
            "execution_time_in_nanos": nanos(measured.run),
        },
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
