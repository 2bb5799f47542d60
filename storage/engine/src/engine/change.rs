//! Changes of the metadata and of mappings: decided, made durable, then true in memory.
//!
//! A change is a pure decision on the current metadata (`millrace_catalog::metadata`), under a lock. The catalog has it first, with the mappings
//! that other settings make of those of running indices; then requests see it. Mappings that only grow are in the log alone until a
//! commit tells the catalog of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use millrace_catalog::Commit;
use millrace_catalog::access::Principal;
use millrace_catalog::frame::FrameNumber;
use millrace_catalog::metadata::{IndexMeta, Metadata, MetadataChange};
use millrace_mapping::Mapping;
use millrace_runtime::sync::AsyncMutexGuard;
use millrace_runtime::{Result, sync};
use serde_json::Value;
use uuid::Uuid;

use super::index::Index;
use super::recheck::recheck;
use super::{Engine, Inner};

/// Decides on a change of the metadata.
type ChangeDecision<'a> = Box<dyn FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send + 'a>;

/// Segments and checkpoints of a restore, which the catalog has together with the change.
#[derive(Debug)]
pub(super) struct RestoredCommit {
    pub(super) commit: Commit,
    /// `true` once the catalog has it: after that an error does not tell whether it is durable.
    pub(super) submitted: Arc<AtomicBool>,
}

impl Engine {
    /// Applies a metadata change durably: `decide` sees the current state under the metadata lock
    /// and returns what to do (a pure decision; see [`millrace_catalog::metadata`]).
    ///
    /// # Errors
    /// The decision's own, an invalid mapping, or a failing catalog; then nothing has changed.
    pub fn change<'a, F>(&'a self, principal: &'a Principal, decide: F) -> BoxFuture<'a, Result<()>>
    where
        F: FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send + 'a,
    {
        self.change_as_decided(principal, Box::new(decide))
    }

    fn change_as_decided<'a>(
        &'a self,
        principal: &'a Principal,
        decide: ChangeDecision<'a>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let closed = sync::scope(self.decide_change(principal, decide)).await?;
            self.flush(&closed).await
        })
    }

    /// Decides a change and makes it durable and true; returns the indices that were closed by it.
    async fn decide_change(
        &self,
        principal: &Principal,
        decide: ChangeDecision<'_>,
    ) -> Result<Vec<Arc<Index>>> {
        let inner = &self.inner;
        inner.check_accepting()?;
        let one = inner.metadata_change.lock_owned().await;
        let current = inner.metadata.load_full();
        let changes = decide(&current)?;
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut created: Vec<Arc<Index>> = Vec::new();
        let mut mappings = Vec::new();
        for change in &changes {
            if let MetadataChange::PutIndex { meta, mapping } = change
                && current.index(&meta.name).is_none_or(|old| old.uuid != meta.uuid)
            {
                let mapping = match mapping {
                    Some(body) => Mapping::parse(body, &meta.settings)?,
                    None => Mapping::empty(&meta.settings),
                };
                mappings.push((meta.uuid, mapping.encode()));
                let (env, clock) = (inner.env(), &inner.clock);
                let index = Index::new(Arc::clone(meta), mapping, &[], Vec::new(), env, clock, &inner.agenda);
                created.push(Arc::new(index));
            }
        }
        tracing::debug!(principal = principal.name(), changes = changes.len(), "metadata changes");
        // To its end: a caller that goes away must not part the catalog from the memory.
        let inner = Arc::clone(inner);
        sync::uninterrupted(async move {
            inner.change_durably(one, current, changes, created, (mappings, None)).await
        })
        .await
    }

    /// Merges a `_mapping` body into an index's mapping, durably.
    ///
    /// # Errors
    /// A conflict with the current mapping, which then stays as it is.
    pub fn put_mapping<'a>(
        &'a self,
        _principal: &'a Principal,
        index: &'a str,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.inner.check_accepting()?;
            let index = self.index(index)?;
            let frame = sync::scope(self.inner.merge_mapping(&index, body)).await?;
            // The catalog learns of it before the log is cut.
            self.inner.wal()?.synced(frame).await
        })
    }
}

impl Inner {
    /// Merges a body into an index's mapping and logs it; returns the frame that is to be durable.
    async fn merge_mapping(&self, index: &Index, body: &Value) -> Result<FrameNumber> {
        index.check_supported()?;
        let _change = index.mapping_change.lock().await;
        let (current, body) = (index.mapping(), body.clone());
        // Not on a compute thread: those that parse wait for this lock.
        let merged = sync::blocking(move || {
            let merged = current.merge(&body)?;
            Ok((merged.to_json() != current.to_json()).then(|| Arc::new(merged)))
        });
        match merged.await? {
            Some(merged) => self.log_mapping(index, &merged),
            // Nothing new; but what there is may be another request's, whose frame is on its way.
            None => Ok(self.wal()?.next_frame() - 1),
        }
    }

