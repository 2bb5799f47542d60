//! Indices, aliases, templates and cluster settings: immutable state and pure decisions over it.
//!
//! [`Metadata`] is the state as of one moment. A decision is a method that takes a request and the
//! time, changes nothing, and returns [`MetadataChange`]s or a refusal; the engine makes the changes
//! durable and then [`applies`](Metadata::apply) them. Nothing here does I/O.
//!
//! - `resolve`: which indices an expression stands for, and which one a write goes to
//! - `create`: creation from a body and the matching templates
//! - `lifecycle`: delete, open, close, update of settings
//! - `data_streams`: names for backing indices
//! - `rollover`: the write index of an alias or data stream becomes a new one
//! - `restore`: an index of a snapshot takes its place
//! - `resize`: an index with the documents of another one
//! - `retention`: limits on the space of indices
//! - `aliases`, `templates`, `cluster`: their own decisions
//! - `blocks`: what `index.blocks.*` forbid
//! - `index_sort`: the order that `index.sort.*` ask for
//! - `index_settings`: every setting that an index may have; `settings`: flat maps and values
//! - `mapping_body`: type levels and merging of mapping bodies before they are parsed
//! - `names`, `date_math`, `pattern`: names

mod aliases;
mod blocks;
mod builtin_templates;
mod cluster;
mod create;
mod data_streams;
mod date_math;
mod index_settings;
mod index_sort;
mod lifecycle;
mod mapping_body;
mod names;
mod resize;
mod resolve;
mod restore;
mod retention;
mod rollover;
mod settings;
mod templates;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::Result;
use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
pub use uuid::Uuid;

use crate::access::{Action, Guard};

pub use aliases::{AliasAction, AliasListing, IndexAliases, parse_alias, parse_alias_actions};
pub use blocks::{Block, BlockLevel, check_block};
pub use cluster::{ClusterSettingsUpdate, cluster_defaults};
pub use create::{CreateIndex, VERSION_CREATED};
pub use data_streams::{DATA_STREAM, DataStream, TIMESTAMP_FIELD, backing_index_name};
pub use index_settings::defaults as index_setting_defaults;
pub use index_sort::{SEQ_NO, SortField, list as setting_list, parse as parse_index_sort};
pub use mapping_body::split_type;
pub use names::{check_alias_name, check_index_name};
pub use resize::{RESIZE_PENDING, ResizeIndex, ResizeKind, ResizePlan, fewest_shards};
pub use restore::{RESTORE_PENDING, RestoreIndex};
pub use retention::{OwnRetention, RETENTION_HOLD, RETENTION_HOLDS, RetentionLimit, SpaceLimit};
pub use rollover::RolloverPlan;
pub use settings::{
    did_you_mean, edit_distance, flatten, nest, parse_bytes, parse_time, render as render_settings, similar,
    with_index_prefix,
};
pub use templates::{
    Layers, TemplateKind, parse_component_template, parse_index_template, parse_legacy_template,
};

/// Metadata of the cluster, as of one moment. Shared as `Arc<Metadata>`, replaced as a whole by [`Metadata::apply`].
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Indices by name. States share what a change leaves alone, so that a change costs the same whatever their number.
    indices: RedBlackTreeMapSync<Arc<str>, Arc<IndexMeta>>,
    /// Legacy templates by name.
    pub legacy_templates: Arc<BTreeMap<String, Value>>,
    /// Composable index templates by name.
    pub index_templates: Arc<BTreeMap<String, Value>>,
    /// Component templates by name.
    pub component_templates: Arc<BTreeMap<String, Value>>,
    /// Persistent cluster settings, flattened.
    pub persistent: Arc<Map<String, Value>>,
    /// Transient cluster settings, flattened; not stored.
    pub transient: Arc<Map<String, Value>>,
    /// `true` if the disk is at the flood stage: indices but for the server's own can be read and deleted only. Not stored.
    pub flood_stage: bool,
    /// `true` if it is so full then that of the server's own only those are written that are to the last. Not stored.
    pub disk_tight: bool,
    /// `true` if it is so full that these cannot be written, either. Not stored.
    pub disk_full: bool,
    /// Counts the times that changes were applied.
    pub version: u64,
    /// Indices of each alias, in order, derived from `indices` by `apply`.
    by_alias: RedBlackTreeMapSync<Arc<str>, Arc<Vec<Arc<str>>>>,
    /// Data streams by name, derived of the settings of `indices`.
    data_streams: RedBlackTreeMapSync<Arc<str>, Arc<DataStream>>,
    /// Shards of open indices, derived as well.
    open_shards: u64,
    /// Guard of the caller: indices on which its action is not allowed are not shown.
    guard: Option<Guard>,
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
    /// `true` if the index is open.
    pub open: bool,
    /// Creation time in milliseconds.
    pub created_ms: i64,
    /// Number of shards.
    pub shards: u32,
    /// Number of replicas.
    pub replicas: u32,
    /// Type name under which a client with types put the mapping; `_doc` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc_type: Option<Arc<str>>,
}

