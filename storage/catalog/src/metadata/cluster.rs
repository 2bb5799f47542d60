//! Cluster settings: which there are, how they are updated, and what follows from them.

use std::time::Duration;

use millrace_mapping::pattern;
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::settings::{Kind, did_you_mean, flatten, parse_time, similar};
use super::{Metadata, MetadataChange, retention};
use Kind::{Any, Bool, Int, OneOf, Text, Time};

/// Settings that Millrace itself reads, or that clients look up with their defaults.
#[rustfmt::skip]
const KNOWN: &[(&str, Kind, &str)] = &[
    ("action.auto_create_index", Text, "true"),
    ("action.destructive_requires_name", Bool, "false"),
    ("action.search.shard_count.limit", Int(1, i64::MAX), "9223372036854775807"),
    ("cluster.max_shards_per_node", Int(1, i32::MAX as i64), "100000"),
    ("cluster.routing.allocation.enable", OneOf(&["all", "primaries", "new_primaries", "none"]), "all"),
    ("cluster.routing.rebalance.enable", OneOf(&["all", "primaries", "replicas", "none"]), "all"),
    ("cluster.routing.allocation.disk.threshold_enabled", Bool, "true"),
    ("cluster.routing.allocation.disk.watermark.low", Kind::BytesOrPercent, "85%"),
    ("cluster.routing.allocation.disk.watermark.high", Kind::BytesOrPercent, "90%"),
    ("cluster.routing.allocation.disk.watermark.flood_stage", Kind::BytesOrPercent, "95%"),
    ("cluster.routing.allocation.disk.watermark.high.max_headroom", Kind::Bytes, "150gb"),
    ("cluster.routing.allocation.disk.watermark.flood_stage.max_headroom", Kind::Bytes, "100gb"),
    ("cluster.info.update.interval", Time, "30s"),
    ("indices.recovery.max_bytes_per_sec", Kind::Bytes, "40mb"),
    ("indices.breaker.total.limit", Kind::BytesOrPercent, "95%"),
    ("indices.breaker.request.limit", Kind::BytesOrPercent, "60%"),
    ("indices.breaker.fielddata.limit", Kind::BytesOrPercent, "40%"),
    ("plugins.index_state_management.enabled", Bool, "true"),
    ("plugins.index_state_management.job_interval", Int(1, i32::MAX as i64), "5"),
    ("retention.max_age.alert", Time, retention::OWN_RETENTION[0].3),
    ("retention.max_age.alert_error", Time, retention::OWN_RETENTION[1].3),
    ("retention.max_age.alert_silence", Time, retention::OWN_RETENTION[2].3),
    ("retention.max_age.intelligence", Time, retention::OWN_RETENTION[3].3),
    ("retention.max_age.dead_letters", Time, retention::OWN_RETENTION[4].3),
    ("retention.max_age.tasks", Time, retention::OWN_RETENTION[5].3),
    ("retention.max_age.agent_status", Time, retention::OWN_RETENTION[6].3),
    (retention::RETENTION_HOLDS, Text, ""),
    ("retention.max_bytes", Text, ""),
    ("retention.max_disk_used", Text, ""),
    ("search.max_buckets", Int(0, i32::MAX as i64), "65535"),
    ("search.max_open_scroll_context", Int(0, i32::MAX as i64), "500"),
    ("search.default_keep_alive", Time, "5m"),
    ("search.max_keep_alive", Time, "24h"),
    ("search.default_search_timeout", Time, "-1"),
    ("search.default_allow_partial_results", Bool, "true"),
    ("search.allow_expensive_queries", Bool, "true"),
    ("search.low_level_cancellation", Bool, "true"),
    ("plugins.sql.enabled", Bool, "true"),
    ("plugins.sql.delete.enabled", Bool, "false"),
    ("plugins.sql.timeout", Time, "1h"),
    ("plugins.sql.slowlog", Int(0, i32::MAX as i64), "2"),
    ("plugins.sql.cursor.keep_alive", Time, "1m"),
    ("plugins.sql.cursor.fetch_size", Int(0, i32::MAX as i64), "1000"),
    ("plugins.ppl.enabled", Bool, "true"),
    ("plugins.ppl.query.timeout", Time, "300s"),
    ("plugins.ppl.subsearch.maxout", Int(0, i32::MAX as i64), "10000"),
    ("plugins.ppl.join.subsearch_maxout", Int(0, i32::MAX as i64), "50000"),
    ("plugins.ppl.values.max.limit", Int(0, i32::MAX as i64), "0"),
    ("plugins.ppl.rex.max_match.limit", Int(0, i32::MAX as i64), "10"),
    ("plugins.ppl.syntax.legacy.preferred", Bool, "true"),
    ("plugins.calcite.enabled", Bool, "true"),
    ("plugins.query.size_limit", Int(0, i32::MAX as i64), "200"),
    ("plugins.query.memory_limit", Kind::BytesOrPercent, "85%"),
];