    /// Makes a decided change durable, then true; returns the indices that were closed by it. `one` is the lock
    /// `metadata_change`, which is held over no call of the object store. The segments of `restored` become true with the change.
    pub(super) async fn change_durably(
        self: &Arc<Self>,
        mut one: AsyncMutexGuard<'static>,
        mut current: Arc<Metadata>,
        changes: Vec<MetadataChange>,
        created: Vec<Arc<Index>>,
        (mut mappings, restored): (Vec<(Uuid, Vec<u8>)>, Option<RestoredCommit>),
    ) -> Result<Vec<Arc<Index>>> {
        let deleted = self.deleted_by(&changes);
        let mut described = None;
        if !(created.is_empty() && deleted.is_empty()) {
            drop(one);
            let describing = self.describe_change(deleted, &created).await?;
            one = self.metadata_change.lock_owned().await;
            let now = self.metadata.load_full();
            if let Err(error) = recheck(&current, &now, &changes) {
                drop(one);
                self.undescribe_change(describing, &created).await;
                return Err(error);
            }
            (current, described) = (now, Some(describing));
        }
        let mut updated = self.with_other_settings(&changes);
        // The order of their locks. The mappings that follow changed settings must not grow between their check
        // and their use.
        updated.sort_unstable_by_key(|(_, meta)| meta.uuid);
        let mut unchanging = Vec::with_capacity(updated.len());
        for (index, _) in &updated {
            unchanging.push(index.mapping_change.lock_owned().await);
        }
        let (followed, unsaved) = sync::blocking(move || follow(&updated)).await?;
        // Commits with mappings wait, so that none tells the catalog of an older one later.
        let commits = match unsaved.is_empty() {
            true => None,
            false => Some(self.services.commits.lock().await),
        };
        mappings.extend(unsaved.iter().map(|(index, _, encoded)| (index.meta().uuid, encoded.clone())));
        let catalog = &self.services.catalog;
        let stored = match &restored {
            None => catalog.change(&changes, &mappings).await,
            Some(RestoredCommit { commit, submitted }) => {
                submitted.store(true, Ordering::Release);
                catalog.restore(&changes, &mappings, commit).await
            }
        };
        if let Err(error) = stored {
            drop((commits, unchanging, one));
            if let Some(described) = described {
                // A restore may be durable all the same. Its files stay; the next start deletes what the catalog does not name.
                let unused = if restored.is_some() { &[][..] } else { &created[..] };
                self.undescribe_change(described, unused).await;
            }
            return Err(error);
        }
        for (index, version, _) in &unsaved {
            index.saved_mapping.fetch_max(*version, Ordering::Relaxed);
        }
        drop(commits);
        let outdated = self.with_other_description(&changes);
        let inner = Arc::clone(self);
        let applied =
            sync::blocking(move || Ok(inner.apply_change(&current, &changes, &created, followed))).await?;
        drop((unchanging, one, described));
        self.describe_outdated(outdated).await;
        Ok(applied)
    }

    /// Makes what the catalog has accepted true in memory; returns the indices that were closed by it.
    fn apply_change(
        &self,
        current: &Metadata,
        changes: &[MetadataChange],
        created: &[Arc<Index>],
        mut followed: HashMap<Uuid, Mapping>,
    ) -> Vec<Arc<Index>> {
        let (mut closed, mut deleted) = (Vec::new(), Vec::new());
        let created: HashMap<Uuid, &Arc<Index>> =
            created.iter().map(|index| (index.meta().uuid, index)).collect();
        // Copied before everybody waits.
        let next = Arc::new(current.apply(changes));
        let mut indices = self.indices.write();
        for change in changes {
            match change {
                MetadataChange::PutIndex { meta, .. } => {
                    if let Some(index) = created.get(&meta.uuid) {
                        indices.insert(Arc::clone(&meta.name), Arc::clone(index));
                    }
                    if let Some(index) = indices.get(&meta.name) {
                        if !meta.open && index.meta().open {
                            closed.push(Arc::clone(index));
                        }
                        index.set_meta(Arc::clone(meta), followed.remove(&meta.uuid));
                        self.agenda.report_all(index);
                    }
                }
                MetadataChange::DeleteIndex { name, uuid } => {
                    if indices.get(name).is_some_and(|index| index.meta().uuid == *uuid)
                        && let Some(index) = indices.remove(name)
                    {
                        deleted.push(index);
                    }
                }
                _ => {}
            }
        }
        self.metadata.store(next);
        drop(indices);
        // Not under the lock that every request needs for a moment.
        deleted.iter().for_each(|index| self.forget(index));
        closed
    }

    /// Running indices whose settings are about to change.
    fn with_other_settings(&self, changes: &[MetadataChange]) -> Vec<(Arc<Index>, Arc<IndexMeta>)> {
        let indices = self.indices.read();
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for change in changes.iter().rev() {
            let MetadataChange::PutIndex { meta, .. } = change else { continue };
            if let Some(index) = indices.get(&meta.name)
                && index.meta().uuid == meta.uuid
                && index.meta().settings != meta.settings
                && seen.insert(meta.uuid)
            {
                found.push((Arc::clone(index), Arc::clone(meta)));
            }
        }
        found
    }

    /// Lets go of a deleted index: its memory now, its files with their last user.
    fn forget(&self, index: &Arc<Index>) {
        for shard in index.shards() {
            self.budget.free(shard.close());
        }
        self.agenda.report_all(index);
    }
}

/// The mappings that indices have under other settings; those that only the log has are to be stored with the
/// settings, which what the log has of them may not be readable by.
fn follow(updated: &[(Arc<Index>, Arc<IndexMeta>)]) -> Result<(HashMap<Uuid, Mapping>, Vec<UnsavedMapping>)> {
    let (mut followed, mut unsaved) = (HashMap::new(), Vec::new());
    for (index, meta) in updated {
        index.check_supported()?;
        let mapping = index.mapping();
        followed.insert(meta.uuid, mapping.with_settings(&meta.settings)?);
        if mapping.version() != index.saved_mapping.load(Ordering::Relaxed) {
            unsaved.push((Arc::clone(index), mapping.version(), mapping.encode()));
        }
    }
    Ok((followed, unsaved))
}

/// An index, the version of its mapping, the mapping for the catalog.
type UnsavedMapping = (Arc<Index>, u64, Vec<u8>);
