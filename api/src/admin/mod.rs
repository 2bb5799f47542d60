//! Administration over HTTP: indices, settings, mappings, aliases, templates, maintenance, cluster
//! and node figures, and the `_cat` tables.
//!
//! [`route`] recognises the paths of all of these and hands each request to its handler. Handlers
//! take their parameters, call [`Request::finish`], and then either read the engine's
//! [`Metadata`](millrace_storage::metadata::Metadata) and figures, or put one of its pure decisions
//! through [`Engine::change`](millrace_storage::Engine::change). A path that is not here is not
//! served: nothing is answered with a success that did not happen.

mod aliases;
mod analyze;
mod cat;
mod cgroup;
mod cluster;
mod field_mapping;
mod health;
mod indices;
mod maintenance;
mod mappings;
mod node;
mod nodes;
mod options;
mod process;
mod segments;
mod settings;
mod stats;
mod tasks;
mod templates;

use millrace_storage::metadata::TemplateKind;

pub use cgroup::memory_limit;
pub use process::anonymous_bytes;

use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// First or second segments under which documents and searches live.
const NOT_ADMIN: [&str; 10] = [
    "_bulk",
    "_doc",
    "_create",
    "_update",
    "_source",
    "_search",
    "_count",
    "_mget",
    "_msearch",
    "_delete_by_query",
];

/// Whether the path is that of a mapping with a type name, which may be `_doc` too. A document of
/// the id `_mapping` is told from it by the parameter that such a request has.
fn names_type_of_mapping(request: &Request) -> bool {
    let mapping = |segment: &str| matches!(segment, "_mapping" | "_mappings");
    match request.path.as_slice() {
        [first, _] => mapping(first),
        [_, _, last] => mapping(last) && request.params.peek("include_type_name").is_some(),
        _ => false,
    }
}

/// Routes a request to its handler; `None` where the path is none of these.
pub(crate) async fn route(api: &Api, request: &mut Request) -> Option<Result<Response, Error>> {
    let second = request.path.get(1).map(String::as_str).unwrap_or_default();
    let first = request.path.first().map(String::as_str)?;
    if !names_type_of_mapping(request) && (NOT_ADMIN.contains(&first) || NOT_ADMIN.contains(&second)) {
        return None;
    }
    let index_alone = request.path.len() == 1 && (!first.starts_with('_') || first == "_all");
    if !index_alone && !request.path.iter().any(|segment| segment.starts_with('_')) {
        return None;
    }
    let path = request.path.clone();
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let method = request.method.clone();
    Some(match (method.as_str(), parts.as_slice()) {
        (_, ["_cat", ..]) => return cat::route(api, request, &parts[1..]).await,
        (_, ["_cluster", ..]) => return cluster::route(api, request, &parts[1..]).await,
        (_, ["_nodes", ..]) => return nodes::route(api, request, &parts[1..]).await,
        ("PUT", ["_plugins" | "_opendistro", "_query" | "_sql", "settings"]) => {
            cluster::put_query_settings(api, request).await
        }
        ("GET", ["_tasks"]) => tasks::list(api, request),
        (_, ["_template", ..]) => {
            return templates::route(api, request, TemplateKind::Legacy, &parts[1..]).await;
        }
        (_, ["_index_template", ..]) => {
            return templates::route(api, request, TemplateKind::Index, &parts[1..]).await;
        }
        (_, ["_component_template", ..]) => {
            return templates::route(api, request, TemplateKind::Component, &parts[1..]).await;
        }
        ("GET" | "POST", ["_analyze"]) => analyze::analyze(api, request, None).await,
        ("GET" | "POST", [index, "_analyze"]) => analyze::analyze(api, request, Some(index)).await,
        ("GET", ["_resolve", "index", expression]) => indices::resolve(api, request, expression),
        _ if index_alone => return indices::route(api, request, parts[0]).await,
        (_, ["_alias" | "_aliases", rest @ ..]) => {
            return aliases::route(api, request, None, parts[0], rest).await;
        }
        (_, [index, verb @ ("_alias" | "_aliases"), rest @ ..]) => {
            return aliases::route(api, request, Some(index), verb, rest).await;
        }
        (_, ["_settings", rest @ ..]) => return settings::route(api, request, None, rest).await,
        (_, [index, "_settings" | "_setting", rest @ ..]) => {
            return settings::route(api, request, Some(index), rest).await;
        }
        ("GET", ["_mapping" | "_mappings", rest @ ..]) if rest.contains(&"field") => {
            return field_mapping::route(api, request, None, rest);
        }
        ("GET", [index, "_mapping" | "_mappings", rest @ ..]) if rest.contains(&"field") => {
            return field_mapping::route(api, request, Some(index), rest);
        }
        (_, ["_mapping" | "_mappings", rest @ ..]) => return mappings::route(api, request, None, rest).await,
        (_, [index, "_mapping" | "_mappings", rest @ ..]) => {
            return mappings::route(api, request, Some(index), rest).await;
        }
        (_, [index, doc_type, "_mapping" | "_mappings"]) => {
            return mappings::route(api, request, Some(index), &[doc_type]).await;
        }
        ("POST", ["_open" | "_close"]) => Err(Error::validation(&["index is missing"])),
        ("POST", [index, "_open"]) => indices::open(api, request, index).await,
        ("POST", [index, "_close"]) => indices::close(api, request, index).await,
        ("GET" | "POST", ["_refresh"]) => maintenance::refresh(api, request, "_all").await,
        ("GET" | "POST", [index, "_refresh"]) => maintenance::refresh(api, request, index).await,
        ("GET" | "POST", ["_flush"]) => maintenance::flush(api, request, "_all").await,
        ("GET" | "POST", [index, "_flush"]) => maintenance::flush(api, request, index).await,
        ("GET" | "POST", ["_flush", "synced"]) => maintenance::synced_flush(api, request, "_all").await,
        ("GET" | "POST", [index, "_flush", "synced"]) => maintenance::synced_flush(api, request, index).await,
        ("POST", ["_forcemerge"]) => maintenance::force_merge(api, request, "_all").await,
        ("POST", [index, "_forcemerge"]) => maintenance::force_merge(api, request, index).await,
        ("POST", ["_cache", "clear"]) => maintenance::clear_cache(api, request, "_all"),
        ("POST", [index, "_cache", "clear"]) => maintenance::clear_cache(api, request, index),
        ("GET", ["_segments"]) => segments::get(api, request, "_all"),
        ("GET", [index, "_segments"]) => segments::get(api, request, index),
        ("GET", ["_stats"]) => stats::get(api, request, "_all", None),
        ("GET", ["_stats", metrics]) => stats::get(api, request, "_all", Some(metrics)),
        ("GET", [index, "_stats"]) => stats::get(api, request, index, None),
        ("GET", [index, "_stats", metrics]) => stats::get(api, request, index, Some(metrics)),
        _ => return None,
    })
}