/// Settings that a running node does not change.
const FIXED: [&str; 7] = [
    "cluster.name",
    "cluster.initial_master_nodes",
    "indices.query.bool.max_clause_count",
    "node.",
    "path.",
    "http.",
    "network.",
];

/// Families of settings that are kept as given.
const GROUPS: [&str; 8] =
    ["cluster.", "indices.", "search.", "plugins.", "opendistro.", "logger.", "script.", "ingest."];

/// Reads the default of a cluster setting.
pub(super) fn default_of(key: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, ..)| *known == key).map(|(.., default)| *default)
}

/// Lists the defaults of all cluster settings that are not set, for `include_defaults`.
pub fn cluster_defaults(state: &Metadata) -> Map<String, Value> {
    KNOWN
        .iter()
        .filter(|(key, ..)| !state.persistent.contains_key(*key) && !state.transient.contains_key(*key))
        .map(|(key, _, default)| ((*key).to_owned(), Value::from(*default)))
        .collect()
}

/// A parsed `PUT _cluster/settings` body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSettingsUpdate {
    /// Persistent settings to set (or, with null, to reset), flattened.
    pub persistent: Map<String, Value>,
    /// Transient settings to set or reset.
    pub transient: Map<String, Value>,
}

impl ClusterSettingsUpdate {
    /// Parses a body.
    ///
    /// # Errors
    /// `Parse` for an unknown member, `Validation` where nothing is set, `IllegalArgument`.
    pub fn parse(body: &Value) -> Result<Self> {
        let mut update = Self::default();
        if let Some(members) = body.as_object() {
            for (name, value) in members {
                match name.as_str() {
                    "persistent" => update.persistent = flatten(value)?,
                    "transient" => update.transient = flatten(value)?,
                    _ => {
                        return Err(Error::Parse(format!(
                            "[cluster_update_settings_request] unknown field [{name}]"
                        )));
                    }
                }
            }
        }
        if update.persistent.is_empty() && update.transient.is_empty() {
            return Err(Error::Validation("1: no settings to update;".into()));
        }
        Ok(update)
    }
}

impl Metadata {
    /// Decides an update of the cluster settings.
    ///
    /// # Errors
    /// `IllegalArgument` for a setting that is not known, fixed, or has a wrong value.
    pub fn update_cluster_settings(&self, update: &ClusterSettingsUpdate) -> Result<Vec<MetadataChange>> {
        let transient = updated("transient", &self.transient, &update.transient)?;
        let persistent = updated("persistent", &self.persistent, &update.persistent)?;
        check_keep_alive(&persistent, &transient)?;
        let mut changes = Vec::new();
        if persistent != *self.persistent {
            changes.push(MetadataChange::PutPersistent(persistent));
        }
        if transient != *self.transient {
            changes.push(MetadataChange::PutTransient(transient));
        }
        Ok(changes)
    }

    /// Decides whether a write may create an index of that name.
    ///
    /// # Errors
    /// [`Error::AutoCreateRefused`] where `action.auto_create_index` forbids it.
    pub fn auto_create_allowed(&self, name: &str) -> Result<()> {
        let setting = self.cluster_setting("action.auto_create_index");
        let setting = setting.as_ref().and_then(Value::as_str).unwrap_or("true");
        let refuse = |reason: String| Err(Error::AutoCreateRefused { index: name.to_owned(), reason });
        match setting {
            "true" => return Ok(()),
            "false" => return refuse("and [action.auto_create_index] is [false]".into()),
            _ => {}
        }
        for rule in setting.split(',').map(str::trim) {
            let (allow, glob) = match rule.strip_prefix('-') {
                Some(glob) => (false, glob),
                None => (true, rule.strip_prefix('+').unwrap_or(rule)),
            };
            if !pattern::matches(glob, name) {
                continue;
            }
            if allow {
                return Ok(());
            }
            return refuse(format!(
                "and [action.auto_create_index] contains [{rule}] which forbids automatic creation of the index"
            ));
        }
        refuse(format!("and [action.auto_create_index] ([{setting}]) doesn't match"))
    }

