//! The names that privileges go by, and the actions that each means.
//!
//! Three vocabularies are known: Elasticsearch's privileges, OpenSearch's action groups, and names of actions themselves, which
//! may have wildcards. A name that several have means the same here for all: what Elasticsearch makes of it. Privileges for parts
//! that this server has not are known and grant nothing, so that roles made for those products can be brought along.

use millrace_catalog::access::{Action, ActionSet, Scope};
use millrace_catalog::metadata::{did_you_mean, similar};
use millrace_mapping::pattern::matches;

use crate::error::{Error, Result};
use crate::limits::{MAX_NAME_BYTES, shorten};

/// Scope of a privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivilegeScope {
    /// The cluster.
    Cluster,
    /// Indices.
    Indices,
}

/// A name, and patterns of the names of its actions; those behind `!` are taken away.
type Entry = (&'static str, &'static [&'static str]);

const SECURITY: &str = "cluster:admin/opensearch/security/*";
const KEYS: &str = "cluster:admin/xpack/security/api_key/*";
const CREATE_KEY: &str = "cluster:admin/xpack/security/api_key/create";
const TEMPLATES: &[&str] =
    &["indices:admin/template/*", "indices:admin/index_template/*", "cluster:admin/component_template/*"];
const PIPELINES: &[&str] = &["cluster:admin/pipelines/*"];
const INGEST: &[&str] = &["cluster:admin/ingest/*"];
const ALL_PIPELINES: &[&str] = &["cluster:admin/pipelines/*", "cluster:admin/ingest/*"];

const CLUSTER: &[Entry] = &[
    ("all", &["*"]),
    ("none", &[]),
    ("monitor", &["cluster:monitor/*"]),
    ("manage", &["*", "!cluster:admin/opensearch/security/*", "!cluster:admin/xpack/security/*"]),
    ("manage_security", &[SECURITY, KEYS]),
    ("read_security", &["cluster:admin/opensearch/security/get"]),
    ("manage_api_key", &[KEYS]),
    ("manage_own_api_key", &[CREATE_KEY]),
    ("manage_index_templates", TEMPLATES),
    ("manage_pipeline", ALL_PIPELINES),
    ("manage_logstash_pipelines", PIPELINES),
    ("manage_ingest_pipelines", INGEST),
    (
        "read_pipeline",
        &[
            "cluster:admin/pipelines/get",
            "cluster:admin/ingest/pipeline/get",
            "cluster:admin/ingest/pipeline/simulate",
            "cluster:admin/ingest/processor/grok/get",
        ],
    ),
    ("cluster_all", &["cluster:*"]),
    ("cluster_monitor", &["cluster:monitor/*"]),
    // Requests of several parts, each of which is asked for on its index here.
    ("cluster_composite_ops", &[]),
    ("cluster_composite_ops_ro", &[]),
    ("cluster_manage_index_templates", TEMPLATES),
    ("cluster_manage_pipelines", ALL_PIPELINES),
    ("manage_snapshots", &["cluster:admin/snapshot/*", "cluster:admin/repository/*"]),
    (
        "create_snapshot",
        &["cluster:admin/snapshot/create", "cluster:admin/snapshot/get", "cluster:admin/repository/get"],
    ),
    ("monitor_snapshot", &["cluster:admin/snapshot/get", "cluster:admin/repository/get"]),
    ("cancel_task", &["cluster:admin/tasks/cancel"]),
    ("manage_ilm", &["cluster:admin/opendistro/ism/policy/*"]),
    ("read_ilm", &["cluster:admin/opendistro/ism/policy/get"]),
    (
        "manage_slm",
        &[
            "cluster:admin/opensearch/snapshot_management/policy/*",
            "cluster:admin/snapshot/get",
            "cluster:admin/repository/get",
        ],
    ),
    ("read_slm", &["cluster:admin/opensearch/snapshot_management/policy/get"]),
    ("unlimited", &["*"]),
];

const WRITE: &[&str] = &["indices:data/write/*", "indices:admin/mapping/auto_put"];
const DELETE: &[&str] = &["indices:data/write/delete", "indices:data/write/delete/byquery"];
const MANAGE: &[&str] = &["indices:monitor/*", "indices:admin/*", "indices:data/read/field_caps"];

const INDICES: &[Entry] = &[
    ("all", &["*"]),
    ("none", &[]),
    ("read", &["indices:data/read/*", "indices:admin/validate/query"]),
    ("write", WRITE),
    (
        "index",
        &[
            "indices:data/write/index",
            "indices:data/write/index:op_type/create",
            "indices:data/write/update",
            "indices:admin/mapping/auto_put",
        ],
    ),
    (
        "create",
        &[
            "indices:data/write/index",
            "indices:data/write/index:op_type/create",
            "indices:admin/mapping/auto_put",
        ],
    ),
    ("create_doc", &["indices:data/write/index:op_type/create", "indices:admin/mapping/auto_put"]),
    ("delete", DELETE),
    (
        "create_index",
        &["indices:admin/create", "indices:admin/auto_create", "indices:admin/data_stream/create"],
    ),
    ("delete_index", &["indices:admin/delete"]),
    ("manage", MANAGE),
    ("monitor", &["indices:monitor/*"]),
    (
        "view_index_metadata",
        &[
            "indices:admin/get",
            "indices:admin/resolve/index",
            "indices:admin/mappings/*",
            "indices:admin/aliases/get",
            "indices:admin/data_stream/get",
            "indices:admin/opensearch/ism/managedindex/explain",
            "indices:admin/validate/query",
            "indices:monitor/settings/get",
            "indices:data/read/field_caps",
        ],
    ),
    ("maintenance", &["indices:admin/refresh", "indices:admin/flush", "indices:admin/forcemerge"]),
    ("auto_configure", &["indices:admin/auto_create", "indices:admin/mapping/auto_put"]),
    ("indices_all", &["indices:*"]),
    ("indices_monitor", &["indices:monitor/*"]),
    (
        "crud",
        &[
            "indices:data/read/*",
            "indices:data/write/*",
            "indices:admin/validate/query",
            "indices:admin/mapping/auto_put",
        ],
    ),
    ("data_access", &["indices:data/*", "indices:admin/validate/query", "indices:admin/mapping/auto_put"]),
    ("get", &["indices:data/read/get", "indices:data/read/mget"]),
    ("search", &["indices:data/read/search", "indices:data/read/msearch", "indices:data/read/sql"]),
    ("manage_aliases", &["indices:admin/aliases*"]),
    ("manage_ilm", &["indices:admin/opensearch/ism/managedindex*"]),
    ("unlimited", &["*"]),
];

/// Privileges of clusters for what this server has not.
const ABSENT_CLUSTER: &[&str] = &[
    "cross_cluster_replication",
    "cross_cluster_search",
    "delegate_pki",
    "grant_api_key",
    "manage_autoscaling",
    "manage_ccr",
    "manage_data_frame_transforms",
    "manage_enrich",
    "manage_inference",
    "manage_ml",
    "manage_oidc",
    "manage_rollup",
    "manage_saml",
    "manage_search_application",
    "manage_service_account",
    "manage_token",
    "manage_transform",
    "manage_user_profile",
    "manage_watcher",
    "monitor_data_frame_transforms",
    "monitor_enrich",
    "monitor_inference",
    "monitor_ml",
    "monitor_rollup",
    "monitor_text_structure",
    "monitor_transform",
    "monitor_watcher",
    "read_ccr",
    "transport_client",
];

/// The same of indices.
const ABSENT_INDICES: &[&str] = &[
    "cross_cluster_replication",
    "cross_cluster_replication_internal",
    "manage_data_stream_lifecycle",
    "manage_follow_index",
    "manage_leader_index",
    "read_cross_cluster",
    "suggest",
];

/// Prefixes of action names that the products have and this server lacks, or has not under a name of its own.
const ABSENT_ACTIONS: &[&str] = &[
    "cluster:admin/indices/",
    "cluster:admin/ingest/",
    "cluster:admin/opendistro/",
    "cluster:admin/opensearch/",
    "cluster:admin/plugins/",
    "cluster:admin/repository/",
    "cluster:admin/snapshot/",
    "cluster:admin/xpack/",
    "indices:admin/data_stream/",
    "indices:admin/exists",
    "indices:admin/aliases/exists",
    "indices:admin/plugins/",
    "indices:admin/shards/",
    "indices:admin/types/exists",
    "indices:data/read/mtv",
    "indices:data/read/tv",
    "indices:data/read/xpack/",
    "indices:data/write/reindex",
    "indices:monitor/upgrade",
    "internal:",
];

/// Documents are written in bulks, with any of these rights.
const BULK: ActionSet = ActionSet::new(&[
    Action::IndexDocument,
    Action::CreateDocument,
    Action::UpdateDocument,
    Action::DeleteDocument,
]);

/// Returns the actions that a privilege grants over the cluster or over indices.
///
/// # Errors
/// [`Error::Invalid`] for a name that nobody knows; it says which ones are near.
pub fn privilege(over: PrivilegeScope, name: &str) -> Result<ActionSet> {
    let (entries, absent, what) = match over {
        PrivilegeScope::Cluster => (CLUSTER, ABSENT_CLUSTER, "cluster"),
        PrivilegeScope::Indices => (INDICES, ABSENT_INDICES, "index"),
    };
    if let Some((_, patterns)) = entries.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Ok(actions(over, patterns));
    }
    if absent.contains(&name) {
        return Ok(ActionSet::NONE);
    }
    if name.len() <= MAX_NAME_BYTES && (name.contains(':') || name.contains('*')) {
        // Parts of an action have names of their own in OpenSearch: `indices:data/write/bulk[s]`.
        let plain = name.split('[').next().unwrap_or(name);
        let known = Action::ALL.iter().any(|action| action.name() == plain);
        if known || name.contains('*') || ABSENT_ACTIONS.iter().any(|absent| plain.starts_with(absent)) {
            return Ok(actions(over, &[plain]));
        }
    }
    let names = entries.iter().map(|(known, _)| *known).chain(Action::ALL.iter().map(|action| action.name()));
    let near = similar(name, names);
    let hint = did_you_mean(&near[..near.len().min(3)]).unwrap_or_default();
    Err(Error::Invalid(format!("unknown {what} privilege [{}]{hint}", shorten(name))))
}

/// Lists the names of privileges, names of actions aside.
pub fn privilege_names(over: PrivilegeScope) -> impl Iterator<Item = &'static str> {
    let (entries, absent) = match over {
        PrivilegeScope::Cluster => (CLUSTER, ABSENT_CLUSTER),
        PrivilegeScope::Indices => (INDICES, ABSENT_INDICES),
    };
    entries.iter().map(|(name, _)| *name).chain(absent.iter().copied())
}

