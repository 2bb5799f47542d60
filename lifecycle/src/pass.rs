//! A pass over a managed index: its next steps, until it has to wait.
//!
//! The progress is written before each action and after it. A write replaces the version that was read, so that a pass that a request
//! overtakes ends, and the next one goes on from what the request has left.

use std::sync::Arc;

use millrace_catalog::access::NameClass;
use millrace_catalog::metadata::{IndexMeta, Metadata, RESIZE_PENDING};
use millrace_engine::{MirroredDocument, RefreshPolicy};
use millrace_runtime::Error as StoreError;
use tokio::sync::SemaphorePermit;

use crate::LifecycleContext;
use crate::decide::{IndexMeasure, NextStep, next_step};
use crate::error::{Error, Result};
use crate::execute::{ActionOutcome, execute, measure, notify, snapshot_name, template_context};
use crate::managed::{ManagedIndex, Progress, StepStatus};
use crate::policy::ActionSpec;

/// Steps of a pass, at most.
const MAX_STEPS: usize = 64;
/// Setting that keeps templates of policies from an index.
pub(crate) const AUTO_MANAGE: &str = "index.plugins.index_state_management.auto_manage";
/// Settings that name the policy of an index; the first that is set counts.
const POLICY_IDS: [&str; 3] = [
    "index.plugins.index_state_management.policy_id",
    "index.opendistro.index_state_management.policy_id",
    "index.lifecycle.name",
];

/// Puts the indices under policies that no policy has, and that settings or templates of policies name.
pub(crate) async fn attach_new(context: &LifecycleContext) {
    let metadata = context.engine.metadata();
    let mut attached = Vec::new();
    for meta in metadata.indices().filter(|meta| NameClass::new(&meta.name) == NameClass::Ordinary) {
        // A rollover or a deletion would break off the copy into it.
        if meta.flag(RESIZE_PENDING) {
            continue;
        }
        let id = meta.uuid_text();
        if context.managed.get(&id).is_none()
            && let Some(policy) = policy_for(context, meta)
        {
            attached.push(ManagedIndex::new(
                id,
                meta.name.to_string(),
                policy.id.clone(),
                policy.document_version(),
                Arc::clone(&policy.policy),
            ));
        }
    }
    for managed in attached {
        let index = managed.index.clone();
        if let Err(error) = context.managed.put(managed, RefreshPolicy::None).await {
            tracing::warn!(index, %error, "an index cannot be put under its policy; the next pass tries again");
        }
    }
}

fn policy_for(context: &LifecycleContext, meta: &IndexMeta) -> Option<Arc<crate::StoredPolicy>> {
    if let Some(named) = POLICY_IDS.iter().find_map(|key| meta.setting(key)).filter(|id| !id.is_empty()) {
        return context.policies.get(named);
    }
    if meta.setting(AUTO_MANAGE) == Some("false") {
        return None;
    }
    let name = meta.data_stream().unwrap_or(&meta.name);
    let candidates =
        context.policies.all().into_iter().filter(|policy| policy.policy.updated_ms() <= meta.created_ms);
    let ranked = candidates.filter_map(|policy| Some((policy.policy.priority_for(name)?, policy)));
    ranked.max_by_key(|(priority, _)| *priority).map(|(_, policy)| policy)
}

/// Forgets the indices that are deleted.
pub(crate) async fn forget_deleted(context: &LifecycleContext) {
    let metadata = context.engine.metadata();
    for managed in context.managed.all() {
        if find(&metadata, &managed).is_none() {
            forget(context, &managed).await;
        }
    }
}

async fn forget(context: &LifecycleContext, managed: &ManagedIndex) {
    if let Err(error) = context.managed.delete(&managed.id, managed.version(), RefreshPolicy::None).await {
        tracing::warn!(index = managed.index, %error, "a managed index that is deleted stays listed");
    }
}

fn find(metadata: &Metadata, managed: &ManagedIndex) -> Option<Arc<IndexMeta>> {
    metadata.index(&managed.index).filter(|meta| meta.uuid_text() == managed.id).cloned()
}

/// Does the next steps of a managed index.
///
/// # Errors
/// The store's; a request that changed the index's document meanwhile is no error.
pub(crate) async fn run(context: &LifecycleContext, id: &str) -> Result<()> {
    match run_steps(context, id).await {
        Err(Error::Storage(StoreError::VersionConflict { .. })) => Ok(()),
        ended => ended,
    }
}

async fn run_steps(context: &LifecycleContext, id: &str) -> Result<()> {
    let mut entered = false;
    let mut permit = context.passes.acquire().await.ok();
    for _ in 0..MAX_STEPS {
        let Some(managed) = context.managed.get(id) else { return Ok(()) };
        let Some(meta) = find(&context.engine.metadata(), &managed) else {
            forget(context, &managed).await;
            return Ok(());
        };
        let (now_ms, measure) = (context.engine.clock().now_ms(), measure(context, &meta));
        let mut progress = managed.progress.clone();
        match next_step(&managed.policy, &progress, measure, now_ms) {
            NextStep::Rest if progress.failed => break,
            NextStep::Rest => {
                progress.is_complete = true;
                return store(context, &managed, progress).await.map(drop);
            }
            NextStep::Wait(reason) => {
                progress.message = reason.to_owned();
                return store(context, &managed, progress).await.map(drop);
            }
            // One state a pass: states that lead to each other at once do not keep the loop busy.
            NextStep::Enter(_) if entered => return Ok(()),
            NextStep::Enter(state) => {
                entered = true;
                progress.enter(&state, now_ms);
                store(context, &managed, progress).await?;
            }
            NextStep::Act(spec) => {
                if !act(context, &mut permit, managed, &meta, &spec, measure).await? {
                    break;
                }
            }
        }
    }
    // The receiver of the message may answer late.
    drop(permit);
    match context.managed.get(id) {
        Some(managed) if managed.owes_report() => report_failure(context, &managed).await,
        _ => Ok(()),
    }
}

