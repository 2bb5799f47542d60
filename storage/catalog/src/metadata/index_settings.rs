//! The settings that an index may have: names, kinds, defaults, and when each may change.
//!
//! Creation and templates go through [`check`], updates through [`check_update`]. Private settings
//! (uuid, creation date, version) are written by creation only.

use serde_json::{Map, Value};

use super::index_sort;
use super::settings::{Kind, did_you_mean, similar};
use Kind::{Any, Bool, Bytes, Float, Int, List, OneOf, Text, Time};
use Scope::{Closed, Dynamic, Final, Private};
use millrace_mapping::pattern;
use millrace_runtime::{Error, Result};

/// Time at which a setting may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// At any time.
    Dynamic,
    /// At creation, and while the index is closed.
    Closed,
    /// At creation only.
    Final,
    /// By the store only.
    Private,
}

/// A setting that an index may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexSetting {
    /// Its key; one that ends in `*` stands for a group.
    pub(super) key: &'static str,
    /// Kind of its values.
    pub(super) kind: Kind,
    /// Time at which it may be written.
    pub(super) scope: Scope,
    /// The value that holds where none is set; empty where there is none to show.
    pub(super) default: &'static str,
}

const fn setting(key: &'static str, kind: Kind, scope: Scope, default: &'static str) -> IndexSetting {
    IndexSetting { key, kind, scope, default }
}

impl IndexSetting {
    /// Returns whether there is a value to show where none is set: one that is empty must be a word of its own.
    fn has_default(&self) -> bool {
        !self.default.is_empty() || matches!(self.kind, OneOf(words) if words.contains(&""))
    }
}

const INT_MAX: i64 = i32::MAX as i64;

/// Most shards one index may have.
pub(super) const MAX_SHARDS: i64 = 1024;

