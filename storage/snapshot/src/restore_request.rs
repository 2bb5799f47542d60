//! A request to restore a snapshot, and its outcome.

use serde_json::{Map, Value};

use crate::manifest::MissingShard;
use crate::selection::SelectionOptions;

/// Bytes of the files of a restore from which on its indices are searched before the files are here.
const EARLY_SEARCH_BYTES: u64 = 64 << 20;

/// A request to restore a snapshot.
#[derive(Clone, Debug)]
pub struct RestoreSnapshot {
    /// Expression of the indices; all that are not the server's own without one.
    pub indices: Option<String>,
    /// Leniency of the expression.
    pub options: SelectionOptions,
    /// `true` if templates and persistent settings are restored.
    pub include_global_state: bool,
    /// `true` if users, roles, role mappings and API keys are restored.
    pub include_accounts: bool,
    /// `true` if indices that cannot be read are left out.
    pub partial: bool,
    /// `true` if indices keep their aliases.
    pub include_aliases: bool,
    /// Regular expression of names that are replaced.
    pub rename_pattern: Option<String>,
    /// Replacement of what it finds.
    pub rename_replacement: Option<String>,
    /// Regular expression of names of aliases that are replaced.
    pub rename_alias_pattern: Option<String>,
    /// Replacement of what it finds.
    pub rename_alias_replacement: Option<String>,
    /// Settings of the restored indices, with the `index.` prefix.
    pub index_settings: Map<String, Value>,
    /// Patterns of settings that go back to their defaults.
    pub ignore_index_settings: Vec<String>,
    /// Bytes of all files from which on the indices are searched before these are here.
    pub early_search_bytes: u64,
}

impl Default for RestoreSnapshot {
    fn default() -> Self {
        Self {
            indices: None,
            options: SelectionOptions::default(),
            include_global_state: false,
            include_accounts: false,
            partial: false,
            include_aliases: true,
            rename_pattern: None,
            rename_replacement: None,
            rename_alias_pattern: None,
            rename_alias_replacement: None,
            index_settings: Map::new(),
            ignore_index_settings: Vec::new(),
            early_search_bytes: EARLY_SEARCH_BYTES,
        }
    }
}

/// Result of a restore.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestoreReport {
    /// Restored indices by their new names.
    pub indices: Vec<String>,
    /// Shards that were asked for.
    pub total: u64,
    /// Shards that were restored.
    pub successful: u64,
    /// Shards that were not.
    pub failures: Vec<MissingShard>,
}