    /// Returns whether deletion of many things at once has to name each.
    pub fn destructive_requires_name(&self) -> bool {
        self.cluster_setting("action.destructive_requires_name").is_some_and(|value| value == "true")
    }
}

fn updated(
    scope: &str,
    current: &Map<String, Value>,
    update: &Map<String, Value>,
) -> Result<Map<String, Value>> {
    let mut next = current.clone();
    // Resets come first, so that `a.*: null` together with `a.b: 1` leaves `a.b`.
    for key in update.iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key) {
        if pattern::is_wildcard(key) {
            next.retain(|set, _| !pattern::matches(key, set));
        } else if next.remove(key).is_none() {
            check(scope, key, None)?;
        }
    }
    for (key, value) in update.iter().filter(|(_, value)| !value.is_null()) {
        check(scope, key, Some(value))?;
        next.insert(key.clone(), value.clone());
    }
    Ok(next)
}

fn check(scope: &str, key: &str, value: Option<&Value>) -> Result<()> {
    if let Some((_, kind, _)) = KNOWN.iter().find(|(known, ..)| *known == key) {
        let Some(value) = value else { return Ok(()) };
        kind.check(key, value)?;
        if key == "action.auto_create_index" {
            check_auto_create(value)?;
        }
        if key == retention::RETENTION_HOLDS {
            retention::check_holds(value.as_str().unwrap_or_default())?;
        }
        for setting in [retention::MAX_BYTES, retention::MAX_DISK_USED] {
            if key == setting {
                retention::parse(setting, value.as_str().unwrap_or_default())?;
            }
        }
        return Ok(());
    }
    let fixed = |prefix: &str| key == prefix || (prefix.ends_with('.') && key.starts_with(prefix));
    // One that was kept before it was refused can be taken back.
    if value.is_some() && FIXED.into_iter().any(fixed) {
        return Err(Error::IllegalArgument(format!("{scope} setting [{key}], not dynamically updateable")));
    }
    if key.starts_with("cluster.blocks.") {
        return Err(Error::IllegalArgument(format!(
            "{scope} setting [{key}] is not supported; set index.blocks.* on the indices instead"
        )));
    }
    if key.starts_with("archived.")
        || GROUPS.iter().any(|group| key.len() > group.len() && key.starts_with(group))
    {
        return value.map_or(Ok(()), |value| Any.check(key, value));
    }
    let candidates = similar(key, KNOWN.iter().map(|(known, ..)| *known));
    let hint = did_you_mean(&candidates).unwrap_or_default();
    Err(Error::IllegalArgument(format!("{scope} setting [{key}], not recognized{hint}")))
}

/// Checks that a search context is not kept for longer by default than it may be.
fn check_keep_alive(persistent: &Map<String, Value>, transient: &Map<String, Value>) -> Result<()> {
    let read = |key: &str| {
        let set = transient.get(key).or_else(|| persistent.get(key)).and_then(Value::as_str);
        let text = set.or_else(|| default_of(key)).unwrap_or("-1").to_owned();
        let time = parse_time(&text).ok().flatten();
        (text, time.unwrap_or(Duration::MAX))
    };
    let (usual, usual_time) = read("search.default_keep_alive");
    let (longest, longest_time) = read("search.max_keep_alive");
    if usual_time <= longest_time {
        return Ok(());
    }
    Err(Error::IllegalArgument(format!(
        "Default keep alive setting for request [search.default_keep_alive] should be smaller than max keep alive \
         [search.max_keep_alive], was ({usual} > {longest})"
    )))
}

fn check_auto_create(value: &Value) -> Result<()> {
    let text = value.as_str().unwrap_or_default();
    if matches!(text, "true" | "false") {
        return Ok(());
    }
    for rule in text.split(',').map(str::trim) {
        if matches!(rule, "" | "+" | "-") {
            return Err(Error::IllegalArgument(format!(
                "Can't parse [{text}] for setting [action.auto_create_index] must be either [true, false, or a \
                 comma separated list of index patterns]"
            )));
        }
    }
    Ok(())
}
