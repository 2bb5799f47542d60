//! Creates and deletes the snapshots of a policy that are due.

use std::sync::Arc;

use millrace_catalog::access::{Action, Principal};
use millrace_catalog::metadata::Uuid;
use millrace_engine::RefreshPolicy;
use millrace_snapshot::{CreateSnapshot, Manifest, SnapshotFilter, names_accounts};
use serde_json::{Map, Value};

use super::{DeletionCondition, ExecutionRecord, ScheduleProgress, SnapshotPolicy};
use crate::error::Result;
use crate::{LifecycleContext, PolicyMessage};

/// Tries behind the first for a time of the schedule.
const MAX_RETRIES: u32 = 3;
/// Time before the first of them, in milliseconds; it doubles.
const RETRY_MS: i64 = 60_000;
/// Message of a run that had nothing to delete. It is not sent.
const NOTHING_TO_DELETE: &str = "No snapshot is to be deleted.";
/// Member of a snapshot's metadata that names its policy.
const POLICY_MEMBER: &str = "sm_policy";

/// A snapshot of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotAge {
    /// Name.
    pub name: String,
    /// Time of its begin, in milliseconds.
    pub started_ms: i64,
}

/// Decides which snapshots are deleted, the oldest first. The newest [`DeletionCondition::min_count`] stay.
pub(crate) fn expired_snapshots(
    mut snapshots: Vec<SnapshotAge>,
    condition: &DeletionCondition,
    now_ms: i64,
) -> Vec<SnapshotAge> {
    snapshots.sort_by_key(|snapshot| snapshot.started_ms);
    let count = snapshots.len();
    let excess = condition.max_count.map_or(0, |most| count.saturating_sub(most));
    let spare = count.saturating_sub(condition.min_count);
    let is_old = |snapshot: &SnapshotAge| {
        let age = i128::from(now_ms) - i128::from(snapshot.started_ms);
        condition.max_age.is_some_and(|most| age > most.as_millis() as i128)
    };
    let expired = snapshots.into_iter().take(spare).enumerate();
    expired.filter(|(at, snapshot)| *at < excess || is_old(snapshot)).map(|(_, snapshot)| snapshot).collect()
}

/// Does what a policy has due.
///
/// # Errors
/// The store's. A failing repository is on the record of the policy.
pub(crate) async fn run(context: &LifecycleContext, name: &str) -> Result<()> {
    let now_ms = context.engine.clock().now_ms();
    if let Some(policy) = context.snapshot_policies.get(name).filter(|policy| policy.creation_due(now_ms)) {
        create(context, policy, now_ms).await?;
    }
    if let Some(policy) = context.snapshot_policies.get(name).filter(|policy| policy.deletion_due(now_ms)) {
        let result = delete(context, &policy, now_ms).await;
        let due_ms = policy.deletion_schedule.as_ref().and_then(|schedule| schedule.latest(now_ms));
        let progress = advance(&policy.deletion, due_ms, now_ms, context.engine.clock().now_ms(), result);
        let stored = store(context, &policy, policy.creation.clone(), progress).await?;
        send_outcome(context, &stored, false).await;
    }
    Ok(())
}

/// Sends the outcome of a run that is on the record, once. One that cannot be sent is in the log, and in `_explain` as any other.
async fn send_outcome(context: &LifecycleContext, policy: &SnapshotPolicy, is_creation: bool) {
    let (part, progress) =
        if is_creation { ("creation", &policy.creation) } else { ("deletion", &policy.deletion) };
    let (Some(notification), Some(outcome)) = (&policy.notification, &progress.last) else { return };
    if !notification.includes(is_creation, outcome) || outcome.message == NOTHING_TO_DELETE {
        return;
    }
    let cause = outcome.cause.as_ref().map(|cause| format!(" {cause}")).unwrap_or_default();
    let message = PolicyMessage {
        key: format!("{}/{part}/{}", policy.name, outcome.start_ms),
        policy_id: policy.name.clone(),
        subject: format!("snapshot policy [{}]: {part} {}", policy.name, outcome.status),
        text: format!("Snapshot policy [{}]: {}{cause}", policy.name, outcome.message),
        webhook: notification.webhook.clone(),
    };
    if let Err(reason) = context.send(&message).await {
        tracing::warn!(policy = policy.name, reason, "the outcome of a policy of snapshots is not sent");
    }
}

async fn store(
    context: &LifecycleContext,
    policy: &Arc<SnapshotPolicy>,
    creation: ScheduleProgress,
    deletion: ScheduleProgress,
) -> Result<Arc<SnapshotPolicy>> {
    Ok(context.snapshot_policies.put(policy.with_progress(creation, deletion), RefreshPolicy::None).await?)
}

/// Goes on behind a run: to the next time of the schedule, or to another try for this one.
fn advance(
    before: &ScheduleProgress,
    due_ms: Option<i64>,
    start_ms: i64,
    end_ms: i64,
    result: Result<String>,
) -> ScheduleProgress {
    let due_ms = due_ms.unwrap_or(start_ms);
    let record = |status: &str, message: String, cause: Option<String>| {
        Some(ExecutionRecord { status: status.to_owned(), start_ms, end_ms, message, cause })
    };
    let done = ScheduleProgress { handled_ms: due_ms, ..ScheduleProgress::default() };
    match result {
        Ok(message) => ScheduleProgress { last: record("SUCCESS", message, None), ..done },
        Err(error) if before.retries < MAX_RETRIES => ScheduleProgress {
            retries: before.retries + 1,
            retry_ms: end_ms.saturating_add(RETRY_MS << before.retries),
            last: record("RETRYING", "The run failed and is tried again".to_owned(), Some(error.to_string())),
            ..before.clone()
        },
        Err(error) => ScheduleProgress {
            last: record("FAILED", "The run failed until the next time".to_owned(), Some(error.to_string())),
            ..done
        },
    }
}

