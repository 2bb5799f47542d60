//! Global state of a restore: settings, templates, and the system indices with definitions.
//!
//! Definitions of the server (rules, ingest pipelines, saved objects, policies) are documents of system indices. A restore of the global
//! state replaces each of these indices that the snapshot has, in the transaction of all else. Their owners may have the documents in
//! memory: each is a [`SystemStateOwner`], which then reads them again.

use std::fmt;

use futures::future::BoxFuture;
use millrace_catalog::access::Action;
use millrace_catalog::metadata::{Metadata, MetadataChange};
use millrace_runtime::Error as StoreError;
use serde_json::Map;

use crate::contents::GlobalState;
use crate::error::Result;
use crate::restore::RestoreJob;

/// Index of the alert rules.
pub(crate) const RULES_INDEX: &str = ".alertrules";
/// System indices with definitions. Others have records of what this server did (audit, results of tasks, dead letters, notifications
/// under way, agents, positions of indices in their policies): a restore brings them where a request names them.
const STATE_INDICES: [&str; 7] = [
    RULES_INDEX,
    ".alert_secrets",
    ".console",
    ".index_policies",
    ".ingest-pipelines",
    ".intelligence_rules",
    ".snapshot_policies",
];

/// Returns whether a system index belongs to the global state.
pub(crate) fn holds_state(index: &str) -> bool {
    STATE_INDICES.contains(&index)
}

/// Owner of a system index that has its documents in memory.
pub trait SystemStateOwner: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the index.
    fn index(&self) -> &'static str;

    /// Reads the documents again, which are those of a restore by now.
    ///
    /// # Errors
    /// The reason. The documents of before then stay in memory until the next start.
    fn reload(&self) -> BoxFuture<'_, Result<(), String>>;
}

impl RestoreJob {
    /// Refuses the global state where it is not there, and where the caller may not change all of it.
    pub(crate) fn check_global_state(&self) -> Result<()> {
        let needed = [
            Action::PutClusterSettings,
            Action::PutTemplates,
            Action::PutIndexTemplates,
            Action::PutComponentTemplates,
        ];
        if let Some(action) = needed.into_iter().find(|action| !self.principal.privileges().allows(*action)) {
            let caller = self.principal.caller().to_string();
            return Err(StoreError::Unauthorized { action: action.name(), caller, index: None }.into());
        }
        if self.manifest.global_state.is_none() {
            return Err(
                self.fail("cannot restore global state since the snapshot doesn't contain global state")
            );
        }
        Ok(())
    }

    /// Has the owners of restored system indices read them again.
    pub(crate) async fn reload_system_state(&self, restored: &[String]) -> Result<()> {
        let owners = self.service.inner.state_owners.read().clone();
        let mut failed = Vec::new();
        for owner in owners.iter().filter(|owner| restored.iter().any(|name| name == owner.index())) {
            if let Err(reason) = owner.reload().await {
                failed.push(format!("[{}]: {reason}", owner.index()));
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        let failed = failed.join("; ");
        Err(self.fail(format!("all is restored, but a restart has to load the documents of {failed}")))
    }
}

/// Templates and settings of a snapshot, over those of the store.
pub(crate) fn global_changes(
    state: &Metadata,
    global: &GlobalState,
) -> Result<Vec<MetadataChange>, StoreError> {
    let mut changes = state.restore_templates(&global.templates)?;
    if !global.persistent.is_empty() {
        let mut settings = Map::clone(&state.persistent);
        settings.extend(global.persistent.iter().map(|(key, value)| (key.clone(), value.clone())));
        changes.push(MetadataChange::PutPersistent(settings));
    }
    Ok(changes)
}
