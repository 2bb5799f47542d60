//! Global state of a restore: settings, templates, and the system indices with definitions.
//!
//! Definitions of the server (rules, ingest pipelines, saved objects, policies) are documents of system indices. A restore of the global
//! state replaces each of these indices that the snapshot has, in the transaction of all else. Their owners may have the documents in
//! memory: each is a [`SystemStateOwner`], which then reads them again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millrace_catalog::access::Action;
use millrace_catalog::metadata::{Metadata, MetadataChange};
use millrace_runtime::{Error as StoreError, sync};
use serde_json::Map;

use crate::contents::GlobalState;
use crate::error::Result;
use crate::manifest::MissingShard;
use crate::restore::RestoreJob;
use crate::restore_request::RestoreReport;
use crate::service::SnapshotService;

/// Pause before a restored index is loaded again that could not be loaded.
const RELOAD_AGAIN: Duration = Duration::from_secs(2);
/// Index of the alert rules.
pub(crate) const RULES_INDEX: &str = ".alertrules";
/// Index of the secrets of notifications.
const SECRETS_INDEX: &str = ".alert_secrets";
/// System indices with definitions. Others have records of what this server did (audit, results of tasks, dead letters, notifications
/// under way, agents, positions of indices in their policies): a restore brings them where a request names them.
const STATE_INDICES: [&str; 7] = [
    RULES_INDEX,
    SECRETS_INDEX,
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

/// Returns whether a restore of the global state replaces a system index. Secrets are sealed with the key of a server: those that this
/// server has may be no others.
pub(crate) fn is_replaced(index: &str) -> bool {
    holds_state(index) && index != SECRETS_INDEX
}

/// Owner of a system index that has its documents in memory.
pub trait SystemStateOwner: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the index.
    fn index(&self) -> &'static str;

    /// Reads the documents again, which are those of a restore by now.
    ///
    /// # Errors
    /// The reason. The documents of before then stay in memory, and it is tried again.
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

    /// Has the owners of restored system indices read them again. One that cannot now is reported, and tries again in the background.
    pub(crate) async fn reload_system_state(&self, report: &mut RestoreReport) {
        let owners = self.service.inner.state_owners.read().clone();
        for owner in owners {
            let index = owner.index();
            if !report.indices.iter().any(|restored| restored == index) {
                continue;
            }
            if let Err(reason) = owner.reload().await {
                let reason =
                    format!("it is restored, and loading it is tried again until it succeeds: {reason}");
                report.failures.push(MissingShard { index: index.to_owned(), shard: 0, reason });
                report.successful = report.total.saturating_sub(report.failures.len() as u64);
                self.service.reload_later(&owner);
            }
        }
    }
}

impl SnapshotService {
    /// Has an owner read its index again until it can, or until the server ends.
    fn reload_later(&self, owner: &Arc<dyn SystemStateOwner>) {
        let (service, owner) = (Arc::downgrade(&self.inner), Arc::downgrade(owner));
        sync::detached(async move {
            loop {
                tokio::time::sleep(RELOAD_AGAIN).await;
                let (Some(inner), Some(owner)) = (service.upgrade(), owner.upgrade()) else { return };
                if inner.engine.is_stopping() {
                    return;
                }
                match owner.reload().await {
                    Ok(()) => return,
                    Err(reason) => {
                        tracing::warn!(
                            index = owner.index(),
                            reason,
                            "a restored system index is not loaded yet"
                        );
                    }
                }
            }
        });
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