/// Reports an action that has failed for the last time. A message that is not sent is tried again in the next passes.
async fn report_failure(context: &LifecycleContext, managed: &Arc<ManagedIndex>) -> Result<()> {
    let (policy, mut progress) = (&managed.policy, managed.progress.clone());
    let action = policy.state(&progress.state).and_then(|state| state.actions.get(progress.position));
    let (Some(notification), Some(action), Some(meta)) =
        (&policy.error_notification, action, find(&context.engine.metadata(), managed))
    else {
        return Ok(());
    };
    let text = template_context(managed, &meta, &action.spec).render(&notification.text);
    match notify(context, managed, (&notification.webhook, text), "/failed").await {
        Ok(()) => progress.is_reported = true,
        Err(error) => {
            progress.report_retries += 1;
            tracing::warn!(index = managed.index, policy = managed.policy_id, %error, "the failure of an action is not reported");
        }
    }
    store(context, managed, progress).await.map(drop)
}

/// Stores a progress, where it is another one.
async fn store(
    context: &LifecycleContext,
    managed: &Arc<ManagedIndex>,
    progress: Progress,
) -> Result<Arc<ManagedIndex>> {
    if progress == managed.progress {
        return Ok(Arc::clone(managed));
    }
    Ok(context.managed.put(managed.with_progress(progress), RefreshPolicy::None).await?)
}

/// Does an action; returns whether the next step may follow.
async fn act<'a>(
    context: &'a LifecycleContext,
    permit: &mut Option<SemaphorePermit<'a>>,
    managed: Arc<ManagedIndex>,
    meta: &Arc<IndexMeta>,
    spec: &ActionSpec,
    measure: IndexMeasure,
) -> Result<bool> {
    let now_ms = context.engine.clock().now_ms();
    let mut progress = managed.progress.clone();
    if progress.action_ms.is_none() {
        progress.action_ms = Some(now_ms);
        (progress.step, progress.message) =
            (StepStatus::Starting, format!("Starting action {}", spec.name()));
        progress.was_writable = !meta.is_write_blocked();
        progress.snapshot = None;
    }
    if let ActionSpec::Snapshot { snapshot, .. } = spec
        && progress.snapshot.is_none()
    {
        let values = template_context(&managed, meta, spec);
        progress.snapshot = Some(snapshot_name(&values.render(snapshot), now_ms, meta));
    }
    let managed = store(context, &managed, progress).await?;
    let outcome = match spec.is_long() {
        true => {
            // A long action leaves its permit of a pass to others: rollovers do not wait for it.
            drop(permit.take());
            let long = context.long_actions.acquire().await;
            let outcome = execute(context, meta, spec, &managed, measure).await;
            drop(long);
            *permit = context.passes.acquire().await.ok();
            outcome
        }
        false => execute(context, meta, spec, &managed, measure).await,
    };
    let mut progress = managed.progress.clone();
    let action = managed.policy.state(&progress.state).and_then(|state| state.actions.get(progress.position));
    match outcome {
        Ok(ActionOutcome::Deleted) => {
            forget(context, &managed).await;
            return Ok(false);
        }
        Ok(ActionOutcome::Done { message, rollover_ms }) => {
            progress.rollover_ms = rollover_ms.or(progress.rollover_ms);
            progress.complete_action(message);
        }
        Ok(ActionOutcome::Pending(message)) => {
            let begun_ms = progress.action_ms.unwrap_or(now_ms);
            let timeout = action.and_then(|action| action.timeout);
            match timeout.filter(|time| i128::from(now_ms - begun_ms) > time.as_millis() as i128) {
                None => (progress.step, progress.message) = (StepStatus::ConditionNotMet, message),
                Some(_) => {
                    progress.failed = true;
                    (progress.step, progress.message) = (StepStatus::Failed, "Action timed out".to_owned());
                }
            }
        }
        Err(error) => {
            let retry = action.map(|action| action.retry);
            progress.retries += 1;
            progress.step = StepStatus::Failed;
            progress.failed = retry.is_none_or(|retry| progress.retries > retry.count);
            let delay = retry.map(|retry| retry.delay_after(progress.retries)).unwrap_or_default();
            progress.retry_ms = now_ms.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
            progress.message = format!("Failed to execute action {}", spec.name());
            progress.cause = Some(error.to_string());
            if matches!(error, Error::ForeignSnapshot { .. }) {
                progress.snapshot = None;
            }
            tracing::warn!(index = managed.index, policy = managed.policy_id, action = spec.name(), %error, "an action of a policy failed");
        }
    }
    let goes_on = progress.step == StepStatus::Completed;
    store(context, &managed, progress).await?;
    Ok(goes_on)
}
