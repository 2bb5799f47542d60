//! Managed indices: where each is in its policy, as a document.
//!
//! [`ManagedIndex`] is the document, [`Progress`] the position within the policy. It is written before an action begins and after it
//! has ended. A start finds there which action was under way, and the action finds by a check whether it was done.

use std::sync::Arc;

use bytes::Bytes;
use millrace_engine::{DocumentVersion, MirroredDocument, SystemDocument, hidden_index};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::policy::IndexPolicy;

/// Name of the index of these documents.
pub(crate) const MANAGED_INDICES: &str = ".managed_indices";
/// Tries to report a failure behind the first.
const REPORT_RETRIES: u32 = 3;

/// Outcome of the last step of an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepStatus {
    /// It has begun, or will.
    #[default]
    Starting,
    /// Its condition does not hold yet.
    ConditionNotMet,
    /// It is done.
    Completed,
    /// It has failed.
    Failed,
}

impl StepStatus {
    /// Returns its name in answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::ConditionNotMet => "condition_not_met",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// Position of an index within its policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Progress {
    /// Name of the state; empty before the first.
    pub state: String,
    /// Time of its begin, in milliseconds.
    pub state_ms: i64,
    /// Position of the action that is next or under way, among those of the state.
    pub position: usize,
    /// Time at which that action began; `None` before.
    pub action_ms: Option<i64>,
    /// Outcome of its last step.
    pub step: StepStatus,
    /// `true` if it has failed for the last time.
    pub failed: bool,
    /// Failed tries.
    pub retries: u32,
    /// Time of the next try, in milliseconds.
    pub retry_ms: i64,
    /// Time of the rollover, in milliseconds.
    pub rollover_ms: Option<i64>,
    /// Snapshot that the action makes.
    pub snapshot: Option<String>,
    /// `true` if the index took writes before the action, which blocks them.
    pub was_writable: bool,
    /// Message about the last step.
    pub message: String,
    /// Why it failed.
    pub cause: Option<String>,
    /// `true` if nothing is to come any more.
    pub is_complete: bool,
    /// `true` once the failure is reported (`error_notification`).
    pub is_reported: bool,
    /// Failed tries to report it.
    pub report_retries: u32,
}

impl Progress {
    /// Begins a state.
    pub(crate) fn enter(&mut self, state: &str, now_ms: i64) {
        *self = Self {
            state: state.to_owned(),
            state_ms: now_ms,
            rollover_ms: self.rollover_ms,
            message: format!("Transitioning to {state} [index state]"),
            ..Self::default()
        };
    }

    /// Goes on behind an action that is done.
    pub(crate) fn complete_action(&mut self, message: String) {
        self.position += 1;
        (self.action_ms, self.retries, self.retry_ms, self.snapshot) = (None, 0, 0, None);
        self.was_writable = false;
        (self.step, self.message, self.cause) = (StepStatus::Completed, message, None);
    }
}

/// An index under a policy.
#[derive(Clone, Debug)]
pub(crate) struct ManagedIndex {
    /// Id of the document: the uuid of the index as clients see it.
    pub id: String,
    /// Name of the index.
    pub index: String,
    /// Id of the policy.
    pub policy_id: String,
    /// Version of the policy's document that this is.
    pub policy_version: (u64, u64),
    /// The policy as of the time when it was given.
    pub policy: Arc<IndexPolicy>,
    /// Position within it.
    pub progress: Progress,
    version: Option<DocumentVersion>,
}

impl ManagedIndex {
    /// Puts an index under a policy.
    pub(crate) fn new(
        id: String,
        index: String,
        policy_id: String,
        policy_version: (u64, u64),
        policy: Arc<IndexPolicy>,
    ) -> Self {
        let progress =
            Progress { message: "Successfully initialized policy".to_owned(), ..Progress::default() };
        Self { id, index, policy_id, policy_version, policy, progress, version: None }
    }

    /// Returns whether a failure is to be reported.
    pub(crate) fn owes_report(&self) -> bool {
        let Progress { failed, is_reported, report_retries, .. } = self.progress;
        failed && !is_reported && report_retries <= REPORT_RETRIES && self.policy.error_notification.is_some()
    }

    /// Returns whether a pass has nothing to do.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.progress.is_complete || (self.progress.failed && !self.owes_report())
    }

    /// Returns the same index with another progress.
    pub(crate) fn with_progress(&self, progress: Progress) -> Self {
        Self { progress, ..self.clone() }
    }
}

/// The document.
#[derive(Serialize, Deserialize)]
struct StoredManagedIndex {
    index: String,
    policy_id: String,
    policy_seq_no: u64,
    policy_primary_term: u64,
    policy: Value,
    progress: Progress,
}

impl SystemDocument for ManagedIndex {
    const INDEX: &'static str = MANAGED_INDICES;

    fn index_body() -> Value {
        hidden_index(json!({ "index": { "type": "keyword" }, "policy_id": { "type": "keyword" } }))
    }

    fn encode(&self) -> Bytes {
        let stored = StoredManagedIndex {
            index: self.index.clone(),
            policy_id: self.policy_id.clone(),
            policy_seq_no: self.policy_version.0,
            policy_primary_term: self.policy_version.1,
            policy: self.policy.body.clone(),
            progress: self.progress.clone(),
        };
        Bytes::from(serde_json::to_vec(&stored).unwrap_or_default())
    }

    fn decode(id: &str, source: &Bytes) -> Result<Self, String> {
        let stored: StoredManagedIndex = serde_json::from_slice(source).map_err(|error| error.to_string())?;
        let policy = IndexPolicy::from_stored(&stored.policy).map_err(|error| error.to_string())?;
        Ok(Self {
            id: id.to_owned(),
            index: stored.index,
            policy_id: stored.policy_id,
            policy_version: (stored.policy_seq_no, stored.policy_primary_term),
            policy: Arc::new(policy),
            progress: stored.progress,
            version: None,
        })
    }
}

impl MirroredDocument for ManagedIndex {
    fn id(&self) -> &str {
        &self.id
    }

    fn version(&self) -> Option<DocumentVersion> {
        self.version
    }

    fn set_version(&mut self, version: DocumentVersion) {
        self.version = Some(version);
    }
}
