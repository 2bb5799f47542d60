//! `_stats`: counters of indices, and the same sections for nodes and cluster.
//!
//! Sections have every member that OpenSearch's have, because typed clients refuse an answer without one: what
//! nobody measures is 0, and so is what does not exist here, such as caches.

use std::sync::Arc;

use millrace_catalog::metadata::{IndexMeta, IndicesOptions, did_you_mean, similar};
use millrace_engine::ShardFigures;
use serde_json::{Map, Value, json};

use super::{maintenance, node, options};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Metrics by their names in paths and in answers.
const METRICS: [(&str, &str); 16] = [
    ("docs", "docs"),
    ("store", "store"),
    ("indexing", "indexing"),
    ("get", "get"),
    ("search", "search"),
    ("merge", "merges"),
    ("refresh", "refresh"),
    ("flush", "flush"),
    ("warmer", "warmer"),
    ("query_cache", "query_cache"),
    ("fielddata", "fielddata"),
    ("completion", "completion"),
    ("segments", "segments"),
    ("translog", "translog"),
    ("request_cache", "request_cache"),
    ("recovery", "recovery"),
];

/// Selection of the sections to show.
#[derive(Clone, Debug)]
pub(super) struct Sections {
    shown: Vec<&'static str>,
    file_sizes: bool,
}

impl Sections {
    /// Selects all sections.
    pub(super) fn all() -> Self {
        Self { shown: METRICS.iter().map(|(_, name)| *name).collect(), file_sizes: false }
    }

    /// Selects by a comma-separated list of metrics. `uri` is for the message.
    pub(super) fn parse(metrics: Option<&str>, file_sizes: bool, uri: &str) -> Result<Self, Error> {
        let all = Self { file_sizes, ..Self::all() };
        let Some(metrics) = metrics else { return Ok(all) };
        let asked: Vec<&str> = metrics.split(',').collect();
        if asked.contains(&"_all") {
            if asked.len() > 1 {
                return Err(Error::illegal_argument(format!(
                    "request [{uri}] contains _all and individual metrics [{metrics}]"
                )));
            }
            return Ok(all);
        }
        let mut shown = Vec::new();
        for asked in asked {
            match METRICS.iter().find(|(metric, _)| *metric == asked) {
                Some((_, name)) => shown.push(*name),
                None => {
                    return Err(unrecognized_metric(uri, asked, METRICS.iter().map(|(metric, _)| *metric)));
                }
            }
        }
        Ok(Self { shown, file_sizes })
    }
}

/// Makes the refusal of a metric that is none.
pub(super) fn unrecognized_metric<'a>(uri: &str, asked: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let hint = did_you_mean(&similar(asked, known)).map(|hint| format!(" ->{hint}")).unwrap_or_default();
    Error::illegal_argument(format!("request [{uri}] contains unrecognized metric: [{asked}]{hint}"))
}

/// Returns the counters of an index: nothing is counted for a closed one.
pub(super) fn figures(api: &Api, meta: &IndexMeta) -> Vec<ShardFigures> {
    counted(api, meta, false)
}

/// Returns the counters of an index; those of a closed one where `unloaded` asks for them.
fn counted(api: &Api, meta: &IndexMeta, unloaded: bool) -> Vec<ShardFigures> {
    let shards = match api.session.index(&meta.name) {
        Ok(index) if meta.open || unloaded => index.figures().shards,
        _ => Vec::new(),
    };
    if shards.is_empty() { vec![ShardFigures::default(); meta.shards as usize] } else { shards }
}

/// Adds counters up.
pub(super) fn sum<'f>(figures: impl IntoIterator<Item = &'f ShardFigures>) -> ShardFigures {
    let mut sum = ShardFigures { max_seq_no: -1, local_checkpoint: -1, ..ShardFigures::default() };
    for shard in figures {
        sum.docs += shard.docs;
        sum.deleted += shard.deleted;
        sum.store_bytes += shard.store_bytes;
        sum.segments += shard.segments;
        sum.memory_bytes += shard.memory_bytes;
        sum.index_total += shard.index_total;
        sum.delete_total += shard.delete_total;
        sum.get_total += shard.get_total;
        sum.refresh_total += shard.refresh_total;
        sum.flush_total += shard.flush_total;
        sum.periodic_flushes += shard.periodic_flushes;
        sum.log_operations += shard.log_operations;
        sum.log_bytes += shard.log_bytes;
        sum.log_since_ms = match (sum.log_since_ms, shard.log_since_ms) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        sum.merge_total += shard.merge_total;
        sum.query_total += shard.query_total;
        sum.scrolls.add(&shard.scrolls);
        sum.points_in_time.add(&shard.points_in_time);
        sum.cursors.add(&shard.cursors);
    }
    sum
}

