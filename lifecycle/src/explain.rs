//! The state of managed indices, as `_plugins/_ism/explain` answers it.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_catalog::metadata::IndexMeta;
use serde_json::{Map, Value, json};

use crate::Lifecycle;
use crate::error::Result;
use crate::managed::ManagedIndex;
use crate::retention;

/// Keys of an answer with the id of the policy; clients of either name read theirs.
const POLICY_IDS: [&str; 2] =
    ["index.plugins.index_state_management.policy_id", "index.opendistro.index_state_management.policy_id"];

/// Figures of policies.
#[derive(Clone, Debug, Default)]
pub struct LifecycleFigures {
    /// Indices under a policy.
    pub managed: usize,
    /// Those whose action has failed for the last time.
    pub failed: usize,
    /// Indices that retention by space may delete.
    pub candidates: usize,
    /// Bytes that may still come before it deletes the first of these.
    pub remaining_bytes: Option<u64>,
    /// Earliest time at which it is expected to delete an index, in milliseconds.
    pub next_deletion_ms: Option<i64>,
}

impl Lifecycle {
    /// Takes the figures. Where the disk cannot be asked, there are no candidates.
    pub async fn figures(&self) -> LifecycleFigures {
        let managed = self.context.managed.all();
        let planned = retention::planned(&self.context).await.unwrap_or_default();
        LifecycleFigures {
            managed: managed.len(),
            failed: managed.iter().filter(|managed| managed.progress.failed).count(),
            candidates: planned.len(),
            remaining_bytes: planned.first().map(|deletion| deletion.remaining),
            next_deletion_ms: planned.iter().filter_map(|deletion| deletion.expected_ms).min(),
        }
    }

    /// Explains indices, those that retention by space deletes next among them; `shows_policy`: with their policies.
    ///
    /// # Errors
    /// The disk's.
    pub async fn explain(&self, indices: &[Arc<IndexMeta>], shows_policy: bool) -> Result<Value> {
        let planned = retention::planned(&self.context).await?;
        let planned: HashMap<&str, Value> = planned
            .iter()
            .enumerate()
            .map(|(position, deletion)| (&*deletion.meta.name, deletion.to_json(position)))
            .collect();
        let (mut answer, mut total) = (Map::new(), 0);
        for meta in indices {
            let mut shown = match self.context.managed.get(&meta.uuid_text()) {
                Some(managed) => {
                    total += 1;
                    explain_managed(&managed, meta, shows_policy)
                }
                None => json!({ POLICY_IDS[0]: null, POLICY_IDS[1]: null, "enabled": null }),
            };
            if let Some(deletion) = planned.get(&*meta.name) {
                shown["retention"] = deletion.clone();
            }
            answer.insert(meta.name.to_string(), shown);
        }
        answer.insert("total_managed_indices".to_owned(), total.into());
        Ok(answer.into())
    }
}

fn explain_managed(managed: &ManagedIndex, meta: &IndexMeta, shows_policy: bool) -> Value {
    let progress = &managed.progress;
    let rollover_ms = meta.last_rollover_ms().or(progress.rollover_ms);
    let mut shown = json!({
        POLICY_IDS[0]: managed.policy_id,
        POLICY_IDS[1]: managed.policy_id,
        "index": managed.index,
        "index_uuid": managed.id,
        "policy_id": managed.policy_id,
        "policy_seq_no": managed.policy_version.0,
        "policy_primary_term": managed.policy_version.1,
        "index_creation_date": meta.created_ms,
        "rolled_over": rollover_ms.is_some(),
    });
    if !progress.state.is_empty() {
        shown["state"] = json!({ "name": progress.state, "start_time": progress.state_ms });
        let actions =
            managed.policy.state(&progress.state).map(|state| state.actions.as_slice()).unwrap_or_default();
        let name = actions.get(progress.position).map_or("transition", |action| action.spec.name());
        let start_ms = progress.action_ms.unwrap_or(progress.state_ms);
        shown["action"] = json!({
            "name": name,
            "start_time": start_ms,
            "index": progress.position,
            "failed": progress.failed,
            "consumed_retries": progress.retries,
            "last_rollover": rollover_ms.unwrap_or(0),
        });
        shown["step"] = json!({
            "name": format!("attempt_{name}"),
            "start_time": start_ms,
            "step_status": progress.step.name(),
        });
    }
    shown["retry_info"] = json!({ "failed": progress.failed, "consumed_retries": progress.retries });
    let mut info = json!({ "message": progress.message });
    if let Some(cause) = &progress.cause {
        info["cause"] = cause.as_str().into();
    }
    shown["info"] = info;
    shown["enabled"] = (!progress.failed && !progress.is_complete).into();
    if shows_policy {
        shown["policy"] = managed.policy.body.clone();
    }
    shown
}
