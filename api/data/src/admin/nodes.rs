//! `_nodes`: description and usage of this node.
//!
//! The sections are named as in OpenSearch because monitoring reads them by those names. There is no
//! JVM: `jvm.mem.heap_*` report the memory that this process itself has allocated (resident pages
//! that no file backs) against the machine's, and pools other than `old` hold nothing. Members that typed clients
//! ask for are there, also where they have nothing to tell: 0, or empty.

use millrace_processors::processor_types;
use serde_json::{Map, Value, json};

use super::process::{FileSystem, Machine, Process, percent};
use super::stats::{self, Sections};
use super::{node, options, thread_pools};
use crate::Api;
use crate::error::Error;
use crate::http::render::bytes_text;
use crate::http::{Request, Response};
use crate::ingest::IngestService;
use crate::route::DataApi;

const INFO_METRICS: [&str; 11] = [
    "settings",
    "os",
    "process",
    "jvm",
    "thread_pool",
    "transport",
    "http",
    "plugins",
    "ingest",
    "indices",
    "aggregations",
];

const STATS_METRICS: [&str; 30] = [
    "indices",
    "os",
    "process",
    "jvm",
    "thread_pool",
    "fs",
    "transport",
    "http",
    "breaker",
    "script",
    "discovery",
    "ingest",
    "adaptive_selection",
    "indexing_pressure",
    // What these are about does not exist here: they are taken and have no section.
    "admission_control",
    "caches",
    "cluster_manager_throttling",
    "file_cache",
    "remote_store",
    "repositories",
    "resource_usage_stats",
    "script_cache",
    "search_backpressure",
    "search_pipeline",
    "segment_replication_backpressure",
    "shard_indexing_pressure",
    "task_cancellation",
    "weighted_routing",
    "wlm",
    "ingestion",
];

/// Returns whether a segment of a path is a list of metrics, and not of nodes.
pub(crate) fn is_metrics(part: &str) -> bool {
    part.split(',').all(|part| INFO_METRICS.contains(&part) || matches!(part, "_all" | "_none"))
}

/// Lists plugins whose endpoints clients look for by name.
pub(super) fn plugins() -> Value {
    described(&node::PLUGINS)
}

fn described(parts: &[(&str, &str)]) -> Value {
    parts
        .iter()
        .map(|(name, description)| {
            json!({
                "name": name,
                "version": format!("{}.0", node::VERSION),
                "opensearch_version": node::VERSION,
                "elasticsearch_version": node::VERSION,
                "licensed": true,
                "java_version": "",
                "description": description,
                "classname": "",
                "custom_foldername": "",
                "extended_plugins": [],
                "has_native_controller": false,
            })
        })
        .collect()
}

/// Returns the share of all processors that the process has used since it started, in percent.
pub(super) fn cpu_percent(process: &Process, machine: &Machine) -> u64 {
    percent(process.cpu_ms, process.uptime_ms.saturating_mul(machine.processors as u64))
}

pub(crate) fn info(
    api: &Api,
    request: &mut Request,
    nodes: &str,
    metrics: Option<&str>,
) -> Result<Response, Error> {
    let flat = options::flag(&mut request.params, "flat_settings")?;
    request.params.take_time("timeout")?;
    request.finish()?;
    let asked: Vec<&str> = metrics.map(|metrics| metrics.split(',').collect()).unwrap_or_default();
    let wants = |metric: &str| asked.is_empty() || asked.contains(&"_all") || asked.contains(&metric);
    let matched = node::selected(api, nodes);
    let mut answer = node::header(api, matched);
    let mut list = Map::new();
    if matched {
        let (process, machine) = (Process::read(), Machine::read());
        let now_ms = api.session.clock().now_ms();
        let mut shown = node::face(api);
        if let Value::Object(members) = &mut shown {
            members.insert("build_type".into(), "tar".into());
            members.insert("build_hash".into(), concat!("millrace-", env!("CARGO_PKG_VERSION")).into());
            members.insert("build_flavor".into(), "default".into());
            members.insert("total_indexing_buffer_in_bytes".into(), 0.into());
            members.insert("attributes".into(), json!({}));
            for metric in INFO_METRICS.into_iter().filter(|metric| wants(metric)) {
                if let Some(section) = info_section(api, metric, flat, now_ms, &process, &machine) {
                    members.insert(metric.into(), section);
                }
            }
            if wants("plugins") {
                members.insert("modules".into(), described(&node::MODULES));
            }
        }
        list.insert(node::id(api).to_owned(), shown);
    }
    answer.insert("nodes".into(), list.into());
    Ok(Response::json(200, answer.into()))
}