#[rustfmt::skip]
const KNOWN: &[IndexSetting] = &[
    setting("index.number_of_shards", Int(1, MAX_SHARDS), Final, "1"),
    setting("index.number_of_replicas", Int(0, INT_MAX), Dynamic, "1"),
    setting("index.number_of_routing_shards", Int(1, INT_MAX), Final, ""),
    setting("index.routing_partition_size", Int(1, INT_MAX), Final, "1"),
    setting("index.auto_expand_replicas", Text, Dynamic, "false"),
    setting("index.hidden", Bool, Dynamic, "false"),
    setting("index.priority", Int(0, INT_MAX), Dynamic, "1"),
    setting("index.codec", OneOf(&["default", "best_compression", "lz4", "zlib", "zstd", "zstd_no_dict"]), Closed, "default"),
    setting("index.codec.compression_level", Int(1, 6), Closed, "3"),
    setting("index.format", Int(0, INT_MAX), Closed, "0"),
    setting("index.refresh_interval", Time, Dynamic, "1s"),
    setting("index.gc_deletes", Time, Dynamic, "60s"),
    setting("index.search.idle.after", Time, Dynamic, "30s"),
    setting("index.search.throttled", Bool, Private, "false"),
    setting("index.search.default_pipeline", Text, Dynamic, ""),
    setting("index.default_pipeline", Text, Dynamic, "_none"),
    setting("index.final_pipeline", Text, Dynamic, "_none"),
    setting("index.max_result_window", Int(1, INT_MAX), Dynamic, "10000"),
    setting("index.max_inner_result_window", Int(1, INT_MAX), Dynamic, "100"),
    setting("index.max_rescore_window", Int(1, INT_MAX), Dynamic, "10000"),
    setting("index.max_docvalue_fields_search", Int(0, INT_MAX), Dynamic, "100"),
    setting("index.max_script_fields", Int(0, INT_MAX), Dynamic, "32"),
    setting("index.max_ngram_diff", Int(0, INT_MAX), Dynamic, "1"),
    setting("index.max_shingle_diff", Int(0, INT_MAX), Dynamic, "3"),
    setting("index.max_refresh_listeners", Int(0, INT_MAX), Dynamic, "1000"),
    setting("index.max_slices_per_scroll", Int(1, INT_MAX), Dynamic, "1024"),
    setting("index.max_slices_per_pit", Int(1, INT_MAX), Dynamic, "1024"),
    setting("index.max_adjacency_matrix_filters", Int(2, INT_MAX), Dynamic, "100"),
    setting("index.max_terms_count", Int(1, INT_MAX), Dynamic, "65536"),
    setting("index.max_regex_length", Int(1, INT_MAX), Dynamic, "1000"),
    setting("index.analyze.max_token_count", Int(1, INT_MAX), Dynamic, "10000"),
    setting("index.highlight.max_analyzed_offset", Int(1, INT_MAX), Dynamic, "1000000"),
    setting("index.query.default_field", List, Dynamic, "*"),
    setting("index.query.parse.allow_unmapped_fields", Bool, Closed, "true"),
    setting("index.query_string.lenient", Bool, Closed, "false"),
    setting("index.queries.cache.enabled", Bool, Closed, "true"),
    setting("index.requests.cache.enable", Bool, Dynamic, "true"),
    setting("index.blocks.read_only", Bool, Dynamic, "false"),
    setting("index.blocks.read", Bool, Dynamic, "false"),
    setting("index.blocks.write", Bool, Dynamic, "false"),
    setting("index.blocks.metadata", Bool, Dynamic, "false"),
    setting("index.blocks.read_only_allow_delete", Bool, Dynamic, "false"),
    setting("index.mapping.total_fields.limit", Int(0, INT_MAX), Dynamic, "1000"),
    setting("index.mapping.depth.limit", Int(1, INT_MAX), Dynamic, "20"),
    setting("index.mapping.nested_fields.limit", Int(0, INT_MAX), Dynamic, "50"),
    setting("index.mapping.nested_objects.limit", Int(0, INT_MAX), Dynamic, "10000"),
    setting("index.mapping.field_name_length.limit", Int(1, INT_MAX), Dynamic, "50000"),
    setting("index.mapping.dimension_fields.limit", Int(0, INT_MAX), Dynamic, "16"),
    setting("index.mapping.coerce", Bool, Closed, "true"),
    setting("index.mapping.ignore_malformed", Bool, Closed, "false"),
    setting("index.mapping.overflow", OneOf(&["refuse", "store"]), Dynamic, "refuse"),
    setting("index.translog.durability", OneOf(&["request", "async"]), Dynamic, "request"),
    setting("index.translog.sync_interval", Time, Dynamic, "5s"),
    setting("index.translog.flush_threshold_size", Bytes, Dynamic, "512mb"),
    setting("index.translog.generation_threshold_size", Bytes, Dynamic, "64mb"),
    setting("index.translog.retention.age", Time, Dynamic, "12h"),
    setting("index.translog.retention.size", Bytes, Dynamic, "512mb"),
    setting("index.merge.enabled", Bool, Closed, "true"),
    setting("index.merge.scheduler.max_thread_count", Int(1, INT_MAX), Dynamic, ""),
    setting("index.merge.scheduler.max_merge_count", Int(1, INT_MAX), Dynamic, ""),
    setting("index.merge.scheduler.auto_throttle", Bool, Dynamic, "true"),
    setting("index.merge.policy.max_merge_at_once", Int(2, INT_MAX), Dynamic, "10"),
    setting("index.merge.policy.max_merge_at_once_explicit", Int(2, INT_MAX), Dynamic, "30"),
    setting("index.merge.policy.max_merged_segment", Bytes, Dynamic, "5gb"),
    setting("index.merge.policy.segments_per_tier", Float(2.0), Dynamic, "10.0"),
    setting("index.merge.policy.expunge_deletes_allowed", Float(0.0), Dynamic, "10.0"),
    setting("index.merge.policy.deletes_pct_allowed", Float(20.0), Dynamic, "33.0"),
    setting("index.merge.policy.floor_segment", Bytes, Dynamic, "2mb"),
    setting("index.merge.policy.reclaim_deletes_weight", Float(0.0), Dynamic, "2.0"),
    setting("index.compound_format", Text, Dynamic, "0.1"),
    setting("index.soft_deletes.enabled", Bool, Final, "true"),
    setting("index.soft_deletes.retention.operations", Int(0, i64::MAX), Dynamic, "0"),
    setting("index.soft_deletes.retention_lease.period", Time, Dynamic, "12h"),
    setting("index.shard.check_on_startup", OneOf(&["false", "true", "checksum", "fix"]), Closed, "false"),
    setting("index.store.type", OneOf(&["", "fs", "niofs", "mmapfs", "simplefs", "hybridfs"]), Closed, ""),
    setting("index.store.preload", List, Closed, ""),
    setting("index.store.fs.fs_lock", OneOf(&["native", "simple"]), Closed, "native"),
    setting("index.store.stats_refresh_interval", Time, Closed, "10s"),
    setting("index.load_fixed_bitset_filters_eagerly", Bool, Closed, "true"),
    setting("index.fielddata.cache", OneOf(&["node", "none"]), Closed, "node"),
    setting("index.warmer.enabled", Bool, Dynamic, "true"),
    setting("index.force_memory_term_dictionary", Bool, Closed, ""),
    setting("index.optimize_auto_generated_id", Bool, Closed, "true"),
    setting("index.data_path", Text, Final, ""),
    setting("index.write.wait_for_active_shards", Text, Dynamic, "1"),
    setting("index.unassigned.node_left.delayed_timeout", Time, Dynamic, "1m"),
    setting("index.allocation.max_retries", Int(0, INT_MAX), Dynamic, "5"),
    setting("index.allocation.existing_shards_allocator", Text, Private, "gateway_allocator"),
    setting("index.recovery.initial_shards", Text, Dynamic, "quorum"),
    setting("index.routing.allocation.enable", OneOf(&["all", "primaries", "new_primaries", "none"]), Dynamic, "all"),
    setting("index.routing.rebalance.enable", OneOf(&["all", "primaries", "replicas", "none"]), Dynamic, "all"),
    setting("index.routing.allocation.total_shards_per_node", Int(-1, INT_MAX), Dynamic, "-1"),
    setting("index.routing.allocation.disable_allocation", Bool, Dynamic, "false"),
    setting("index.routing.allocation.include.*", Text, Dynamic, ""),
    setting("index.routing.allocation.exclude.*", Text, Dynamic, ""),
    setting("index.routing.allocation.require.*", Text, Dynamic, ""),
    setting("index.routing.allocation.initial_recovery.*", Text, Private, ""),
    setting("index.search.slowlog.level", Text, Dynamic, "TRACE"),
    setting("index.search.slowlog.threshold.*", Time, Dynamic, ""),
    setting("index.indexing.slowlog.level", Text, Dynamic, "TRACE"),
    setting("index.indexing.slowlog.reformat", Bool, Dynamic, "true"),
    setting("index.indexing.slowlog.source", Text, Dynamic, "1000"),
    setting("index.indexing.slowlog.threshold.*", Time, Dynamic, ""),
    setting("index.sort.field", List, Final, ""),
    setting("index.sort.order", List, Final, ""),
    setting("index.sort.mode", List, Final, ""),
    setting("index.sort.missing", List, Final, ""),
    setting("index.analysis.*", Any, Closed, ""),
    setting("index.similarity.*", Any, Closed, ""),
    setting("index.lifecycle.origination_date", Int(-1, i64::MAX), Dynamic, ""),
    setting("index.lifecycle.parse_origination_date", Bool, Dynamic, ""),
    setting("index.lifecycle.indexing_complete", Bool, Dynamic, ""),
    setting("index.lifecycle.*", Text, Dynamic, ""),
    setting("index.plugins.*", Any, Dynamic, ""),
    setting("index.opendistro.*", Any, Dynamic, ""),
    setting("index.uuid", Text, Private, ""),
    setting("index.creation_date", Text, Private, ""),
    setting("index.provided_name", Text, Private, ""),
    setting("index.version.*", Text, Private, ""),
    setting("index.history.uuid", Text, Private, ""),
    setting("index.restored.seq_nos", List, Private, ""),
    setting("index.restored.earlier_seq_nos", List, Private, ""),
    setting("index.restored.snapshot", Text, Private, ""),
    setting("index.restore.pending", Text, Private, ""),
    setting("index.data_stream.name", Text, Private, ""),
    setting("index.data_stream.timestamp_field", Text, Private, ""),
    setting("index.rollover.info", List, Private, ""),
    setting("index.retention.hold", Bool, Dynamic, "false"),
    setting("index.resize.source.seq_nos", List, Private, ""),
    setting("index.resize.*", Text, Private, ""),
    setting("index.shrink.*", Text, Private, ""),
    setting("index.verified_before_close", Text, Private, ""),
];