async fn create(context: &LifecycleContext, policy: Arc<SnapshotPolicy>, now_ms: i64) -> Result<()> {
    let due_ms = policy.creation_schedule.latest(now_ms);
    let policy = match &policy.creation.current {
        Some(_) => policy,
        None => {
            let suffix = Uuid::new_v4().simple().to_string();
            let name = format!("{}-{}-{}", policy.name, policy.date_text(now_ms), &suffix[..8]);
            let creation = ScheduleProgress { current: Some(name.to_lowercase()), ..policy.creation.clone() };
            store(context, &policy, creation, policy.deletion.clone()).await?
        }
    };
    let snapshot = policy.creation.current.clone().unwrap_or_default();
    let made = make_snapshot(context, &policy, &snapshot);
    let result = match policy.creation_limit() {
        None => Some(made.await),
        // A snapshot that is being made goes on.
        Some(limit) => tokio::time::timeout(limit, made).await.ok(),
    };
    let end_ms = context.engine.clock().now_ms();
    let progress = match result {
        Some(result) => advance(&policy.creation, due_ms, now_ms, end_ms, result),
        None => {
            let running = context.snapshots.running(Some(&policy.repository));
            if running.iter().any(|one| one.snapshot == snapshot) {
                audit_creation(context, &policy, &snapshot);
            }
            let last = ExecutionRecord {
                status: "TIME_LIMIT_EXCEEDED".to_owned(),
                start_ms: now_ms,
                end_ms,
                message: format!(
                    "Snapshot {snapshot} creation has exceeded its time limit; it may still succeed."
                ),
                cause: None,
            };
            let handled_ms = due_ms.unwrap_or(now_ms);
            ScheduleProgress { handled_ms, last: Some(last), ..ScheduleProgress::default() }
        }
    };
    let stored = store(context, &policy, progress, policy.deletion.clone()).await?;
    send_outcome(context, &stored, true).await;
    Ok(())
}

async fn make_snapshot(
    context: &LifecycleContext,
    policy: &SnapshotPolicy,
    snapshot: &str,
) -> Result<String> {
    let filter = SnapshotFilter { expression: snapshot.to_owned(), ignore_unavailable: true };
    let made = context.snapshots.manifests(&policy.repository, &filter).await;
    if made.inspect_err(|_| context.snapshots.note_unmade())?.is_empty() {
        let request = request(policy);
        context.snapshots.create(&Principal::system(), (&policy.repository, snapshot), request).await?;
        audit_creation(context, policy, snapshot);
    }
    Ok(format!("Snapshot {snapshot} creation has finished successfully."))
}

fn audit_creation(context: &LifecycleContext, policy: &SnapshotPolicy, snapshot: &str) {
    context.audit(Action::CreateSnapshot, "PUT", &["_snapshot", &policy.repository, snapshot]);
}

fn request(policy: &SnapshotPolicy) -> CreateSnapshot {
    let flag = |key: &str, default: bool| match policy.config(key) {
        Value::Bool(flag) => *flag,
        Value::String(text) => text == "true",
        _ => default,
    };
    let indices = match policy.config("indices") {
        Value::String(text) => Some(text.clone()),
        Value::Array(names) => Some(names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")),
        _ => None,
    };
    let mut metadata: Map<String, Value> = policy.config("metadata").as_object().cloned().unwrap_or_default();
    metadata.insert(POLICY_MEMBER.to_owned(), policy.name.as_str().into());
    let mut request = CreateSnapshot {
        indices,
        include_global_state: flag("include_global_state", true),
        include_accounts: names_accounts(policy.config("feature_states")).unwrap_or_default(),
        partial: flag("partial", false),
        metadata: Some(metadata),
        ..CreateSnapshot::default()
    };
    request.options.ignore_unavailable = flag("ignore_unavailable", false);
    request
}

async fn delete(context: &LifecycleContext, policy: &SnapshotPolicy, now_ms: i64) -> Result<String> {
    let Some(condition) = &policy.condition else { return Ok(String::new()) };
    let filter = SnapshotFilter { expression: format!("{}-*", policy.name), ignore_unavailable: true };
    let own = |manifest: &Manifest| {
        let named = manifest.metadata.as_ref().and_then(|metadata| metadata.get(POLICY_MEMBER));
        let is_own = named.and_then(Value::as_str) == Some(policy.name.as_str());
        is_own.then(|| SnapshotAge { name: manifest.snapshot.clone(), started_ms: manifest.started_ms })
    };
    let ages = context.snapshots.map_manifests(&policy.repository, &filter, own).await?;
    let expired = expired_snapshots(ages.into_iter().flatten().collect(), condition, now_ms);
    if expired.is_empty() {
        return Ok(NOTHING_TO_DELETE.to_owned());
    }
    let names: Vec<&str> = expired.iter().map(|snapshot| snapshot.name.as_str()).collect();
    context.snapshots.delete(&policy.repository, &names.join(",")).await?;
    for name in &names {
        context.audit(Action::DeleteSnapshots, "DELETE", &["_snapshot", &policy.repository, name]);
    }
    Ok(format!("Snapshot(s) {names:?} deletion has finished."))
}