fn info_section(
    api: &Api,
    metric: &str,
    flat: bool,
    now_ms: i64,
    process: &Process,
    machine: &Machine,
) -> Option<Value> {
    Some(match metric {
        "settings" => {
            let settings = Map::from_iter([
                ("client.type".to_owned(), Value::from("node")),
                ("cluster.name".to_owned(), api.identity.cluster.as_str().into()),
                // Typed clients of Elasticsearch require it.
                ("cluster.election.strategy".to_owned(), "single-node".into()),
                ("node.name".to_owned(), api.identity.node.as_str().into()),
                ("path.data".to_owned(), json!([api.identity.data_dir.display().to_string()])),
                ("path.home".to_owned(), api.identity.data_dir.display().to_string().into()),
                // The log goes to the standard error output.
                ("path.logs".to_owned(), "".into()),
                ("http.type".to_owned(), "millrace".into()),
                ("transport.type".to_owned(), "millrace".into()),
            ]);
            let mut settings = millrace_catalog::metadata::render_settings(&settings, flat);
            if !flat {
                settings["node"]["attr"] = json!({});
            }
            settings
        }
        "os" => json!({
            "refresh_interval_in_millis": 0,
            "name": "Linux",
            "pretty_name": "Linux",
            "arch": std::env::consts::ARCH,
            "version": machine.release,
            "available_processors": machine.processors,
            "allocated_processors": machine.processors,
        }),
        "process" => json!({ "refresh_interval_in_millis": 0, "id": process.id, "mlockall": false }),
        "jvm" => json!({
            "pid": process.id,
            "version": "",
            "vm_name": "",
            "vm_version": "",
            "vm_vendor": "",
            "bundled_jdk": false,
            "using_bundled_jdk": false,
            "start_time_in_millis": now_ms - i64::try_from(process.uptime_ms).unwrap_or(0),
            "mem": {
                "heap_init_in_bytes": 0,
                "heap_max_in_bytes": machine.memory_total,
                "non_heap_init_in_bytes": 0,
                "non_heap_max_in_bytes": 0,
                "direct_max_in_bytes": 0,
            },
            "gc_collectors": ["young", "old"],
            "memory_pools": ["young", "survivor", "old"],
            "using_compressed_ordinary_object_pointers": "false",
            "input_arguments": [],
        }),
        "http" => json!({
            "bound_address": [node::address(api)],
            "publish_address": node::address(api),
            "max_content_length_in_bytes": api.identity.max_content_length,
        }),
        // No node talks to another: the address is that of the data API.
        "transport" => json!({
            "bound_address": [],
            "publish_address": node::address(api),
            "profiles": {},
        }),
        "ingest" => {
            let types = processor_types().map(|name| json!({ "type": name })).collect::<Vec<_>>();
            json!({ "processors": types })
        }
        "aggregations" => json!({}),
        "plugins" => plugins(),
        "thread_pool" => json!({}),
        _ => return None,
    })
}