/// Counts what searches keep open over shards between requests.
pub(super) fn open_contexts(figures: &ShardFigures) -> u64 {
    figures.scrolls.current + figures.points_in_time.current + figures.cursors.current
}

/// Renders counters as the sections that were asked for.
pub(super) fn render(figures: &ShardFigures, sections: &Sections, now_ms: i64) -> Map<String, Value> {
    let mut rendered = Map::new();
    for name in &sections.shown {
        let section = match *name {
            "docs" => json!({ "count": figures.docs, "deleted": figures.deleted }),
            "store" => json!({ "size_in_bytes": figures.store_bytes, "reserved_in_bytes": 0 }),
            "indexing" => json!({
                "index_total": figures.index_total,
                "index_time_in_millis": 0,
                "index_current": 0,
                "index_failed": 0,
                "delete_total": figures.delete_total,
                "delete_time_in_millis": 0,
                "delete_current": 0,
                "noop_update_total": 0,
                "is_throttled": false,
                "throttle_time_in_millis": 0,
                "doc_status": {},
            }),
            "get" => json!({
                "total": figures.get_total,
                "time_in_millis": 0,
                "exists_total": 0,
                "exists_time_in_millis": 0,
                "missing_total": 0,
                "missing_time_in_millis": 0,
                "current": 0,
            }),
            "search" => json!({
                "open_contexts": open_contexts(figures),
                "query_total": figures.query_total,
                "query_time_in_millis": 0,
                "query_current": 0,
                "concurrent_query_total": 0,
                "concurrent_query_time_in_millis": 0,
                "concurrent_query_current": 0,
                "concurrent_avg_slice_count": 0.0,
                "fetch_total": 0,
                "fetch_time_in_millis": 0,
                "fetch_current": 0,
                "scroll_total": figures.scrolls.total,
                "scroll_time_in_millis": figures.scrolls.time_ms,
                "scroll_current": figures.scrolls.current,
                "point_in_time_total": figures.points_in_time.total,
                "point_in_time_time_in_millis": figures.points_in_time.time_ms,
                "point_in_time_current": figures.points_in_time.current,
                "suggest_total": 0,
                "suggest_time_in_millis": 0,
                "suggest_current": 0,
                "search_idle_reactivate_count_total": 0,
            }),
            "merges" => json!({
                "current": 0,
                "current_docs": 0,
                "current_size_in_bytes": 0,
                "total": figures.merge_total,
                "total_time_in_millis": 0,
                "total_docs": 0,
                "total_size_in_bytes": 0,
                "total_stopped_time_in_millis": 0,
                "total_throttled_time_in_millis": 0,
                "total_auto_throttle_in_bytes": 0,
                "unreferenced_file_cleanups_performed": 0,
            }),
            // A refresh is seen by searches at once: there are no others.
            "refresh" => json!({
                "total": figures.refresh_total,
                "total_time_in_millis": 0,
                "external_total": figures.refresh_total,
                "external_total_time_in_millis": 0,
                "listeners": 0,
            }),
            "flush" => json!({
                "total": figures.flush_total,
                "periodic": figures.periodic_flushes,
                "total_time_in_millis": 0,
            }),
            "warmer" => json!({ "current": 0, "total": 0, "total_time_in_millis": 0 }),
            "query_cache" => json!({
                "memory_size_in_bytes": 0, "total_count": 0, "hit_count": 0, "miss_count": 0, "cache_size": 0,
                "cache_count": 0, "evictions": 0,
            }),
            "fielddata" => json!({ "memory_size_in_bytes": 0, "evictions": 0 }),
            "completion" => json!({ "size_in_bytes": 0 }),
            "segments" => segments(figures, sections.file_sizes),
            // What is flushed is not kept: all of the log is uncommitted.
            "translog" => json!({
                "operations": figures.log_operations,
                "size_in_bytes": figures.log_bytes,
                "uncommitted_operations": figures.log_operations,
                "uncommitted_size_in_bytes": figures.log_bytes,
                "earliest_last_modified_age": figures.log_since_ms.map_or(0, |since| (now_ms - since).max(0)),
            }),
            "request_cache" => {
                json!({ "memory_size_in_bytes": 0, "evictions": 0, "hit_count": 0, "miss_count": 0 })
            }
            _ => json!({ "current_as_source": 0, "current_as_target": 0, "throttle_time_in_millis": 0 }),
        };
        rendered.insert((*name).to_owned(), section);
    }
    rendered
}