impl IndexMeta {
    /// Reads a setting as text: the value set, else the default.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).and_then(Value::as_str).or_else(|| index_settings::default_of(key))
    }

    /// Reads a boolean setting; one that is neither set nor has a default is `false`.
    pub fn flag(&self, key: &str) -> bool {
        self.setting(key) == Some("true")
    }

    /// Reads an integer setting.
    pub fn integer(&self, key: &str) -> Option<i64> {
        self.setting(key).and_then(|text| text.parse().ok())
    }

    /// Reads a time setting; `None` where it is `-1` (never) or has no value.
    pub fn duration(&self, key: &str) -> Option<Duration> {
        self.setting(key).and_then(|text| parse_time(text).ok()).flatten()
    }

    /// Returns whether wildcards leave it out unless they ask for hidden indices.
    pub fn hidden(&self) -> bool {
        self.flag("index.hidden")
    }

    /// Counts its shards that are served.
    fn open_shards(&self) -> u64 {
        if self.open { u64::from(self.shards) } else { 0 }
    }

    /// Renders the uuid as clients see it: 22 characters of URL-safe base64.
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }

    /// Returns the type name of the mapping.
    pub fn mapping_type(&self) -> &str {
        self.doc_type.as_deref().unwrap_or("_doc")
    }
}

/// Gives the name that date math in a name stands for.
pub fn resolve_date_math(name: &str, now_ms: i64) -> Result<Cow<'_, str>> {
    date_math::resolve(name, now_ms)
}

/// Renders a uuid as 22 characters of URL-safe base64 without padding.
pub fn uuid_text(uuid: &Uuid) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let value = uuid.as_u128();
    // 22 groups of 6 bits are 132: the last group holds the final 2 bits, padded with zeros.
    (0..22)
        .map(|group: u32| {
            let bits = if group < 21 { value >> (122 - 6 * group) } else { value << 4 };
            char::from(ALPHABET[(bits & 0x3f) as usize])
        })
        .collect()
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

impl MetadataChange {
    /// Makes the change that replaces an existing index's metadata.
    pub(crate) fn replace(meta: IndexMeta) -> Self {
        Self::PutIndex { meta: Arc::new(meta), mapping: None }
    }
}

/// Options for the indices that an expression may stand for.
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

impl IndicesOptions {
    /// Returns the options of reads of documents: open indices, closed ones refused.
    pub const fn open_only() -> Self {
        Self {
            ignore_unavailable: false,
            allow_no_indices: true,
            expand_open: true,
            expand_closed: false,
            expand_hidden: false,
            forbid_closed: true,
            ignore_aliases: false,
        }
    }

    /// Returns the options of reads of metadata: wildcards match open and closed indices.
    pub const fn open_and_closed() -> Self {
        Self { expand_closed: true, forbid_closed: false, ..Self::open_only() }
    }
}

