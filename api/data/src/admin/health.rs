//! `_cluster/health`: green when every shard is served, yellow when one is served whose upkeep fails or the disk is at the
//! flood stage, red when one is not or has a damaged file, and for indices that do not exist.
//!
//! A node whose log has stopped or whose reads of the object store fail is red, one whose catalog cannot be written yellow.
//! Rules that are not evaluated, or whose alerts cannot be written, make it yellow, too, and `faults` says why, as of damaged shards.
//!
//! Copies of shards are the object store's business: an index is green when its one copy of each
//! shard is served by this node, whatever `number_of_replicas` says. Of what fails only that it does is told: the
//! server's log has the rest.

use std::time::Duration;

use millrace_catalog::metadata::{IndexMeta, IndicesOptions, Metadata};
use millrace_engine::{NodeFault, Session, ShardFault};
use millrace_runtime::Instant;
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Damaged shards that are told of by name.
const MOST_TOLD: usize = 20;
/// Interval between two looks of a waiting request.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Condition that a request waits for.
#[derive(Debug, Default)]
struct HealthCondition {
    status: Option<Status>,
    nodes: Option<String>,
    active_shards: Option<u64>,
}

/// Health of shards, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Green,
    Yellow,
    Red,
}

impl Status {
    /// Reads a status in any case.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let known = [Self::Green, Self::Yellow, Self::Red];
        known
            .into_iter()
            .find(|status| text.eq_ignore_ascii_case(status.name()))
            .ok_or_else(|| Error::illegal_argument(format!("unknown cluster health status [{text}]")))
    }

    /// Returns the status as a word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Yellow => "yellow",
            Self::Red => "red",
        }
    }
}

/// Counts of the shards of some indices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    /// All of them.
    pub(super) shards: u64,
    /// Those that answer nothing.
    pub(super) lost: u64,
    /// Those that serve, but for what needs a damaged file.
    pub(super) unreadable: u64,
    /// Those that serve and whose upkeep fails.
    pub(super) failing: u64,
}

impl Health {
    /// Counts the shards with these faults.
    fn new(faults: &[Option<ShardFault>]) -> Self {
        let count = |fault| faults.iter().filter(|found| **found == Some(fault)).count() as u64;
        let lost = faults.iter().flatten().filter(|fault| fault.is_out_of_use()).count() as u64;
        Self {
            shards: faults.len() as u64,
            lost,
            unreadable: count(ShardFault::Unreadable),
            failing: count(ShardFault::Failing),
        }
    }

    /// Counts the shards that serve.
    pub(super) fn active(self) -> u64 {
        self.shards - self.lost
    }

    /// Returns how many of a hundred shards serve; all, where there are none.
    pub(super) fn active_percent(self) -> f64 {
        if self.shards == 0 { 100.0 } else { 100.0 * self.active() as f64 / self.shards as f64 }
    }

    /// Returns the status of the worst shard.
    pub(super) fn status(self) -> Status {
        match (self.lost + self.unreadable, self.failing) {
            (0, 0) => Status::Green,
            (0, _) => Status::Yellow,
            _ => Status::Red,
        }
    }
}

impl std::iter::Sum for Health {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            shards: sum.shards + one.shards,
            lost: sum.lost + one.lost,
            unreadable: sum.unreadable + one.unreadable,
            failing: sum.failing + one.failing,
        })
    }
}

/// Tells of each shard of an index what it cannot do, if anything.
pub(super) fn faults(api: &Api, meta: &IndexMeta) -> Vec<Option<ShardFault>> {
    faults_in(&api.session, &api.session.metadata(), meta)
}

fn faults_in(session: &Session, metadata: &Metadata, meta: &IndexMeta) -> Vec<Option<ShardFault>> {
    // Nothing is written to it any more.
    let usual = metadata.is_flooded(&meta.name).then_some(ShardFault::Failing);
    let faults = session.index(&meta.name).map(|index| index.faults());
    let faults = faults.unwrap_or_else(|_| vec![None; meta.shards as usize]);
    faults.into_iter().map(|fault| fault.or(usual)).collect()
}

/// Says which shards are out of use or have damaged files, of the first some.
fn damaged_shards(api: &Api, metas: &[std::sync::Arc<IndexMeta>]) -> Vec<String> {
    let each = metas.iter().flat_map(|meta| {
        faults(api, meta).into_iter().enumerate().filter_map(|(shard, fault)| {
            let what = match fault? {
                ShardFault::Damaged => "is out of use: a file of it is missing or damaged",
                ShardFault::Unsupported => {
                    "is out of use: this version does not accept the settings or the mapping of the index"
                }
                ShardFault::Unreadable => "has a missing or damaged file: what needs that fails",
                ShardFault::Failing => return None,
            };
            Some(format!("shard [{shard}] of [{}] {what}; the log of the server names it", meta.name))
        })
    });
    each.take(MOST_TOLD).collect()
}

/// Counts the shards of an index, as a session with its metadata sees it.
pub(super) fn of_index_in(session: &Session, metadata: &Metadata, meta: &IndexMeta) -> Health {
    Health::new(&faults_in(session, metadata, meta))
}

/// Counts the shards of an index.
pub(super) fn of_index(api: &Api, meta: &IndexMeta) -> Health {
    Health::new(&faults(api, meta))
}

/// Counts the shards of all indices.
pub(super) fn of_all(api: &Api, state: &Metadata) -> Health {
    state.indices().map(|meta| of_index(api, meta)).sum()
}

