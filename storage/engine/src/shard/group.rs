//! Commits of many shards in one transaction of the catalog.
//!
//! A transaction costs a sync, whatever is in it. Commits that come while one is on its way wait for it; the first of them that
//! gets the lock then makes all of them at once. Where that fails each is made by itself, so that none fails for another:
//! a commit may be repeated.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::channel::oneshot;
use millrace_catalog::{Catalog, Commit};
use millrace_mapping::Mapping;
use millrace_runtime::sync::{AsyncMutex, AsyncMutexGuard, LockRank, Rank};
use millrace_runtime::{Error, Result};
use parking_lot::Mutex;
use uuid::Uuid;

/// Commits of one transaction, at most.
const MOST: usize = 64;

/// The commits with a mapping, over all shards.
#[derive(Debug)]
pub(crate) struct Commits {
    /// Held by one transaction at a time: what it says of a mapping must not be older than what one before it
    /// said.
    one: AsyncMutex,
    waiting: Mutex<Vec<PendingCommit>>,
}

/// A commit on its way.
#[derive(Debug)]
struct PendingCommit {
    commit: Commit,
    index: Uuid,
    mapping: Arc<ArcSwap<Mapping>>,
    /// Version of the mapping in `commit`.
    version: u64,
    done: oneshot::Sender<Result<u64>>,
}

impl PendingCommit {
    /// Adds the mapping as of now; called with the lock held, so that an older one never follows a newer one.
    fn with_mapping(mut self) -> Self {
        let mapping = self.mapping.load();
        self.version = mapping.version();
        self.commit.mappings.push((self.index, mapping.encode()));
        drop(mapping);
        self
    }
}

impl Commits {
    /// No commit is on its way.
    pub(crate) fn new() -> Self {
        Self { one: AsyncMutex::new(LockRank::new(Rank::Commits)), waiting: Mutex::default() }
    }

    /// Keeps all commits with mappings waiting until the result is dropped.
    pub(crate) async fn lock(&self) -> AsyncMutexGuard<'_> {
        self.one.lock().await
    }

    /// Makes a commit durable, with the mapping that its index has then, beside others. Returns the version of that
    /// mapping.
    ///
    /// # Errors
    /// The catalog's. Dropped, the commit may be made or not.
    pub(crate) async fn commit(
        &self,
        catalog: &dyn Catalog,
        commit: Commit,
        index: Uuid,
        mapping: &Arc<ArcSwap<Mapping>>,
    ) -> Result<u64> {
        let (done, mut made) = oneshot::channel();
        self.waiting.lock().push(PendingCommit {
            commit,
            index,
            mapping: Arc::clone(mapping),
            version: 0,
            done,
        });
        let _one = self.one.lock().await;
        loop {
            match made.try_recv() {
                Ok(Some(result)) => return result,
                Ok(None) => self.commit_waiting(catalog).await,
                Err(oneshot::Canceled) => {
                    return Err(Error::Internal("a commit beside others was interrupted".to_owned()));
                }
            }
        }
    }

    /// Makes the commits that wait, in one transaction. The caller holds the lock.
    async fn commit_waiting(&self, catalog: &dyn Catalog) {
        let group: Vec<PendingCommit> = {
            let mut waiting = self.waiting.lock();
            let most = waiting.len().min(MOST);
            waiting.drain(..most).collect()
        };
        // Whoever has gone takes its commit along: nobody would know of it.
        let group = group.into_iter().filter(|waiting| !waiting.done.is_canceled());
        let group: Vec<PendingCommit> = group.map(PendingCommit::with_mapping).collect();
        if group.len() > 1 && catalog.commit(&united(&group)).await.is_ok() {
            group.into_iter().for_each(|waiting| drop(waiting.done.send(Ok(waiting.version))));
            return;
        }
        for PendingCommit { commit, version, done, .. } in group {
            let _ = done.send(catalog.commit(&commit).await.map(|()| version));
        }
    }
}

/// One commit of many, whose shards differ.
fn united(group: &[PendingCommit]) -> Commit {
    let mut united = Commit::default();
    for PendingCommit { commit, .. } in group {
        let Commit {
            put,
            removed,
            checkpoints,
            positions,
            forgotten,
            mappings,
            tombstones,
            leases,
            released,
        } = commit.clone();
        united.put.extend(put);
        united.removed.extend(removed);
        united.checkpoints.extend(checkpoints);
        united.positions.extend(positions);
        united.forgotten.extend(forgotten);
        united.tombstones.extend(tombstones);
        united.leases.extend(leases);
        united.released.extend(released);
        // In the order in which they were loaded: of several shards of an index, the last is the newest.
        united.mappings.extend(mappings);
    }
    united
}