impl Metadata {
    /// Applies changes to this state, giving the next.
    pub fn apply(&self, changes: &[MetadataChange]) -> Metadata {
        let mut next = self.clone();
        for change in changes {
            match change {
                MetadataChange::PutIndex { meta, .. } => next.replace_index(&meta.name, Some(meta)),
                MetadataChange::DeleteIndex { name, uuid } => {
                    if next.indices.get(name).is_some_and(|meta| meta.uuid == *uuid) {
                        next.replace_index(name, None);
                    }
                }
                MetadataChange::PutTemplate { kind, name, body } => {
                    if let Some(templates) = next.templates_mut(kind) {
                        templates.insert(name.clone(), body.clone());
                    }
                }
                MetadataChange::DeleteTemplate { kind, name } => {
                    if let Some(templates) = next.templates_mut(kind) {
                        templates.remove(name);
                    }
                }
                MetadataChange::PutPersistent(settings) => next.persistent = Arc::new(settings.clone()),
                MetadataChange::PutTransient(settings) => next.transient = Arc::new(settings.clone()),
            }
        }
        next.version += 1;
        next
    }

    fn templates_mut(&mut self, kind: &str) -> Option<&mut BTreeMap<String, Value>> {
        match TemplateKind::from_name(kind)? {
            TemplateKind::Legacy => Some(Arc::make_mut(&mut self.legacy_templates)),
            TemplateKind::Index => Some(Arc::make_mut(&mut self.index_templates)),
            TemplateKind::Component => Some(Arc::make_mut(&mut self.component_templates)),
        }
    }

    /// Puts what an index is now in the place of what it was, with what is derived from it.
    fn replace_index(&mut self, name: &Arc<str>, meta: Option<&Arc<IndexMeta>>) {
        let before = self.indices.get(name).cloned();
        match meta {
            Some(meta) => self.indices.insert_mut(Arc::clone(name), Arc::clone(meta)),
            None => drop(self.indices.remove_mut(name)),
        }
        let shards = |meta: Option<&Arc<IndexMeta>>| meta.map_or(0, |meta| meta.open_shards());
        self.open_shards = self.open_shards + shards(meta) - shards(before.as_ref());
        self.replace_backing(before.as_deref(), meta.map(AsRef::as_ref), name);
        let had = before.iter().flat_map(|meta| meta.aliases.keys());
        for alias in had.filter(|alias| meta.is_none_or(|meta| !meta.aliases.contains_key(*alias))) {
            let Some(names) = self.by_alias.get_mut(alias.as_str()) else { continue };
            if let Ok(place) = names.binary_search(name) {
                Arc::make_mut(names).remove(place);
            }
            if names.is_empty() {
                self.by_alias.remove_mut(alias.as_str());
            }
        }
        for alias in meta.iter().flat_map(|meta| meta.aliases.keys()) {
            match self.by_alias.get_mut(alias.as_str()) {
                // Copied where a former state shares them, and only then.
                Some(names) => {
                    if let Err(place) = names.binary_search(name) {
                        Arc::make_mut(names).insert(place, Arc::clone(name));
                    }
                }
                None => self.by_alias.insert_mut(alias.as_str().into(), Arc::new(vec![Arc::clone(name)])),
            }
        }
    }

    /// Returns this state as it shows itself to whom a guard stands for.
    pub fn guarded(&self, guard: Option<Guard>) -> Self {
        Self { guard, ..self.clone() }
    }

