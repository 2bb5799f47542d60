//! `_cluster/health`: green when every shard is served, red for indices that do not exist.
//!
//! Copies of shards are the object store's business: an index is green when its one copy of each
//! shard is served by this node, whatever `number_of_replicas` says.

use std::time::Duration;

use millrace_storage::metadata::{IndexMeta, IndicesOptions, Metadata};
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// How often a request that waits looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a request waits for.
#[derive(Debug, Default)]
struct Wanted {
    nodes: Option<String>,
    active_shards: Option<u64>,
}

/// The state of the shards of some indices.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    /// Served shards.
    pub(super) shards: u64,
    /// Whether what was asked for exists.
    pub(super) found: bool,
}

impl Health {
    /// Returns the status as a word.
    pub(super) fn status(&self) -> &'static str {
        if self.found { "green" } else { "red" }
    }
}

/// Counts the shards of all indices.
pub(super) fn of_all(state: &Metadata) -> Health {
    Health { shards: state.indices.values().map(|meta| u64::from(meta.shards)).sum(), found: true }
}

/// `GET /_cluster/health[/<index>]`
pub(super) async fn get(
    api: &Api,
    request: &mut Request,
    expression: Option<&str>,
) -> Result<Response, Error> {
    let params = &mut request.params;
    let level = params.take("level").unwrap_or_else(|| "cluster".into());
    if !matches!(level.as_str(), "cluster" | "indices" | "shards" | "awareness_attributes") {
        return Err(Error::illegal_argument(format!("unknown level value [{level}]")));
    }
    let timeout = params.take_time("timeout")?.unwrap_or(Duration::from_secs(30));
    options::manager(params)?;
    if let Some(status) = params.take("wait_for_status")
        && !["green", "yellow", "red"].iter().any(|known| status.eq_ignore_ascii_case(known))
    {
        return Err(Error::illegal_argument(format!("unknown cluster health status [{status}]")));
    }
    params.take_bool("wait_for_no_relocating_shards")?;
    params.take_bool("wait_for_no_initializing_shards")?;
    if let Some(priority) = params.take("wait_for_events")
        && !["immediate", "urgent", "high", "normal", "low", "languid"].contains(&priority.as_str())
    {
        return Err(Error::illegal_argument(format!(
            "No enum constant org.opensearch.common.Priority.{}",
            priority.to_uppercase()
        )));
    }
    let mut wanted = Wanted { nodes: params.take("wait_for_nodes"), active_shards: None };
    if let Some(count) = params.take("wait_for_active_shards").filter(|count| count != "all") {
        let count = count
            .parse()
            .map_err(|_| Error::illegal_argument(format!("cannot parse ActiveShardCount[{count}]")))?;
        wanted.active_shards = Some(count);
    }
    if let Some(nodes) = &wanted.nodes {
        satisfies(nodes, 1)?;
    }
    let lenient =
        IndicesOptions { ignore_unavailable: true, expand_hidden: true, ..IndicesOptions::open_and_closed() };
    let options = options::indices(params, lenient)?;
    request.finish()?;

    let deadline = tokio::time::Instant::now().checked_add(timeout.min(Duration::from_secs(86_400)));
    loop {
        let state = api.engine.metadata();
        let (health, metas) = look(api, &state, expression, &options)?;
        let reached = health.found
            && wanted.active_shards.is_none_or(|count| health.shards >= count)
            && wanted.nodes.as_deref().is_none_or(|nodes| satisfies(nodes, 1).unwrap_or(false));
        let expired = deadline.is_some_and(|deadline| tokio::time::Instant::now() >= deadline);
        if reached || expired {
            let status = if reached { 200 } else { 408 };
            return Ok(Response::json(status, render(api, &health, &metas, &level, !reached)));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn look(
    api: &Api,
    state: &Metadata,
    expression: Option<&str>,
    options: &IndicesOptions,
) -> Result<(Health, Vec<std::sync::Arc<IndexMeta>>), Error> {
    let metas = state.resolve(expression.unwrap_or("_all"), options, api.engine.clock().now_ms())?;
    let missing = expression.is_some_and(|expression| {
        expression.split(',').any(|name| {
            !name.contains(['*', '<'])
                && !matches!(name, "" | "_all")
                && !state.indices.contains_key(name)
                && state.alias_indices(name).is_none()
        })
    });
    let shards = metas.iter().map(|meta| u64::from(meta.shards)).sum();
    Ok((Health { shards, found: !missing }, metas))
}

/// Whether a count of nodes satisfies `3`, `>=2`, `ge(2)` and the like.
fn satisfies(condition: &str, nodes: u64) -> Result<bool, Error> {
    let wrong = || Error::illegal_argument(format!("failed to parse wait_for_nodes [{condition}]"));
    let condition = condition.trim();
    let in_words = |word: &str| condition.strip_prefix(word).and_then(|rest| rest.strip_suffix(')'));
    let (compare, number): (fn(u64, u64) -> bool, &str) =
        if let Some(rest) = condition.strip_prefix(">=").or_else(|| in_words("ge(")) {
            (|a, b| a >= b, rest)
        } else if let Some(rest) = condition.strip_prefix("<=").or_else(|| in_words("le(")) {
            (|a, b| a <= b, rest)
        } else if let Some(rest) = condition.strip_prefix('>').or_else(|| in_words("gt(")) {
            (|a, b| a > b, rest)
        } else if let Some(rest) = condition.strip_prefix('<').or_else(|| in_words("lt(")) {
            (|a, b| a < b, rest)
        } else {
            (|a, b| a == b, condition)
        };
    Ok(compare(nodes, number.trim().parse().map_err(|_| wrong())?))
}

fn render(
    api: &Api,
    health: &Health,
    metas: &[std::sync::Arc<IndexMeta>],
    level: &str,
    timed_out: bool,
) -> Value {
    let mut answer = json!({
        "cluster_name": api.identity.cluster,
        "status": health.status(),
        "timed_out": timed_out,
        "number_of_nodes": 1,
        "number_of_data_nodes": 1,
        "discovered_master": true,
        "discovered_cluster_manager": true,
        "active_primary_shards": health.shards,
        "active_shards": health.shards,
        "relocating_shards": 0,
        "initializing_shards": 0,
        "unassigned_shards": 0,
        "delayed_unassigned_shards": 0,
        "number_of_pending_tasks": 0,
        "number_of_in_flight_fetch": 0,
        "task_max_waiting_in_queue_millis": 0,
        "active_shards_percent_as_number": 100.0,
    });
    if level == "indices" || level == "shards" {
        let indices: Map<String, Value> = metas
            .iter()
            .map(|meta| {
                let mut index = json!({
                    "status": "green",
                    "number_of_shards": meta.shards,
                    "number_of_replicas": meta.replicas,
                    "active_primary_shards": meta.shards,
                    "active_shards": meta.shards,
                    "relocating_shards": 0,
                    "initializing_shards": 0,
                    "unassigned_shards": 0,
                });
                if level == "shards" {
                    let shards: Map<String, Value> = (0..meta.shards)
                        .map(|shard| {
                            let health = json!({
                                "status": "green",
                                "primary_active": true,
                                "active_shards": 1,
                                "relocating_shards": 0,
                                "initializing_shards": 0,
                                "unassigned_shards": 0,
                            });
                            (shard.to_string(), health)
                        })
                        .collect();
                    index["shards"] = shards.into();
                }
                (meta.name.to_string(), index)
            })
            .collect();
        answer["indices"] = indices.into();
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_conditions() {
        for (condition, expected) in [
            ("1", true),
            ("2", false),
            (">=1", true),
            ("ge(2)", false),
            ("<2", true),
            ("gt(0)", true),
            ("<=1", true),
            ("lt(1)", false),
        ] {
            assert_eq!(satisfies(condition, 1).unwrap(), expected, "{condition}");
        }
        assert!(satisfies("many", 1).is_err());
    }
}