pub(crate) fn statistics(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    nodes: &str,
    metrics: Option<&str>,
    index_metrics: Option<&str>,
) -> Result<Response, Error> {
    for fields in ["fields", "fielddata_fields", "completion_fields", "groups"] {
        request.params.take(fields);
    }
    let file_sizes = options::flag(&mut request.params, "include_segment_file_sizes")?;
    let level = request.params.take("level").unwrap_or_else(|| "node".into());
    if !matches!(level.as_str(), "node" | "indices" | "shards") {
        return Err(Error::illegal_argument(format!(
            "level parameter must be one of [indices] or [node] or [shards] but was [{level}]"
        )));
    }
    request.params.take_time("timeout")?;
    let uri = request.uri();
    request.finish()?;
    let asked: Vec<&str> = metrics.map(|metrics| metrics.split(',').collect()).unwrap_or_default();
    let all = asked.is_empty() || asked.contains(&"_all");
    if let (true, Some(index_metrics)) = (all && metrics.is_some(), index_metrics) {
        return Err(Error::illegal_argument(format!(
            "request [{uri}] contains index metrics [{index_metrics}] but all stats requested"
        )));
    }
    for metric in asked.iter().filter(|metric| **metric != "_all") {
        if !STATS_METRICS.contains(metric) {
            return Err(stats::unrecognized_metric(&uri, metric, STATS_METRICS.into_iter()));
        }
    }
    let sections = Sections::parse(index_metrics, file_sizes, &uri)?;
    let matched = node::selected(api, nodes);
    let mut answer = node::header(api, matched);
    let mut list = Map::new();
    if matched {
        let (process, machine) = (Process::read(), Machine::read());
        let now = api.session.clock().now_ms();
        let mut shown = node::face(api);
        if let Value::Object(members) = &mut shown {
            members.insert("timestamp".into(), now.into());
            for metric in STATS_METRICS.into_iter().filter(|metric| all || asked.contains(metric)) {
                let section = match metric {
                    "indices" => Some(indices(api, &sections, &level)),
                    "ingest" => served.ingest().ok().map(IngestService::statistics),
                    _ => stats_section(api, metric, now, &process, &machine),
                };
                if let Some(section) = section {
                    let name = if metric == "breaker" { "breakers" } else { metric };
                    members.insert(name.into(), section);
                }
            }
        }
        list.insert(node::id(api).to_owned(), shown);
    }
    answer.insert("nodes".into(), list.into());
    Ok(Response::json(200, answer.into()))
}

fn indices(api: &Api, sections: &Sections, level: &str) -> Value {
    let now_ms = api.session.clock().now_ms();
    let state = api.session.metadata();
    let counted: Vec<_> =
        state.indices().filter(|meta| meta.open).map(|meta| (meta, stats::figures(api, meta))).collect();
    let mut shown =
        stats::render(&stats::sum(counted.iter().flat_map(|(_, shards)| shards)), sections, now_ms);
    add_durations(api, &mut shown);
    if level == "indices" {
        let indices: Map<String, Value> = counted
            .iter()
            .map(|(meta, shards)| {
                (meta.name.to_string(), stats::render(&stats::sum(shards), sections, now_ms).into())
            })
            .collect();
        shown.insert("indices".into(), indices.into());
    } else if level == "shards" {
        let indices: Map<String, Value> = counted
            .iter()
            .map(|(meta, shards)| {
                let shards: Vec<Value> = shards
                    .iter()
                    .enumerate()
                    .map(|(number, shard)| json!({ number.to_string(): stats::render(shard, sections, now_ms) }))
                    .collect();
                (meta.name.to_string(), shards.into())
            })
            .collect();
        shown.insert("shards".into(), indices.into());
    }
    shown.into()
}

/// Adds what is measured for the node as a whole: searches and writes are on several indices.
fn add_durations(api: &Api, shown: &mut Map<String, Value>) {
    let (engine, search) = (api.session.timings(), api.search.timings());
    let (fetch_ms, fetches) = search.fetch.totals();
    for (section, member, value) in [
        ("indexing", "index_time_in_millis", engine.write.totals().0),
        ("search", "query_time_in_millis", search.query.totals().0),
        ("search", "fetch_time_in_millis", fetch_ms),
        ("search", "fetch_total", fetches),
        ("merges", "total_time_in_millis", engine.compaction.totals().0),
        ("refresh", "total_time_in_millis", engine.refresh.totals().0),
        ("refresh", "external_total_time_in_millis", engine.refresh.totals().0),
        ("flush", "total_time_in_millis", engine.flush.totals().0),
    ] {
        if let Some(section) = shown.get_mut(section) {
            section[member] = value.into();
        }
    }
}