fn actions(over: PrivilegeScope, patterns: &[&str]) -> ActionSet {
    let taken = |name: &str| {
        patterns.iter().any(|pattern| matches(pattern, name))
            && !patterns.iter().any(|pattern| pattern.strip_prefix('!').is_some_and(|not| matches(not, name)))
    };
    let mut set = ActionSet::named(taken);
    if set.contains(Action::IndexDocument) {
        set = set.with(Action::CreateDocument);
    }
    if !set.and(BULK).is_empty() {
        set = set.with(Action::Bulk);
    }
    let scope = match over {
        PrivilegeScope::Cluster => Scope::Cluster,
        PrivilegeScope::Indices => Scope::Index,
    };
    let of_scope = |set: ActionSet, action: Action| {
        if action.scope() == scope { set.with(action) } else { set }
    };
    set.iter().fold(ActionSet::NONE, of_scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused_with_near_ones() {
        for (over, name, expected) in [
            (PrivilegeScope::Cluster, "monitr", "unknown cluster privilege [monitr] did you mean [monitor]?"),
            (
                PrivilegeScope::Indices,
                "view_index_metdata",
                "unknown index privilege [view_index_metdata] did you mean [view_index_metadata]?",
            ),
            (PrivilegeScope::Indices, "xyzzy", "unknown index privilege [xyzzy]"),
        ] {
            assert_eq!(privilege(over, name).unwrap_err().to_string(), expected);
        }
        let error = privilege(PrivilegeScope::Indices, "indices:data/read/serch").unwrap_err().to_string();
        assert!(error.contains("indices:data/read/search"), "{error}");
        assert!(privilege(PrivilegeScope::Indices, &"x*".repeat(1000)).is_err());
        assert!(
            privilege(PrivilegeScope::Cluster, "read").is_err()
                && privilege(PrivilegeScope::Indices, "manage_security").is_err()
        );
    }

    /// Tests the meaning of each name, a line each. A change of this table changes the grants of roles.
    #[test]
    fn names_mean_what_the_table_says() {
        let mut table = String::new();
        for (over, scope) in [(PrivilegeScope::Cluster, "cluster"), (PrivilegeScope::Indices, "indices")] {
            for name in privilege_names(over) {
                let actions: Vec<_> =
                    privilege(over, name).unwrap().iter().map(|a| format!("{a:?}")).collect();
                table += &format!("{scope} {name}: {}\n", actions.join(" ")).replace(": \n", ":\n");
            }
        }
        assert_eq!(table, include_str!("names.txt"));
    }

    #[test]
    fn what_a_scope_lacks_is_not_granted() {
        for over in [PrivilegeScope::Cluster, PrivilegeScope::Indices] {
            let all = privilege(over, "*").unwrap();
            let scope = if over == PrivilegeScope::Cluster { Scope::Cluster } else { Scope::Index };
            assert!(Action::ALL.iter().all(|action| all.contains(*action) == (action.scope() == scope)));
            for name in privilege_names(over) {
                let set = privilege(over, name).unwrap();
                assert_eq!(set.and(all), set, "{name}");
            }
        }
    }

    #[test]
    fn names_of_actions_bring_what_they_need() {
        let of = |name| privilege(PrivilegeScope::Indices, name).unwrap();
        let index = ActionSet::new(&[Action::IndexDocument, Action::CreateDocument, Action::Bulk]);
        assert_eq!(of("indices:data/write/index"), index);
        assert_eq!(of("indices:data/write/bulk[s]"), ActionSet::new(&[Action::Bulk]));
        assert_eq!(of("indices:data/read/search[phase/query]"), ActionSet::new(&[Action::Search]));
        assert_eq!(of("indices:data/read/tv"), ActionSet::NONE);
        assert_eq!(of("READ"), of("read"));
        assert!(privilege(PrivilegeScope::Cluster, "cluster:admin/opensearch/ppl").unwrap().is_empty());
    }
}
