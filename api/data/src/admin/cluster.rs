//! `_cluster`: settings, state, statistics, pending tasks.

use millrace_catalog::access::Action;
use millrace_catalog::metadata::{
    ClusterSettingsUpdate, IndexMeta, IndicesOptions, Metadata, cluster_defaults, render_settings,
};
use millrace_engine::ShardFault;
use millrace_runtime::Priority;
use serde_json::{Map, Value, json};

use super::process::{FileSystem, Machine, Process, percent};
use super::stats::{self, Sections};
use super::{health, node, options};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::ingest::IngestService;
use crate::route::DataApi;

pub(crate) fn get_settings(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let flat = options::flag(&mut request.params, "flat_settings")?;
    let include_defaults = options::flag(&mut request.params, "include_defaults")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let state = api.session.metadata();
    let mut answer = json!({
        "persistent": render_settings(&state.persistent, flat),
        "transient": render_settings(&state.transient, flat),
    });
    if include_defaults {
        let mut defaults = cluster_defaults(&state);
        for (key, value) in [
            ("cluster.name", Value::from(api.identity.cluster.as_str())),
            ("node.name", api.identity.node.as_str().into()),
            ("path.data", json!([api.identity.data_dir.display().to_string()])),
        ] {
            defaults.insert(key.into(), value);
        }
        answer["defaults"] = render_settings(&defaults, flat);
    }
    Ok(Response::json(200, answer))
}

pub(crate) async fn put_settings(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let flat = options::flag(&mut request.params, "flat_settings")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let body = request.json()?.unwrap_or(Value::Null);
    let update = ClusterSettingsUpdate::parse(&body)?;
    update_settings(api, update, flat).await
}

/// Families of the settings that `_plugins/_query/settings` sets.
const QUERY_SETTINGS: [&str; 4] = ["plugins.sql.", "plugins.ppl.", "plugins.query.", "plugins.calcite."];

/// Answers `_plugins/_query/settings`: `_cluster/settings` for the settings of SQL and PPL.
pub(crate) async fn put_query_settings(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let flat = options::flag(&mut request.params, "flat_settings")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let body = request.json()?.unwrap_or(Value::Null);
    let update = ClusterSettingsUpdate::parse(&body)?;
    let foreign = |name: &&String| !QUERY_SETTINGS.iter().any(|family| name.starts_with(family));
    if let Some(name) = update.persistent.keys().chain(update.transient.keys()).find(foreign) {
        return Err(Error::illegal_argument(format!(
            "[{name}] is no setting of SQL or PPL; use _cluster/settings"
        )));
    }
    update_settings(api, update, flat).await
}

async fn update_settings(api: &Api, update: ClusterSettingsUpdate, flat: bool) -> Result<Response, Error> {
    api.session.change(|state| state.update_cluster_settings(&update)).await?;
    let set = |update: &Map<String, Value>| {
        let set = update
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        render_settings(&set, flat)
    };
    Ok(Response::json(
        200,
        json!({
            "acknowledged": true,
            "persistent": set(&update.persistent),
            "transient": set(&update.transient),
        }),
    ))
}

const STATE_METRICS: [&str; 8] =
    ["version", "master_node", "blocks", "nodes", "metadata", "routing_table", "routing_nodes", "customs"];