fn stats_section(
    api: &Api,
    metric: &str,
    now_ms: i64,
    process: &Process,
    machine: &Machine,
) -> Option<Value> {
    Some(match metric {
        "os" => {
            let mut cpu = json!({ "percent": cpu_percent(process, machine) });
            if let Some([one, five, fifteen]) = machine.load {
                cpu["load_average"] = json!({ "1m": one, "5m": five, "15m": fifteen });
            }
            json!({
                "timestamp": now_ms,
                "cpu": cpu,
                "mem": {
                    "total_in_bytes": machine.memory_total,
                    "free_in_bytes": machine.memory_free,
                    "used_in_bytes": machine.memory_used(),
                    "free_percent": percent(machine.memory_free, machine.memory_total),
                    "used_percent": percent(machine.memory_used(), machine.memory_total),
                },
                "swap": {
                    "total_in_bytes": machine.swap_total,
                    "free_in_bytes": machine.swap_free,
                    "used_in_bytes": machine.swap_total.saturating_sub(machine.swap_free),
                },
            })
        }
        "process" => json!({
            "timestamp": now_ms,
            "open_file_descriptors": process.open_files,
            "max_file_descriptors": process.max_files.map_or(-1, |limit| limit as i64),
            "cpu": { "percent": cpu_percent(process, machine), "total_in_millis": process.cpu_ms },
            "mem": {
                "total_virtual_in_bytes": process.virtual_bytes,
                "resident_in_bytes": process.resident,
                "anonymous_in_bytes": process.anonymous,
            },
        }),
        "jvm" => jvm(now_ms, process, machine),
        "fs" => {
            let disk = FileSystem::read(&api.identity.data_dir);
            let figures = json!({
                "total_in_bytes": disk.total,
                "free_in_bytes": disk.free,
                "available_in_bytes": disk.available,
            });
            let mut data = figures.clone();
            data["path"] = api.identity.data_dir.display().to_string().into();
            data["mount"] = api.identity.data_dir.display().to_string().into();
            data["type"] = "local".into();
            json!({ "timestamp": now_ms, "total": figures, "data": [data], "io_stats": {} })
        }
        "http" => json!({ "current_open": 0, "total_opened": 0, "routes": {} }),
        "script" => json!({ "compilations": 0, "cache_evictions": 0, "compilation_limit_triggered": 0 }),
        "discovery" => json!({
            "cluster_state_queue": { "total": 0, "pending": 0, "committed": 0 },
            "published_cluster_states": { "full_states": 0, "incompatible_diffs": 0, "compatible_diffs": 0 },
        }),
        "indexing_pressure" => indexing_pressure(),
        // No node talks to another: there is no transport, and nothing went over it.
        "transport" => json!({
            "server_open": 0, "total_outbound_connections": 0,
            "rx_count": 0, "rx_size_in_bytes": 0, "tx_count": 0, "tx_size_in_bytes": 0,
        }),
        "breaker" => {
            json!({
                "open_contexts": open_contexts(api),
                "replaced_segments": replaced_segments(api),
                "audit": audit(api),
            })
        }
        "thread_pool" => thread_pools::statistics(&api.session.compute().pools()),
        "adaptive_selection" => json!({}),
        _ => return None,
    })
}

/// The breaker of what scrolls, points in time and cursors hold in memory.
fn open_contexts(api: &Api) -> Value {
    let pinned = api.search.pinned();
    breaker(pinned.limit, pinned.bytes, pinned.refused)
}

