//! This node as clients see it: its names, addresses, and the roles that one process has.

use millrace_catalog::metadata::VERSION_CREATED;
use serde_json::{Value, json};

use crate::Api;

/// Version of the data API.
pub(super) const VERSION: &str = "7.10.2";

/// Roles of the node, by their long names.
pub(super) const ROLES: [&str; 4] = ["data", "ingest", "master", "remote_cluster_client"];

/// The same as `_cat` shows them.
pub(super) const ROLE_LETTERS: &str = "dimr";

/// Plugins whose endpoints clients look for by name.
pub(super) const PLUGINS: [(&str, &str); 1] = [("opensearch-sql", "SQL and PPL over the data API")];

/// Modules of OpenSearch that clients look for by name and whose whole work is done here.
pub(super) const MODULES: [(&str, &str); 1] =
    [("analysis-common", "analyzers, tokenizers, and filters of characters and tokens")];

/// Returns the node's id: there is one node, so that the cluster's identity tells it apart.
pub(super) fn id(api: &Api) -> &str {
    &api.identity.cluster_uuid
}

/// Returns the address of the data API, `host:port`.
pub(super) fn address(api: &Api) -> &str {
    &api.identity.address
}

/// Returns the address without its port.
pub(super) fn ip(api: &Api) -> &str {
    let address = address(api);
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Returns whether a node filter such as `_all`, `_local`, `_master`, an id, a name or an address selects this node.
pub(super) fn selected(api: &Api, filter: &str) -> bool {
    filter.split(',').any(|part| match part {
        "_all" | "_local" | "_master" | "_cluster_manager" | "" => true,
        "data:true" | "master:true" | "ingest:true" | "cluster_manager:true" => true,
        part => [id(api), &api.identity.node, ip(api)]
            .into_iter()
            .any(|name| millrace_mapping::pattern::matches(part, name)),
    })
}

/// Makes the head of an answer about nodes.
pub(super) fn header(api: &Api, matched: bool) -> serde_json::Map<String, Value> {
    let count = u32::from(matched);
    let mut answer = serde_json::Map::new();
    answer.insert("_nodes".into(), json!({ "total": count, "successful": count, "failed": 0 }));
    answer.insert("cluster_name".into(), api.identity.cluster.as_str().into());
    answer
}

/// Makes what every section about the node begins with.
pub(super) fn face(api: &Api) -> Value {
    json!({
        "name": api.identity.node,
        "transport_address": address(api),
        "host": ip(api),
        "ip": address(api),
        "version": VERSION,
        "version_id": VERSION_CREATED.parse::<u64>().unwrap_or_default(),
        "roles": ROLES,
    })
}