pub(crate) async fn state(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    metrics: Option<&str>,
    expression: Option<&str>,
) -> Result<Response, Error> {
    let flat = options::flag(&mut request.params, "flat_settings")?;
    request.params.take_int("wait_for_metadata_version")?;
    request.params.take_time("wait_for_timeout")?;
    options::manager(&mut request.params)?;
    let lenient =
        IndicesOptions { ignore_unavailable: true, expand_hidden: true, ..IndicesOptions::open_and_closed() };
    let options = options::indices(&mut request.params, lenient)?;
    let uri = request.uri();
    request.finish()?;
    let asked: Vec<&str> = metrics.map(|metrics| metrics.split(',').collect()).unwrap_or_default();
    for metric in &asked {
        if *metric != "_all" && *metric != "cluster_manager_node" && !STATE_METRICS.contains(metric) {
            return Err(stats::unrecognized_metric(&uri, metric, STATE_METRICS.into_iter()));
        }
    }
    let wants = |metric: &str| asked.is_empty() || asked.contains(&"_all") || asked.contains(&metric);

    let may_read = api.session.principal().privileges().allows(Action::GetIngestPipelines);
    let ingest = match served.ingest().ok().filter(|_| may_read && wants("metadata")) {
        // The definitions may be long. They are copied outside of the threads of requests.
        Some(service) => {
            let service = service.clone();
            api.session.compute().run(Priority::Foreground, move || Ok(service.state())).await?
        }
        None => json!({ "pipeline": [] }),
    };
    let state = api.session.metadata();
    let metas = state.resolve(expression.unwrap_or("_all"), &options, api.session.clock().now_ms())?;
    let mut answer = Map::new();
    answer.insert("cluster_name".into(), api.identity.cluster.as_str().into());
    answer.insert("cluster_uuid".into(), api.identity.cluster_uuid.as_str().into());
    if wants("version") {
        answer.insert("version".into(), state.version.into());
        // One process, one line of states: its identity and count name a state.
        answer.insert("state_uuid".into(), format!("{}-{}", api.identity.cluster_uuid, state.version).into());
    }
    if wants("master_node") || asked.contains(&"cluster_manager_node") {
        answer.insert("master_node".into(), node::id(api).into());
        answer.insert("cluster_manager_node".into(), node::id(api).into());
    }
    if wants("blocks") {
        answer.insert("blocks".into(), blocks(&state, &metas));
    }
    if wants("nodes") {
        let node = json!({
            "name": api.identity.node,
            "transport_address": node::address(api),
            "attributes": {},
        });
        answer.insert("nodes".into(), json!({ node::id(api): node }));
    }
    if wants("metadata") {
        let mut indices = Map::new();
        for meta in &metas {
            indices.insert(meta.name.to_string(), index_state(api, meta, flat)?);
        }
        let mut templates = Map::new();
        // They name fields of any index.
        if api.session.principal().privileges().allows(Action::GetTemplates) {
            templates.extend(state.legacy_templates.iter().map(|(name, body)| (name.clone(), body.clone())));
        }
        answer.insert(
            "metadata".into(),
            json!({
                "cluster_uuid": api.identity.cluster_uuid,
                "cluster_uuid_committed": true,
                "templates": templates,
                "indices": indices,
                "ingest": ingest,
            }),
        );
    }
    let shard = |meta: &IndexMeta, number: u32, lost: bool| {
        json!({
            "state": if lost { "UNASSIGNED" } else { "STARTED" },
            "primary": true,
            "node": (!lost).then(|| node::id(api)),
            "relocating_node": null,
            "shard": number,
            "index": &*meta.name,
        })
    };
    let lost = |meta: &IndexMeta| -> Vec<bool> {
        health::faults(api, meta).iter().map(|fault| fault.is_some_and(ShardFault::is_out_of_use)).collect()
    };
    if wants("routing_table") {
        let indices: Map<String, Value> = metas
            .iter()
            .map(|meta| {
                let shards: Map<String, Value> = (0..)
                    .zip(lost(meta))
                    .map(|(number, lost)| (number.to_string(), json!([shard(meta, number, lost)])))
                    .collect();
                (meta.name.to_string(), json!({ "shards": shards }))
            })
            .collect();
        answer.insert("routing_table".into(), json!({ "indices": indices }));
    }
    if wants("routing_nodes") {
        let (mut assigned, mut unassigned) = (Vec::new(), Vec::new());
        for meta in &metas {
            for (number, lost) in (0..).zip(lost(meta)) {
                let list = if lost { &mut unassigned } else { &mut assigned };
                list.push(shard(meta, number, lost));
            }
        }
        let nodes = json!({ node::id(api): assigned });
        answer.insert("routing_nodes".into(), json!({ "unassigned": unassigned, "nodes": nodes }));
    }
    Ok(Response::json(200, answer.into()))
}

fn blocks(state: &Metadata, metas: &[std::sync::Arc<IndexMeta>]) -> Value {
    let mut indices = Map::new();
    for meta in metas {
        let blocks: Map<String, Value> = state
            .blocks_of(meta)
            .map(|block| {
                let shown = json!({
                    "description": block.description,
                    "retryable": block.retryable,
                    "levels": block.levels,
                });
                (block.id.to_string(), shown)
            })
            .collect();
        if !blocks.is_empty() {
            indices.insert(meta.name.to_string(), blocks.into());
        }
    }
    if indices.is_empty() { json!({}) } else { json!({ "indices": indices }) }
}

fn index_state(api: &Api, meta: &IndexMeta, flat: bool) -> Result<Value, Error> {
    let terms: Map<String, Value> =
        (0..meta.shards).map(|shard| (shard.to_string(), json!([shard]))).collect();
    let aliases: Vec<&String> = meta.aliases.keys().collect();
    Ok(json!({
        "state": if meta.open { "open" } else { "close" },
        "settings": render_settings(&api.session.settings(meta), flat),
        "mappings": super::mappings::render(api, meta, true)?,
        "aliases": aliases,
        "routing_num_shards": meta.shards,
        "shards": terms,
    }))
}