/// The section `segments`: its parts are not told apart, so that only the sum has a figure.
fn segments(figures: &ShardFigures, file_sizes: bool) -> Value {
    let sizes = match file_sizes {
        false => json!({}),
        true => json!({
            "store": {
                "size_in_bytes": figures.store_bytes,
                "description": "files of segments",
            },
        }),
    };
    json!({
        "count": figures.segments,
        "memory_in_bytes": figures.memory_bytes,
        "terms_memory_in_bytes": 0,
        "stored_fields_memory_in_bytes": 0,
        "term_vectors_memory_in_bytes": 0,
        "norms_memory_in_bytes": 0,
        "points_memory_in_bytes": 0,
        "doc_values_memory_in_bytes": 0,
        "index_writer_memory_in_bytes": 0,
        "version_map_memory_in_bytes": 0,
        "fixed_bit_set_memory_in_bytes": 0,
        // No id was generated that another could repeat.
        "max_unsafe_auto_id_timestamp": -1,
        "file_sizes": sizes,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Cluster,
    Indices,
    Shards,
}

/// `_stats`
pub(crate) fn get(
    api: &Api,
    request: &mut Request,
    expression: &str,
    metrics: Option<&str>,
) -> Result<Response, Error> {
    let level = match request.params.take("level").as_deref() {
        None | Some("indices") => Level::Indices,
        Some("cluster") => Level::Cluster,
        Some("shards") => Level::Shards,
        Some(level) => {
            return Err(Error::illegal_argument(format!(
                "level parameter must be one of [cluster] or [indices] or [shards] but was [{level}]"
            )));
        }
    };
    // There is no fielddata, no completion field and no group of searches, so that there is nothing to
    // break down.
    for fields in ["fields", "fielddata_fields", "completion_fields", "groups"] {
        request.params.take(fields);
    }
    let file_sizes = options::flag(&mut request.params, "include_segment_file_sizes")?;
    let unloaded = options::flag(&mut request.params, "include_unloaded_segments")?;
    let forbid_closed = request.params.take_bool("forbid_closed_indices")?.unwrap_or(true);
    let mut options = options::indices(&mut request.params, IndicesOptions::open_only())?;
    options.forbid_closed &= forbid_closed;
    let sections = Sections::parse(metrics, file_sizes, &request.uri())?;
    request.finish()?;

    let metas = api.session.metadata().resolve(expression, &options, api.session.clock().now_ms())?;
    let now_ms = api.session.clock().now_ms();
    let counted: Vec<(&Arc<IndexMeta>, Vec<ShardFigures>)> =
        metas.iter().map(|meta| (meta, counted(api, meta, unloaded))).collect();
    let all = render(&sum(counted.iter().flat_map(|(_, shards)| shards)), &sections, now_ms);
    let mut answer = json!({
        "_shards": maintenance::shards_header(&metas),
        "_all": { "primaries": all, "total": all },
    });
    if level != Level::Cluster {
        let indices: Map<String, Value> = counted
            .iter()
            .map(|(meta, shards)| {
                let sums = render(&sum(shards), &sections, now_ms);
                let mut shown = json!({ "uuid": meta.uuid_text(), "primaries": sums, "total": sums });
                if level == Level::Shards {
                    shown["shards"] = by_shard(api, shards, &sections, now_ms);
                }
                (meta.name.to_string(), shown)
            })
            .collect();
        answer["indices"] = indices.into();
    }
    Ok(Response::json(200, answer))
}

fn by_shard(api: &Api, shards: &[ShardFigures], sections: &Sections, now_ms: i64) -> Value {
    let shards: Map<String, Value> = shards
        .iter()
        .enumerate()
        .map(|(number, shard)| {
            let mut copy = Map::new();
            copy.insert(
                "routing".into(),
                json!({ "state": "STARTED", "primary": true, "node": node::id(api), "relocating_node": null }),
            );
            copy.extend(render(shard, sections, now_ms));
            copy.insert(
                "seq_no".into(),
                json!({
                    "max_seq_no": shard.max_seq_no,
                    "local_checkpoint": shard.local_checkpoint,
                    "global_checkpoint": shard.local_checkpoint,
                }),
            );
            (number.to_string(), json!([copy]))
        })
        .collect();
    shards.into()
}
