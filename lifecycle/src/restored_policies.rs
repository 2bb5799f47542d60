//! Policies of a restore, taken up while the server runs.
//!
//! A restore of the global state replaces the indices of policies. Indices under a policy keep it as it was, and so does a run of a policy of
//! snapshots; the next ones go by what was restored.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use millrace_engine::DocumentMirror;
use millrace_snapshot::SystemStateOwner;

use crate::LifecycleContext;
use crate::error::Result;
use crate::snapshot_policy::SNAPSHOT_POLICIES;
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
        _ => context.snapshot_policies.replace(DocumentMirror::load(&context.engine).await?),
    }
    Ok(())
}
