//! Resizing: the documents of an index go into another one, which is made for them.
//!
//! Documents keep their ids, routing and versions. The copy goes on where its caller goes away; what fails leaves no target. A crash
//! leaves a target that a start deletes ([`Engine::delete_unfinished_resizes`]).

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{MetadataChange, ResizePlan};
use millrace_catalog::operation::{Action, RefreshPolicy, VersionType, WriteOp};
use millrace_runtime::{Error, Result, sync};

use super::Engine;

/// Documents from which on a write of the copy is made.
const COPY_DOCUMENTS: usize = 1_000;
/// Bytes of documents from which on a write of the copy is made.
const COPY_BYTES: usize = 8 << 20;
/// Longest wait of a write for memory.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

impl Engine {
    /// Copies the documents of a planned resizing into its target, which is there, and completes the target.
    ///
    /// # Errors
    /// A document that cannot be read or written, and a source that is deleted or takes writes meanwhile; then the target is deleted.
    pub fn fill_resized(self: &Arc<Self>, plan: ResizePlan) -> BoxFuture<'static, Result<()>> {
        let engine = Arc::clone(self);
        Box::pin(sync::uninterrupted(async move {
            let principal = Principal::system();
            let copied = engine.copy_documents(&plan).await;
            let completed = match copied {
                Ok(seq_nos) => {
                    engine.change(&principal, |state| state.complete_resize(&plan, &seq_nos)).await
                }
                Err(error) => Err(error),
            };
            if completed.is_err() {
                let deleted =
                    engine.change(&principal, |state| Ok(state.delete_unfinished(Some(&plan.pending))));
                if let Err(error) = deleted.await {
                    tracing::warn!(index = &*plan.pending.name, %error, "the target of a failed resizing stays until the next start");
                }
            }
            completed
        }))
    }

    /// Returns the next sequence numbers of the source's shards, which the copy has everything below.
    async fn copy_documents(&self, plan: &ResizePlan) -> Result<Vec<u64>> {
        let source = self.index(&plan.source.name)?;
        let before = source.next_seq_nos();
        let mut frames = self.read_back_stored(&source).await?;
        let (mut batch, mut batch_bytes): (Vec<WriteOp>, usize) = (Vec::new(), 0);
        while let Some(frame) = frames.next().await? {
            let ops = frame.parts.iter().flat_map(|part| &part.ops).filter_map(|op| {
                let id = String::from_utf8_lossy(&op.id).into_owned();
                let source = op.source.clone()?;
                batch_bytes += source.len();
                let action = Action::Index(source);
                let version = Some((op.version, VersionType::ExternalGte));
                let routing = op.routing.clone();
                Some(WriteOp {
                    routing,
                    version,
                    ..WriteOp::new(Arc::clone(&plan.pending.name), Some(id), action)
                })
            });
            batch.extend(ops);
            if batch.len() >= COPY_DOCUMENTS || batch_bytes >= COPY_BYTES {
                batch_bytes = 0;
                self.write_copies(plan, std::mem::take(&mut batch)).await?;
            }
        }
        self.write_copies(plan, batch).await?;
        // A block that was lifted and set again in between let writes through.
        if source.next_seq_nos() != before {
            let (from, to) = (&plan.source.name, &plan.pending.name);
            let reason =
                format!("index {from} took writes while its documents were copied to [{to}]; repeat");
            return Err(Error::Rejected(reason));
        }
        let target = [self.index(&plan.pending.name)?];
        self.flush(&target).await?;
        self.refresh(&target).await?;
        Ok(before)
    }

    async fn write_copies(&self, plan: &ResizePlan, ops: Vec<WriteOp>) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        let principal = Principal::system();
        for outcome in self.write(&principal, ops, RefreshPolicy::None, WRITE_TIMEOUT).await? {
            outcome.map_err(|error| {
                Error::IllegalArgument(format!(
                    "a document of [{}] cannot be copied to [{}]: {error}",
                    plan.source.name, plan.pending.name
                ))
            })?;
        }
        Ok(())
    }

    /// Deletes the targets of resizings that a crash has ended; returns how many there were.
    ///
    /// # Errors
    /// As [`Engine::change`].
    pub async fn delete_unfinished_resizes(&self) -> Result<usize> {
        let mut count = 0;
        let decide = |state: &millrace_catalog::metadata::Metadata| {
            let changes: Vec<MetadataChange> = state.delete_unfinished(None);
            count = changes.len();
            Ok(changes)
        };
        let principal = Principal::system();
        self.change(&principal, decide).await?;
        Ok(count)
    }
}