/// The breaker of the files of replaced segments that they keep. Its limit is what is free, which nobody looks at for this.
fn replaced_segments(api: &Api) -> Value {
    let pinned = api.search.pinned();
    json!({
        "limit_size_in_bytes": -1,
        "limit_size": "-1b",
        "estimated_size_in_bytes": pinned.replaced,
        "estimated_size": bytes_text(i64::try_from(pinned.replaced).unwrap_or(i64::MAX)),
        "overhead": 1.0,
        "tripped": 0,
    })
}

/// The breaker of events of the audit that wait to be written; those that were lost are told as trips.
fn audit(api: &Api) -> Value {
    let figures = api.audit.figures();
    breaker(figures.limit, figures.bytes, figures.lost)
}

/// A breaker: its limit and what is counted, in bytes, and how often it has refused.
fn breaker(limit: u64, bytes: u64, tripped: u64) -> Value {
    let text = |bytes: u64| bytes_text(i64::try_from(bytes).unwrap_or(i64::MAX));
    json!({
        "limit_size_in_bytes": limit,
        "limit_size": text(limit),
        "estimated_size_in_bytes": bytes,
        "estimated_size": text(bytes),
        "overhead": 1.0,
        "tripped": tripped,
    })
}

/// The section `indexing_pressure`: writes wait for room in the memtable, which is counted as theirs nowhere.
pub(super) fn indexing_pressure() -> Value {
    const STAGES: [&str; 5] = [
        "combined_coordinating_and_primary_in_bytes",
        "coordinating_in_bytes",
        "primary_in_bytes",
        "replica_in_bytes",
        "all_in_bytes",
    ];
    const REJECTIONS: [&str; 3] = ["coordinating_rejections", "primary_rejections", "replica_rejections"];
    let zeros = |names: &mut dyn Iterator<Item = &&str>| -> Value {
        names.map(|name| ((*name).to_owned(), Value::from(0))).collect::<Map<_, _>>().into()
    };
    json!({
        "memory": {
            "current": zeros(&mut STAGES.iter()),
            "total": zeros(&mut STAGES.iter().chain(&REJECTIONS)),
            "limit_in_bytes": 0,
        },
    })
}

fn jvm(now_ms: i64, process: &Process, machine: &Machine) -> Value {
    let last = json!({ "used_in_bytes": 0, "max_in_bytes": 0, "usage_percent": -1 });
    let nothing = json!({
        "used_in_bytes": 0, "max_in_bytes": 0, "peak_used_in_bytes": 0, "peak_max_in_bytes": 0,
        "last_gc_stats": last,
    });
    let pool = json!({
        "used_in_bytes": process.anonymous,
        "max_in_bytes": machine.memory_total,
        "peak_used_in_bytes": process.peak_resident,
        "peak_max_in_bytes": machine.memory_total,
        "last_gc_stats": last,
    });
    let idle = json!({ "collection_count": 0, "collection_time_in_millis": 0 });
    let file_backed = process.resident.saturating_sub(process.anonymous);
    json!({
        "timestamp": now_ms,
        "uptime_in_millis": process.uptime_ms,
        "mem": {
            "heap_used_in_bytes": process.anonymous,
            "heap_used_percent": percent(process.anonymous, machine.memory_total),
            "heap_committed_in_bytes": process.anonymous,
            "heap_max_in_bytes": machine.memory_total,
            "non_heap_used_in_bytes": file_backed,
            "non_heap_committed_in_bytes": file_backed,
            "pools": { "young": nothing, "survivor": nothing, "old": pool },
        },
        "threads": { "count": process.threads, "peak_count": process.threads },
        "gc": { "collectors": { "young": idle, "old": idle } },
        "buffer_pools": {
            "mapped": { "count": 0, "used_in_bytes": file_backed, "total_capacity_in_bytes": file_backed },
            "direct": { "count": 0, "used_in_bytes": 0, "total_capacity_in_bytes": 0 },
        },
        "classes": { "current_loaded_count": 0, "total_loaded_count": 0, "total_unloaded_count": 0 },
    })
}