/// Finds a setting by its full key.
pub(super) fn find(key: &str) -> Option<&'static IndexSetting> {
    KNOWN.iter().find(|setting| match setting.key.strip_suffix('*') {
        Some(group) => key.len() > group.len() && key.starts_with(group),
        None => setting.key == key,
    })
}

fn unknown(key: &str) -> Error {
    let candidates = similar(key, KNOWN.iter().map(|setting| setting.key).filter(|key| !key.ends_with('*')));
    let hint = did_you_mean(&candidates).unwrap_or_else(|| {
        " please check that any required plugins are installed, or check the breaking changes documentation for \
         removed settings"
            .into()
    });
    Error::IllegalArgument(format!("unknown setting [{key}]{hint}"))
}

/// Checks settings given at creation or in a template; nulls are taken as absent.
///
/// # Errors
/// [`Error::IllegalArgument`] for an unknown key or a value that does not fit, [`Error::Validation`]
/// for a private one.
pub(super) fn check(settings: &Map<String, Value>) -> Result<()> {
    for (key, value) in settings {
        let setting = find(key).ok_or_else(|| unknown(key))?;
        if setting.scope == Private {
            return Err(Error::Validation(format!(
                "1: private index setting [{key}] can not be set explicitly;"
            )));
        }
        if !value.is_null() {
            setting.kind.check(key, value)?;
        }
    }
    index_sort::check_words(settings)?;
    check_together(settings)
}