    /// Returns whether an index of this name would be shown.
    fn sees(&self, index: &str) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.sees(index))
    }

    /// Checks that a name may be given to an index or an alias.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub(crate) fn check_name(&self, name: &str) -> Result<()> {
        self.check_named(name, name)
    }

    /// Checks that an action which a part of a request needs is allowed on a name, whatever the request itself is.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub(crate) fn check_part(&self, action: Action, name: &str) -> Result<()> {
        self.guard.as_ref().map_or(Ok(()), |guard| guard.check_part(action, name))
    }

    /// Checks that an index is shown that a request calls by a name, and says no other in the refusal.
    ///
    /// # Errors
    /// `Unauthorized`.
    fn check_named(&self, index: &str, name: &str) -> Result<()> {
        match &self.guard {
            Some(guard) if !guard.sees(index) => Err(guard.refusal(name)),
            _ => Ok(()),
        }
    }

    /// Returns an index by its name.
    pub fn index(&self, name: &str) -> Option<&Arc<IndexMeta>> {
        self.indices.get(name).filter(|meta| self.sees(&meta.name))
    }

    /// Lists the indices by name.
    pub fn indices(&self) -> impl Iterator<Item = &Arc<IndexMeta>> {
        self.indices.values().filter(|meta| self.sees(&meta.name))
    }

    /// Returns the names of the indices that carry an alias, in order; `None` where none is shown.
    pub fn alias_indices(&self, alias: &str) -> Option<Cow<'_, [Arc<str>]>> {
        let names = self.by_alias.get(alias)?.as_slice();
        if names.iter().all(|name| self.sees(name)) {
            return Some(Cow::Borrowed(names));
        }
        let seen: Vec<Arc<str>> = names.iter().filter(|name| self.sees(name)).cloned().collect();
        (!seen.is_empty()).then_some(Cow::Owned(seen))
    }

    /// Lists in order the names of aliases of indices that are shown.
    pub fn alias_names(&self) -> impl Iterator<Item = &Arc<str>> {
        let shown = |names: &[Arc<str>]| names.iter().any(|name| self.sees(name));
        self.by_alias.iter().filter(move |(_, names)| shown(names)).map(|(alias, _)| alias)
    }

    /// Resolves an index expression (names, aliases, wildcards, commas, `_all`, exclusions,
    /// date math `<logs-{now/d}>`). Indices come in the order in which the expression names them,
    /// those of a wildcard by name, each once.
    ///
    /// # Errors
    /// `IndexNotFound`, `IndexClosed`, `InvalidIndexName` or `IllegalArgument`.
    pub fn resolve(
        &self,
        expression: &str,
        options: &IndicesOptions,
        now_ms: i64,
    ) -> Result<Vec<Arc<IndexMeta>>> {
        resolve::resolve(self, expression, options, now_ms)
    }

    /// Cuts an index expression into names and wildcards, date math resolved, with whether each is an
    /// exclusion.
    ///
    /// # Errors
    /// `TooLarge` or `IllegalArgument`.
    pub fn expression_parts(expression: &str, now_ms: i64) -> Result<Vec<(String, bool)>> {
        resolve::parts(expression, now_ms)
    }

    /// Resolves the one index that writes to a name go to (an index, or an alias's write index).
    /// `None`: there is neither; see [`Metadata::auto_create_allowed`].
    ///
    /// # Errors
    /// `IllegalArgument` where an alias has no write index.
    pub fn write_index(&self, name: &str, now_ms: i64) -> Result<Option<Arc<IndexMeta>>> {
        resolve::write_index(self, name, now_ms)
    }

    /// Decides the creation of an index from a request body (`settings`, `mappings`, `aliases`) and
    /// matching templates. The body is in the form without types; see [`CreateIndex::parse`] for
    /// the other.
    ///
    /// # Errors
    /// `InvalidIndexName`, `IndexAlreadyExists`, `IllegalArgument`, `Validation`, `Parse`,
    /// `MapperParsing` and the refusals of aliases.
    pub fn create_index(
        &self,
        name: &str,
        body: &Value,
        now_ms: i64,
        uuid: Uuid,
    ) -> Result<Vec<MetadataChange>> {
        self.create(&CreateIndex::parse(name, body, false, now_ms)?, now_ms, uuid)
    }

    /// Reads a cluster setting: transient before persistent before the default.
    pub fn cluster_setting(&self, key: &str) -> Option<Value> {
        self.explicit_cluster_setting(key).cloned().or_else(|| cluster::default_of(key).map(Value::from))
    }

    /// Returns a cluster setting that somebody has set.
    pub fn explicit_cluster_setting(&self, key: &str) -> Option<&Value> {
        self.transient.get(key).or_else(|| self.persistent.get(key))
    }
}

#[cfg(test)]
mod tests;