/// Kinds of analyzer components, each of which `_cluster/stats` could count.
const ANALYSIS_PARTS: [&str; 8] = [
    "char_filter_types",
    "tokenizer_types",
    "filter_types",
    "analyzer_types",
    "built_in_char_filters",
    "built_in_tokenizers",
    "built_in_filters",
    "built_in_analyzers",
];
/// Roles of nodes that this one has not, and typed clients want counted.
const OTHER_ROLES: [&str; 7] =
    ["data_cold", "data_content", "data_frozen", "data_hot", "data_warm", "ml", "transform"];

pub(crate) fn statistics(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    nodes: &str,
) -> Result<Response, Error> {
    options::flag(&mut request.params, "flat_settings")?;
    request.params.take_time("timeout")?;
    request.finish()?;
    let matched = node::selected(api, nodes);
    let state = api.session.metadata();
    let pipelines = served.ingest().map_or(0, IngestService::count);
    let mut figures = Vec::new();
    let mut shards = 0u64;
    for meta in state.indices().filter(|meta| meta.open) {
        shards += u64::from(meta.shards);
        figures.extend(stats::figures(api, meta));
    }
    let sums = stats::sum(&figures);
    let mut indices =
        json!({ "count": state.indices().count(), "shards": { "total": shards, "primaries": shards } });
    if let Value::Object(members) = &mut indices {
        let mut sections = stats::render(&sums, &Sections::all(), api.session.clock().now_ms());
        for name in ["docs", "store", "fielddata", "query_cache", "completion", "segments"] {
            if let Some(section) = sections.remove(name) {
                members.insert(name.to_owned(), section);
            }
        }
        members.insert("mappings".into(), json!({ "field_types": [] }));
        let parts = ANALYSIS_PARTS.iter().map(|part| ((*part).to_owned(), json!([])));
        members.insert("analysis".into(), parts.collect::<Map<_, _>>().into());
    }
    let (process, machine) = (Process::read(), Machine::read());
    let disk = FileSystem::read(&api.identity.data_dir);
    let roles: Map<String, Value> =
        node::ROLES.iter().map(|role| ((*role).to_owned(), Value::from(1))).collect();
    let mut count = json!({ "total": 1, "coordinating_only": 0, "voting_only": 0 });
    if let Value::Object(members) = &mut count {
        members.extend(OTHER_ROLES.map(|role| (role.to_owned(), Value::from(0))));
        members.extend(roles);
    }
    let mut answer = node::header(api, matched);
    answer.insert("cluster_uuid".into(), api.identity.cluster_uuid.as_str().into());
    answer.insert("timestamp".into(), api.session.clock().now_ms().into());
    answer.insert("status".into(), health::of_node(api, health::of_all(api, &state).status()).name().into());
    answer.insert("indices".into(), indices);
    answer.insert(
        "nodes".into(),
        json!({
            "count": count,
            "versions": [node::VERSION],
            "os": {
                "available_processors": machine.processors,
                "allocated_processors": machine.processors,
                "names": [{ "name": "Linux", "count": 1 }],
                "pretty_names": [{ "pretty_name": "Linux", "count": 1 }],
                "mem": {
                    "total_in_bytes": machine.memory_total,
                    "free_in_bytes": machine.memory_free,
                    "used_in_bytes": machine.memory_used(),
                    "free_percent": percent(machine.memory_free, machine.memory_total),
                    "used_percent": percent(machine.memory_used(), machine.memory_total),
                },
            },
            "process": {
                "cpu": { "percent": super::nodes::cpu_percent(&process, &machine) },
                "open_file_descriptors": {
                    "min": process.open_files, "max": process.open_files, "avg": process.open_files,
                },
            },
            "jvm": {
                "max_uptime_in_millis": process.uptime_ms,
                "versions": [],
                "mem": {
                    "heap_used_in_bytes": process.anonymous,
                    "heap_max_in_bytes": machine.memory_total,
                },
                "threads": process.threads,
            },
            "fs": {
                "total_in_bytes": disk.total,
                "free_in_bytes": disk.free,
                "available_in_bytes": disk.available,
            },
            "plugins": super::nodes::plugins(),
            "discovery_types": { "single-node": 1 },
            "packaging_types": [{ "type": "tar", "flavor": "default", "count": 1 }],
            "ingest": { "number_of_pipelines": pipelines, "processor_stats": {} },
            "indexing_pressure": super::nodes::indexing_pressure(),
            "network_types": {
                "transport_types": { "millrace": 1 },
                "http_types": { "millrace": 1 },
            },
        }),
    );
    Ok(Response::json(200, answer.into()))
}

pub(crate) fn pending_tasks(request: &mut Request) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    Ok(Response::json(200, json!({ "tasks": [] })))
}