/// Checks what no single setting can tell.
fn check_together(settings: &Map<String, Value>) -> Result<()> {
    let number =
        |key: &str| settings.get(key).and_then(Value::as_str).and_then(|text| text.parse::<u32>().ok());
    let shards = number("index.number_of_shards").unwrap_or(1);
    if let Some(routing) = number("index.number_of_routing_shards")
        && (routing < shards || routing % shards != 0)
    {
        return Err(Error::IllegalArgument(if routing < shards {
            format!("index.number_of_routing_shards [{routing}] must be >= index.number_of_shards [{shards}]")
        } else {
            format!("the number of source shards [{shards}] must be a factor of [{routing}]")
        }));
    }
    if let Some(partition) = number("index.routing_partition_size")
        && partition > 1
        && partition >= shards
    {
        return Err(Error::IllegalArgument(format!(
            "partition size [{partition}] should be a positive number less than the number of shards [{shards}]"
        )));
    }
    if let Some(Value::String(range)) = settings.get("index.auto_expand_replicas")
        && range != "false"
    {
        let fits = range.split_once('-').is_some_and(|(least, most)| {
            let least = least.parse::<u32>().ok();
            let most = if most == "all" { Some(u32::MAX) } else { most.parse().ok() };
            matches!((least, most), (Some(least), Some(most)) if least <= most)
        });
        if !fits {
            return Err(Error::IllegalArgument(format!(
                "failed to parse [index.auto_expand_replicas] from value: [{range}] at index [-1]"
            )));
        }
    }
    Ok(())
}

/// Checks one key of an update. `Ok(true)`: it may change now; `Ok(false)`: only while the index is
/// closed.
///
/// # Errors
/// As [`check`], and for settings that never change.
pub(super) fn check_update(key: &str, value: &Value) -> Result<bool> {
    if value.is_null() && pattern::is_wildcard(key) {
        return Ok(true);
    }
    let setting = find(key).ok_or_else(|| unknown(key))?;
    if setting.scope == Private {
        return Err(Error::IllegalArgument(format!(
            "can not update private setting [{key}]; this setting is managed by the server"
        )));
    }
    if !value.is_null() {
        setting.kind.check(key, value)?;
    }
    Ok(setting.scope == Dynamic)
}

