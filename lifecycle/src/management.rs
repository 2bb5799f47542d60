//! Requests about managed indices: to put them under a policy, to take them from it, to give them another one, to try again.

use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndexMeta, IndicesOptions};
use millrace_engine::{MirroredDocument, RefreshPolicy};
use serde_json::json;

use crate::error::{Error, Result};
use crate::managed::{ManagedIndex, Progress};
use crate::pass::AUTO_MANAGE;
use crate::{Lifecycle, StoredPolicy};

/// An index on which a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementFailure {
    /// Name of the index.
    pub index: String,
    /// Uuid of the index.
    pub uuid: String,
    /// Why not.
    pub reason: String,
}

/// Outcome of a request about several indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagementReport {
    /// Indices on which it was carried out.
    pub updated: usize,
    /// The others.
    pub failures: Vec<ManagementFailure>,
}

impl ManagementReport {
    fn note(&mut self, meta: &IndexMeta, result: Result<()>) {
        match result {
            Ok(()) => self.updated += 1,
            Err(error) => self.failures.push(ManagementFailure {
                index: meta.name.to_string(),
                uuid: meta.uuid_text(),
                reason: error.to_string(),
            }),
        }
    }
}

fn invalid<T>(reason: &str) -> Result<T> {
    Err(Error::Invalid(reason.to_owned()))
}

impl Lifecycle {
    fn required_policy(&self, id: &str) -> Result<Arc<StoredPolicy>> {
        self.policy(id).ok_or_else(|| Error::NotFound(format!("Could not find policy={id}")))
    }

    fn managed(&self, meta: &IndexMeta) -> Option<Arc<ManagedIndex>> {
        self.context.managed.get(&meta.uuid_text())
    }

    async fn put_managed(&self, managed: ManagedIndex) -> Result<()> {
        self.context.managed.put(managed, RefreshPolicy::None).await?;
        Ok(())
    }

    /// Puts indices under a policy.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the policy.
    pub async fn add_policy(&self, indices: &[Arc<IndexMeta>], policy_id: &str) -> Result<ManagementReport> {
        let policy = self.required_policy(policy_id)?;
        let mut report = ManagementReport::default();
        for meta in indices {
            let added = match self.managed(meta) {
                Some(_) => invalid(
                    "This index already has a policy, use the update policy API to update index policies",
                ),
                None => {
                    let (id, version) = (meta.uuid_text(), policy.document_version());
                    let body = Arc::clone(&policy.policy);
                    let name = meta.name.to_string();
                    self.put_managed(ManagedIndex::new(id, name, policy.id.clone(), version, body)).await
                }
            };
            report.note(meta, added);
        }
        Ok(report)
    }

    /// Takes indices from their policies. No template of a policy takes them again.
    pub async fn remove_policy(&self, indices: &[Arc<IndexMeta>]) -> ManagementReport {
        let mut report = ManagementReport::default();
        for meta in indices {
            let removed = match self.managed(meta) {
                None => invalid("This index does not have a policy to remove"),
                Some(managed) => self.release(meta, &managed).await,
            };
            report.note(meta, removed);
        }
        report
    }

    async fn release(&self, meta: &IndexMeta, managed: &ManagedIndex) -> Result<()> {
        let now_ms = self.context.engine.clock().now_ms();
        let options = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() };
        let body = json!({
            AUTO_MANAGE: "false",
            "index.plugins.index_state_management.policy_id": null,
            "index.opendistro.index_state_management.policy_id": null,
            "index.lifecycle.name": null,
        });
        let principal = Principal::system();
        let decide = |state: &millrace_catalog::metadata::Metadata| {
            state.update_settings(&meta.name, &options, &body, false, now_ms)
        };
        self.context.engine.change(&principal, decide).await?;
        self.context.managed.delete(&managed.id, managed.version(), RefreshPolicy::None).await?;
        Ok(())
    }

    /// Gives managed indices another policy. They go on in a state that is named, in the one of the name that they are in, or in the
    /// first; `included` are the states that an index has to be in, any without one.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the policy, [`Error::Invalid`] for the state.
    pub async fn change_policy(
        &self,
        indices: &[Arc<IndexMeta>],
        policy_id: &str,
        state: Option<&str>,
        included: &[String],
    ) -> Result<ManagementReport> {
        let policy = self.required_policy(policy_id)?;
        if let Some(state) = state
            && policy.policy.state(state).is_none()
        {
            return Err(Error::Invalid(format!("policy [{policy_id}] has no state [{state}]")));
        }
        let now_ms = self.context.engine.clock().now_ms();
        let mut report = ManagementReport::default();
        for meta in indices {
            let changed = match self.managed(meta) {
                None => invalid("This index is not being managed, cannot change policy"),
                // What is not meant is neither changed nor a failure.
                Some(managed) if !included.is_empty() && !included.contains(&managed.progress.state) => {
                    continue;
                }
                Some(managed) => {
                    let mut changed = ManagedIndex::clone(&managed);
                    changed.policy_id = policy.id.clone();
                    changed.policy_version = policy.document_version();
                    changed.policy = Arc::clone(&policy.policy);
                    let rollover_ms = managed.progress.rollover_ms;
                    let same = policy.policy.state(&managed.progress.state).map(|state| state.name.as_str());
                    match state.or(same) {
                        Some(state) => changed.progress.enter(state, now_ms),
                        None => changed.progress = Progress { rollover_ms, ..Progress::default() },
                    }
                    self.put_managed(changed).await
                }
            };
            report.note(meta, changed);
        }
        Ok(report)
    }

    /// Has failed indices try again, in a state that is named or in theirs.
    pub async fn retry(&self, indices: &[Arc<IndexMeta>], state: Option<&str>) -> ManagementReport {
        let now_ms = self.context.engine.clock().now_ms();
        let mut report = ManagementReport::default();
        for meta in indices {
            let retried = match self.managed(meta) {
                None => invalid("This index is not being managed."),
                Some(managed) if !managed.progress.failed => invalid("This index is not in failed state."),
                Some(managed) => match state {
                    Some(state) if managed.policy.state(state).is_none() => {
                        invalid(&format!("Policy has no state [{state}]"))
                    }
                    Some(state) if state != managed.progress.state => {
                        let mut progress = managed.progress.clone();
                        progress.enter(state, now_ms);
                        self.put_managed(managed.with_progress(progress)).await
                    }
                    _ => {
                        let mut progress = managed.progress.clone();
                        (progress.failed, progress.retries, progress.retry_ms) = (false, 0, 0);
                        (progress.action_ms, progress.cause) = (None, None);
                        (progress.is_reported, progress.report_retries) = (false, 0);
                        progress.message = "Attempting to retry".to_owned();
                        self.put_managed(managed.with_progress(progress)).await
                    }
                },
            };
            report.note(meta, retried);
        }
        report
    }
}
