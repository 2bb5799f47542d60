//! The pools of compute threads under the names of OpenSearch's thread pools: for `_nodes/stats` and for metrics alike.

use millrace_runtime::PoolActivity;
use serde_json::{Map, Value, json};

/// Names of OpenSearch's thread pools that each pool of this server stands for; alert rules ask for `bulk` in place of `write`.
const NAMES: [(&str, &[&str]); 7] = [
    ("read", &["search", "get"]),
    ("ingest", &["write", "bulk"]),
    ("flush", &["flush", "refresh"]),
    ("follow", &["follow"]),
    ("maintain", &["force_merge"]),
    ("snapshot", &["snapshot"]),
    ("spare", &["spare"]),
];

/// Lists the pools under each of their names.
pub(super) fn named(pools: &[PoolActivity]) -> impl Iterator<Item = (&'static str, &PoolActivity)> {
    pools.iter().flat_map(|pool| {
        let names = NAMES.iter().find(|(own, _)| *own == pool.name);
        let names: &'static [&'static str] = names.map_or(&[], |(_, names)| *names);
        names.iter().map(move |name| (*name, pool))
    })
}

/// Renders the section `thread_pool` of the statistics of a node. Requests are refused before their jobs are queued: no pool rejects any.
pub(super) fn statistics(pools: &[PoolActivity]) -> Value {
    let section = named(pools).map(|(name, pool)| {
        let figures = json!({
            "threads": pool.threads,
            "queue": pool.queued,
            "active": pool.busy.len(),
            "rejected": 0,
            "largest": pool.threads,
            "completed": pool.completed,
        });
        (name.to_owned(), figures)
    });
    Value::Object(section.collect::<Map<_, _>>())
}