/// Returns whether the store alone writes a setting.
pub(super) fn is_private(key: &str) -> bool {
    find(key).is_some_and(|setting| setting.scope == Private)
}

/// Returns whether a setting is fixed for the life of an index.
pub(super) fn is_final(key: &str) -> bool {
    find(key).is_some_and(|setting| setting.scope == Final)
}

/// Checks that settings fit each other after an update.
///
/// # Errors
/// [`Error::IllegalArgument`].
pub(super) fn check_result(settings: &Map<String, Value>) -> Result<()> {
    check_together(settings)
}

/// Reads the default of a setting, where there is one.
pub(super) fn default_of(key: &str) -> Option<&'static str> {
    find(key).map(|setting| setting.default).filter(|default| !default.is_empty())
}

/// Lists the defaults of all settings that are not set, for `include_defaults`.
pub fn defaults(set: &Map<String, Value>) -> Map<String, Value> {
    KNOWN
        .iter()
        .filter(|setting| setting.has_default() && !set.contains_key(setting.key))
        .map(|setting| {
            let value = match setting.kind {
                List => Value::Array(vec![Value::String(setting.default.into())]),
                _ => Value::String(setting.default.into()),
            };
            (setting.key.to_owned(), value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn defaults_are_valid_values() {
        for setting in KNOWN.iter().filter(|setting| !setting.default.is_empty()) {
            setting.kind.check(setting.key, &json!(setting.default)).unwrap();
        }
    }

    #[test]
    fn settings_are_refused_in_opensearch_words() {
        for (key, value, expected) in [
            (
                "index.foo",
                "1",
                "unknown setting [index.foo] please check that any required plugins are installed, or check the \
                 breaking changes documentation for removed settings",
            ),
            (
                "index.number_of_replica",
                "1",
                "unknown setting [index.number_of_replica] did you mean [index.number_of_replicas]?",
            ),
            (
                "index.number_of_shards",
                "0",
                "Failed to parse value [0] for setting [index.number_of_shards] must be >= 1",
            ),
            (
                "index.number_of_shards",
                "1025",
                "Failed to parse value [1025] for setting [index.number_of_shards] must be <= 1024",
            ),
            ("index.number_of_shards", "x", "Failed to parse value [x] for setting [index.number_of_shards]"),
            (
                "index.blocks.write",
                "yes",
                "Failed to parse value [yes] as only [true] or [false] are allowed.",
            ),
            (
                "index.refresh_interval",
                "10",
                "failed to parse setting [index.refresh_interval] with value [10] as a time value: unit is missing or \
                 unrecognized",
            ),
            (
                "index.uuid",
                "x",
                "Validation Failed: 1: private index setting [index.uuid] can not be set explicitly;",
            ),
            (
                "index.translog.durability",
                "never",
                "unknown value for [index.translog.durability] must be one of [request, async] but was: never",
            ),
            (
                "index.auto_expand_replicas",
                "5",
                "failed to parse [index.auto_expand_replicas] from value: [5] at index [-1]",
            ),
        ] {
            let error = check(&map(json!({key: value}))).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn groups_and_lists_are_accepted() {
        check(&map(json!({
            "index.analysis.analyzer.my.tokenizer": "standard",
            "index.analysis.analyzer.my.filter": ["lowercase"],
            "index.sort.field": ["a", "b"],
            "index.routing.allocation.include._tier": "hot",
            "index.auto_expand_replicas": "0-all",
            "index.number_of_shards": "4",
            "index.number_of_routing_shards": "8",
            "index.refresh_interval": null,
        })))
        .unwrap();
    }

    #[test]
    fn routing_shards_are_a_multiple() {
        for (shards, routing) in [("3", "8"), ("4", "2")] {
            let settings =
                map(json!({"index.number_of_shards": shards, "index.number_of_routing_shards": routing}));
            assert!(check(&settings).is_err());
        }
    }
}
