//! Policies of a restore, taken up while the server runs.
//!
//! A restore of the global state replaces the indices of policies. Indices under a policy keep it as it was, and so does a run of a policy of
//! snapshots; the next ones go by what was restored.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use millrace_engine::{DocumentMirror, RefreshPolicy};
use millrace_snapshot::SystemStateOwner;

use crate::LifecycleContext;
use crate::error::Result;
use crate::snapshot_policy::{SNAPSHOT_POLICIES, ScheduleProgress, SnapshotPolicy};
use crate::stored_policy::INDEX_POLICIES;

/// Owner of one of the two indices of policies.
#[derive(Debug)]
struct PolicyReloader {
    index: &'static str,
    /// The context holds the snapshots, which hold this.
    context: Weak<LifecycleContext>,
}

/// Has restores tell the context of their policies.
pub(crate) fn register(context: &Arc<LifecycleContext>) {
    for index in [INDEX_POLICIES, SNAPSHOT_POLICIES] {
        let reloader = PolicyReloader { index, context: Arc::downgrade(context) };
        context.snapshots.add_state_owner(Arc::new(reloader));
    }
}

impl SystemStateOwner for PolicyReloader {
    fn index(&self) -> &'static str {
        self.index
    }

    fn reload(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            // Policies that have ended have nothing in memory.
            let Some(context) = self.context.upgrade() else { return Ok(()) };
            reload(&context, self.index).await.map_err(|error| error.to_string())
        })
    }
}

async fn reload(context: &LifecycleContext, index: &str) -> Result<()> {
    let _one = context.changing.lock().await;
    match index {
        INDEX_POLICIES => context.policies.replace(DocumentMirror::load(&context.engine).await?),
        _ => {
            let newer = DocumentMirror::load(&context.engine).await?;
            rebase(&newer).await?;
            context.snapshot_policies.replace(newer);
        }
    }
    Ok(())
}

/// Has policies of snapshots that a restore has brought count from now on: what was due before is not made up, a snapshot that was being
/// made is that of the restore, and nothing is deleted before the next time of the schedule.
///
/// # Errors
/// The store's; the policies before are stored then.
pub(crate) async fn rebase(policies: &DocumentMirror<SnapshotPolicy>) -> Result<()> {
    let metadata = policies.engine().metadata();
    let Some(index) = metadata.index(SNAPSHOT_POLICIES).filter(|meta| meta.is_restored()) else {
        return Ok(());
    };
    let own_seq_nos = index.restored_seq_nos(0).end;
    let handled_ms = policies.engine().clock().now_ms();
    let from_now = |progress: &ScheduleProgress| ScheduleProgress {
        handled_ms,
        last: progress.last.clone(),
        ..ScheduleProgress::default()
    };
    for policy in policies.all() {
        if policy.document_version().0 < own_seq_nos {
            let rebased = policy.with_progress(from_now(&policy.creation), from_now(&policy.deletion));
            policies.put(rebased, RefreshPolicy::None).await?;
        }
    }
    Ok(())
}