/// `GET /_cluster/health[/<index>]`
pub(crate) async fn get(
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
    let status = params.take("wait_for_status").map(|status| Status::parse(&status)).transpose()?;
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
    let mut wanted = HealthCondition { status, nodes: params.take("wait_for_nodes"), active_shards: None };
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

    let deadline = Instant::now().checked_add(timeout.min(Duration::from_secs(86_400)));
    loop {
        let state = api.session.metadata();
        let (found, metas) = find_indices(api, &state, expression, &options)?;
        let health: Health = metas.iter().map(|meta| of_index(api, meta)).sum();
        let mut rules = api.faults.as_ref().map(|source| source.faults()).unwrap_or_default();
        let troubles = api.session.troubles();
        let status_now = match rules.is_empty() {
            true => health.status(),
            false => health.status().max(Status::Yellow),
        };
        let status_now = of_node(api, status_now);
        rules.extend(troubles.iter().map(ToString::to_string));
        rules.extend(damaged_shards(api, &metas));
        let reached = found
            && wanted.status.is_none_or(|status| status_now <= status)
            && wanted.active_shards.is_none_or(|count| health.active() >= count)
            && wanted.nodes.as_deref().is_none_or(|nodes| satisfies(nodes, 1).unwrap_or(false));
        let expired = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if reached || expired {
            let status = if reached { 200 } else { 408 };
            let worst = if found { status_now } else { Status::Red };
            let mut answer = render(api, (worst, health), &metas, &level, !reached);
            if !rules.is_empty() {
                answer["faults"] = rules.into();
            }
            return Ok(Response::json(status, answer));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Returns the status of the node whose shards have that one.
pub(super) fn of_node(api: &Api, shards: Status) -> Status {
    api.session.troubles().into_iter().map(of_trouble).fold(shards, Status::max)
}

/// Returns the status of a node that is in trouble.
fn of_trouble(trouble: NodeFault) -> Status {
    match trouble {
        NodeFault::LogStopped | NodeFault::OwnershipLost | NodeFault::ReadsFail => Status::Red,
        NodeFault::CatalogFails => Status::Yellow,
    }
}

/// Finds the indices that an expression means, and whether all that it names exist.
fn find_indices(
    api: &Api,
    state: &Metadata,
    expression: Option<&str>,
    options: &IndicesOptions,
) -> Result<(bool, Vec<std::sync::Arc<IndexMeta>>), Error> {
    let metas = state.resolve(expression.unwrap_or("_all"), options, api.session.clock().now_ms())?;
    let missing = expression.is_some_and(|expression| {
        expression.split(',').any(|name| {
            !name.contains(['*', '<'])
                && !matches!(name, "" | "_all")
                && state.index(name).is_none()
                && state.alias_indices(name).is_none()
        })
    });
    Ok((!missing, metas))
}

/// Returns whether a count of nodes satisfies `3`, `>=2`, `ge(2)` and the like.
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
    (status, health): (Status, Health),
    metas: &[std::sync::Arc<IndexMeta>],
    level: &str,
    timed_out: bool,
) -> Value {
    let mut answer = json!({
        "cluster_name": api.identity.cluster,
        "status": status.name(),
        "timed_out": timed_out,
        "number_of_nodes": 1,
        "number_of_data_nodes": 1,
        "discovered_master": true,
        "discovered_cluster_manager": true,
        "active_primary_shards": health.active(),
        "active_shards": health.active(),
        "relocating_shards": 0,
        "initializing_shards": 0,
        "unassigned_shards": health.lost,
        "unassigned_primary_shards": health.lost,
        "delayed_unassigned_shards": 0,
        "number_of_pending_tasks": 0,
        "number_of_in_flight_fetch": 0,
        "task_max_waiting_in_queue_millis": 0,
        "active_shards_percent_as_number": health.active_percent(),
    });
    if level == "indices" || level == "shards" {
        let indices: Map<String, Value> = metas
            .iter()
            .map(|meta| {
                let faults = faults(api, meta);
                let health = Health::new(&faults);
                let mut index = json!({
                    "status": health.status().name(),
                    "number_of_shards": meta.shards,
                    "number_of_replicas": meta.replicas,
                    "active_primary_shards": health.active(),
                    "active_shards": health.active(),
                    "relocating_shards": 0,
                    "initializing_shards": 0,
                    "unassigned_shards": health.lost,
                    "unassigned_primary_shards": health.lost,
                });
                if level == "shards" {
                    let shards: Map<String, Value> = faults
                        .iter()
                        .enumerate()
                        .map(|(shard, fault)| {
                            let health = Health::new(std::slice::from_ref(fault));
                            let health = json!({
                                "status": health.status().name(),
                                "primary_active": health.lost == 0,
                                "active_shards": health.active(),
                                "relocating_shards": 0,
                                "initializing_shards": 0,
                                "unassigned_shards": health.lost,
                                "unassigned_primary_shards": health.lost,
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
    fn the_worst_shard_decides() {
        let (lost, failing) = (Some(ShardFault::Damaged), Some(ShardFault::Failing));
        let unreadable = Some(ShardFault::Unreadable);
        for (faults, status, active, percent) in [
            (vec![], "green", 0, 100.0),
            (vec![None, None], "green", 2, 100.0),
            (vec![None, failing], "yellow", 2, 100.0),
            (vec![None, failing, unreadable], "red", 3, 100.0),
            (vec![None, failing, lost, None], "red", 3, 75.0),
        ] {
            let health = Health::new(&faults);
            let found = (health.status().name(), health.active(), health.active_percent());
            assert_eq!(found, (status, active, percent), "{faults:?}");
        }
        assert!(Status::parse("Yellow").unwrap() < Status::Red && Status::parse("blue").is_err());
    }

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
