//! Indices, aliases, templates and cluster settings: immutable state and pure decisions over it.
// CONTRACT STUB (owner: metadata)
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::Result;

/// What the cluster knows, as of one moment. Shared as `Arc<Metadata>`, replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Indices by name.
    pub indices: BTreeMap<Arc<str>, Arc<IndexMeta>>,
    /// Legacy templates by name.
    pub legacy_templates: BTreeMap<String, Value>,
    /// Composable index templates by name.
    pub index_templates: BTreeMap<String, Value>,
    /// Component templates by name.
    pub component_templates: BTreeMap<String, Value>,
    /// Persistent cluster settings, flattened.
    pub persistent: Map<String, Value>,
    /// Transient cluster settings, flattened; not stored.
    pub transient: Map<String, Value>,
}

/// An index apart from its mapping and data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexMeta {
    /// Name.
    pub name: Arc<str>,
    /// Identity; a deleted and recreated index has another.
    pub uuid: Uuid,
    /// Settings, flattened to dotted keys with the `index.` prefix; values as strings, as
    /// OpenSearch shows them (arrays stay arrays).
    pub settings: Map<String, Value>,
    /// Aliases by name: filter, index_routing, search_routing, is_write_index, is_hidden as given.
    pub aliases: BTreeMap<String, Value>,
    /// Whether the index is open.
    pub open: bool,
    /// Creation time in milliseconds.
    pub created_ms: i64,
    /// Number of shards.
    pub shards: u32,
    /// Number of replicas.
    pub replicas: u32,
}

/// A change of the metadata: what a decision yields, what the catalog stores, what is applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MetadataChange {
    /// Creates or replaces an index. `mapping` (a `_mapping` body) is given at creation only.
    PutIndex {
        /// The index.
        meta: Arc<IndexMeta>,
        /// Mapping body at creation.
        mapping: Option<Value>,
    },
    /// Deletes an index.
    DeleteIndex {
        /// Its name.
        name: Arc<str>,
        /// Its uuid.
        uuid: Uuid,
    },
    /// Creates or replaces a template of a kind: `legacy`, `index` or `component`.
    PutTemplate {
        /// Kind.
        kind: String,
        /// Name.
        name: String,
        /// Body.
        body: Value,
    },
    /// Deletes a template.
    DeleteTemplate {
        /// Kind.
        kind: String,
        /// Name.
        name: String,
    },
    /// Replaces the persistent cluster settings.
    PutPersistent(Map<String, Value>),
    /// Replaces the transient cluster settings (kept in memory only).
    PutTransient(Map<String, Value>),
}

/// Which indices an expression may stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndicesOptions {
    /// Missing concrete names are left out instead of refused.
    pub ignore_unavailable: bool,
    /// An expression without any index is no error.
    pub allow_no_indices: bool,
    /// Wildcards match open indices.
    pub expand_open: bool,
    /// Wildcards match closed indices.
    pub expand_closed: bool,
    /// Wildcards match hidden indices.
    pub expand_hidden: bool,
    /// Concrete closed indices are an error.
    pub forbid_closed: bool,
    /// Aliases are not resolved (as for delete index).
    pub ignore_aliases: bool,
}

impl Metadata {
    /// Applies changes to this state, giving the next.
    pub fn apply(&self, _changes: &[MetadataChange]) -> Metadata {
        todo!()
    }
    /// Resolves an index expression (names, aliases, wildcards, commas, `_all`, exclusions,
    /// date math `<logs-{now/d}>`).
    pub fn resolve(
        &self,
        _expression: &str,
        _options: &IndicesOptions,
        _now_ms: i64,
    ) -> Result<Vec<Arc<IndexMeta>>> {
        todo!()
    }
    /// Resolves the one index that writes to a name go to (an index, or an alias's write index).
    pub fn write_index(&self, _name: &str, _now_ms: i64) -> Result<Option<Arc<IndexMeta>>> {
        todo!()
    }
    /// Decides the creation of an index from a request body (`settings`, `mappings`, `aliases`) and
    /// matching templates.
    pub fn create_index(
        &self,
        _name: &str,
        _body: &Value,
        _now_ms: i64,
        _uuid: Uuid,
    ) -> Result<Vec<MetadataChange>> {
        todo!()
    }
    /// Reads a cluster setting: transient before persistent before the default.
    pub fn cluster_setting(&self, _key: &str) -> Option<Value> {
        todo!()
    }
}
