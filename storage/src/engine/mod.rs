//! The store as its users see it: indices, documents, snapshots, figures.
//!
//! [`Engine`] owns the running indices, the log, the catalog and the object store. `write.rs` and `round.rs` are
//! the write path, `source.rs` and `positions.rs` what sources of pipelines need of it, `system.rs` indices of the server's own, `recovery.rs` the start, `upkeep.rs` the background work: refresh, flush,
//! compaction, cutting the log; `watermarks.rs` what a disk that fills up means.

mod agenda;
mod budget;
mod describe;
mod feed;
pub(crate) mod identity;
mod index;
mod leases;
mod look;
mod positions;
#[cfg(test)]
mod protocol;
mod read_back;
mod recovery;
mod round;
mod source;
mod system;
mod target;
#[cfg(test)]
mod tests;
mod types;
mod update;
mod upkeep;
mod watermarks;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use uuid::Uuid;

use self::agenda::{Agenda, Item};
use self::budget::Budget;
pub use self::feed::{FEED_PIPELINE, FeedItem, FeedReader};
pub use self::index::Index;
pub use self::leases::Lease;
pub use self::read_back::{Choice, Missing, ReadBack};
pub use self::source::{Appended, DeadLetter, Instead, SourceWrite};
pub use self::types::*;
use crate::access::{Origin, Views, Visibility};
use crate::catalog::{AccountChange, AccountRecord, Catalog};
use crate::disk::{Disk, SystemDisk};
use crate::mapping::Mapping;
use crate::metadata::{IndexMeta, IndicesOptions, Metadata, MetadataChange};
use crate::routing::IdGenerator;
use crate::segment::Env;
use crate::shard::Services;
pub use crate::shard::{ContextFigures, ContextKind, OpenContext};
use crate::sync::{self, AsyncMutex};
use crate::wal::{Entry, Frame, FrameNumber, ReplayProgress, Wal};
use crate::{Config, Error, Principal, Priority, Result, SharedClock};

/// Decides on a change of the metadata.
type Decide<'a> = Box<dyn FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send + 'a>;

/// Shards that a request refreshes or flushes at a time.
const SIDE_BY_SIDE: usize = 128;

/// Time that the shutdown gives the object store to take a note.
const NOTE_TIME: Duration = Duration::from_secs(5);

/// The store. Cheap to share as `Arc<Engine>`.
#[derive(Debug)]
pub struct Engine {
    inner: Arc<Inner>,
    upkeep: Mutex<Option<JoinHandle<()>>>,
    visibility: OnceLock<Weak<dyn Visibility>>,
    views: Views,
}

/// What the engine's parts share.
#[derive(Debug)]
struct Inner {
    config: Config,
    clock: SharedClock,
    services: Services,
    disk: Arc<dyn Disk>,
    metadata: ArcSwap<Metadata>,
    /// Held while the metadata changes.
    metadata_change: AsyncMutex,
    /// Held while the log is cut, and the catalog is told of what only the log has.
    cutting: AsyncMutex,
    indices: RwLock<HashMap<Arc<str>, Arc<Index>>>,
    budget: Budget,
    ids: Mutex<IdGenerator>,
    /// What the background work is to look at.
    agenda: Arc<Agenda>,
    /// Permits of flushes; a large one takes several.
    flushes: Semaphore,
    compactions: upkeep::Compactions,
    busy: Mutex<upkeep::Busy>,
    /// Whether the log may have a file that is needed no more.
    wants_cut: AtomicBool,
    leases: sync::Mutex<leases::Leases>,
    /// What readers of the log have decoded last.
    decoded: feed::Decoded,
    positions: positions::Positions,
    identity: identity::Identity,
    /// Files that no commit knows, left to their time.
    orphans: Mutex<Vec<recovery::Orphan>>,
    /// Shared by updates of sources while they are decided, alone with one that lost against another.
    source_updates: tokio::sync::RwLock<()>,
    /// Held while the description of an index is written, so that an older one never replaces a newer one.
    describing: tokio::sync::Mutex<()>,
    stopping: AtomicBool,
    /// Held for as long as the data directory is in use.
    _lock: Box<dyn crate::disk::LockGuard>,
}

impl Inner {
    fn wal(&self) -> Result<&Arc<Wal>> {
        self.services.wal.get().ok_or_else(|| Error::Stopped("the log is not open yet".to_owned()))
    }

    fn env(&self) -> &Env {
        &self.services.env
    }

    /// Makes a frame of now.
    fn frame(&self, origin: Origin, entries: Vec<Entry>) -> Frame {
        Frame { time_ms: self.clock.now_ms(), origin, entries }
    }

    fn check_accepting(&self) -> Result<()> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Error::Stopped("the node is shutting down".to_owned()));
        }
        Ok(())
    }

    fn all_indices(&self) -> Vec<Arc<Index>> {
        self.indices.read().values().cloned().collect()
    }
}

/// Entry points return boxed futures, so that what they run is compiled in this crate alone.
impl Engine {
    /// Opens the data directory, recovers, and starts background work.
    ///
    /// # Errors
    /// The directory is locked or cannot be written, the log or the catalog is corrupt, the object
    /// store cannot be reached.
    pub fn open(config: Config, clock: SharedClock) -> BoxFuture<'static, Result<Arc<Self>>> {
        Box::pin(async move { Self::open_watched(config, clock, Arc::default()).await })
    }

    /// Opens the data directory as [`Engine::open`] does; `progress` tells others meanwhile how far the replay of the
    /// log is.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_watched(
        config: Config,
        clock: SharedClock,
        progress: Arc<ReplayProgress>,
    ) -> BoxFuture<'static, Result<Arc<Self>>> {
        Box::pin(async move {
            Self::start(recovery::open(config, clock, Arc::new(SystemDisk), None, None, progress).await?)
        })
    }

    /// Opens the store on a given disk and catalog; simulated ones make power loss a test. Files
    /// under construction and the cache of remote files are of no value after a crash, and lie in the
    /// real directory `data_dir` all the same.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_with(
        config: Config,
        clock: SharedClock,
        disk: Arc<dyn Disk>,
        catalog: Arc<dyn Catalog>,
    ) -> BoxFuture<'static, Result<Arc<Self>>> {
        Box::pin(async move {
            Self::start(recovery::open(config, clock, disk, Some(catalog), None, Arc::default()).await?)
        })
    }

    fn start(inner: Arc<Inner>) -> Result<Arc<Self>> {
        let both =
            futures::future::join(upkeep::run(Arc::clone(&inner)), watermarks::run(Arc::clone(&inner)));
        let upkeep = tokio::spawn(async move {
            both.await;
        });
        Ok(Arc::new(Self {
            inner,
            upkeep: Mutex::new(Some(upkeep)),
            visibility: OnceLock::new(),
            views: Views::default(),
        }))
    }

    /// Tells who finds documents by id where rules hide some; the first word counts.
    pub fn see_by(&self, visibility: &Arc<dyn Visibility>) {
        let _ = self.visibility.set(Arc::downgrade(visibility));
    }

    pub(crate) fn visibility(&self) -> Option<Arc<dyn Visibility>> {
        self.visibility.get()?.upgrade()
    }

    pub(crate) fn views(&self) -> &Views {
        &self.views
    }

    /// Whether the engine is being shut down, or has been.
    pub fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Relaxed)
    }

    /// Stops accepting writes, flushes every shard, and closes log and catalog.
    ///
    /// # Errors
    /// A flush fails; what it would have written is still in the log.
    pub fn shutdown(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.inner.stopping.store(true, Ordering::Relaxed);
            let upkeep = self.upkeep.lock().take();
            if let Some(upkeep) = upkeep {
                upkeep.abort();
                let _ = upkeep.await;
            }
            let flushed = self.flush(&self.inner.all_indices()).await;
            if let Err(error) = self.inner.keep_leases().await {
                tracing::warn!(%error, "cannot store where leases on the log are; they begin where they were before");
            }
            // An object store that does not answer is no reason to wait: the next start notes it.
            let _ = tokio::time::timeout(NOTE_TIME, self.inner.note_generation()).await;
            let wal = Arc::clone(self.inner.wal()?);
            let closed = sync::blocking(move || wal.close()).await;
            self.inner.services.catalog.close().await;
            flushed.and(closed)
        })
    }

    /// Returns the injected clock.
    pub fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    /// Returns the bytes that the log is to have at most, about: `storage.wal_max_bytes`.
    pub fn wal_max_bytes(&self) -> u64 {
        self.inner.config.wal_max_bytes
    }

    /// Returns the directory of the node's data.
    pub fn data_dir(&self) -> &std::path::Path {
        &self.inner.config.data_dir
    }

    /// Returns the pool for CPU work.
    pub fn compute(&self) -> &crate::Compute {
        &self.inner.env().compute
    }

    /// Returns the metadata (indices, aliases, templates, cluster settings) as of now.
    pub fn metadata(&self) -> Arc<Metadata> {
        self.inner.metadata.load_full()
    }

    /// Applies a metadata change durably: `decide` sees the current state under the metadata lock
    /// and returns what to do (a pure decision; see [`crate::metadata`]).
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
        decide: Decide<'a>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let closed = sync::scope(self.decide_change(principal, decide)).await?;
            self.flush(&closed).await
        })
    }

    /// Decides a change and makes it durable and true; returns the indices that were closed by it.
    async fn decide_change(&self, principal: &Principal, decide: Decide<'_>) -> Result<Vec<Arc<Index>>> {
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
            let _one = one;
            inner.change_durably(current, changes, created, mappings).await
        })
        .await
    }

    /// Returns a running index by its concrete name.
    ///
    /// # Errors
    /// [`Error::IndexNotFound`].
    pub fn index(&self, name: &str) -> Result<Arc<Index>> {
        let found = self.inner.indices.read().get(name).cloned();
        found.ok_or_else(|| Error::IndexNotFound { index: name.to_owned() })
    }

    /// Resolves an index expression to running indices; closed ones as the options say.
    ///
    /// # Errors
    /// A missing index, or none where the options ask for one.
    pub fn resolve(&self, expression: &str, options: &IndicesOptions) -> Result<Vec<Arc<Index>>> {
        let found = self.metadata().resolve(expression, options, self.inner.clock.now_ms())?;
        found.iter().map(|meta| self.index(&meta.name)).collect()
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

    /// Reads a document by id. `realtime` sees unrefreshed writes. `Ok(None)`: no such document.
    ///
    /// # Errors
    /// A missing or closed index, an alias of several indices, a corrupt segment.
    pub async fn get(
        &self,
        _principal: &Principal,
        index: &str,
        id: &str,
        routing: Option<&str>,
        realtime: bool,
    ) -> Result<Option<StoredDoc>> {
        let found = self.resolve(index, &IndicesOptions::open_only())?;
        self.get_of(&found, index, id, routing, realtime).await
    }

    /// Reads a document by id of what a name stands for, which has to be one index.
    pub(crate) async fn get_of(
        &self,
        found: &[Arc<Index>],
        index: &str,
        id: &str,
        routing: Option<&str>,
        realtime: bool,
    ) -> Result<Option<StoredDoc>> {
        let [index] = found else {
            let mut names: Vec<String> = found.iter().map(|i| i.meta().name.to_string()).collect();
            names.sort();
            return Err(Error::IllegalArgument(format!(
                "Alias [{index}] has more than one index associated with it [{}], can't execute a single index op",
                names.join(", ")
            )));
        };
        let meta = index.meta();
        if !meta.open {
            return Err(Error::IndexClosed { index: meta.name.to_string() });
        }
        crate::metadata::check_block(&meta, crate::metadata::BlockLevel::Read)?;
        if routing.is_none() && index.mapping().routing_required() {
            return Err(Error::RoutingMissing { index: meta.name.to_string(), id: id.to_owned() });
        }
        let shard = Arc::clone(index.shard(index.shard_for(Some(id), routing))?);
        let id = id.to_owned();
        let row =
            self.inner.env().compute.run(Priority::Foreground, move || shard.get(&id, realtime)).await?;
        Ok(row.map(|row| StoredDoc {
            index: Arc::clone(&meta.name),
            id: row.id,
            version: row.version,
            seq_no: row.seq_no,
            primary_term: row.primary_term,
            routing: row.routing,
            source: row.source,
        }))
    }

    /// Waits until everything written so far is durable, whatever the indices' settings say. Cancellation safe.
    ///
    /// # Errors
    /// [`Error::Stopped`]: the log came to its end before.
    pub fn durable(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let wal = self.inner.wal()?;
            match wal.next_frame().checked_sub(1) {
                Some(last) => wal.synced(last).await,
                None => Ok(()),
            }
        })
    }

    /// Makes everything written so far visible to search.
    ///
    /// # Errors
    /// An in-memory segment cannot be built.
    pub fn refresh<'a>(&'a self, indices: &'a [Arc<Index>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.each_shard(indices, Inner::refresh_one).await })
    }

    /// Writes memtables out as segments and commits them.
    ///
    /// # Errors
    /// The object store or the catalog fails; what was not flushed stays in memory and log.
    pub fn flush<'a>(&'a self, indices: &'a [Arc<Index>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.each_shard(indices, Inner::flush_one).await?;
            self.inner.cut_log().await
        })
    }

    /// Does work on every shard, some at a time; all of it, whatever fails.
    async fn each_shard<F>(&self, indices: &[Arc<Index>], work: fn(Arc<Inner>, Item) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        let items: Vec<Item> = indices.iter().flat_map(Item::all_of).collect();
        let mut items = items.into_iter();
        let mut running = FuturesUnordered::new();
        let mut done = Ok(());
        loop {
            while running.len() < SIDE_BY_SIDE
                && let Some(item) = items.next()
            {
                running.push(work(Arc::clone(&self.inner), item));
            }
            match running.next().await {
                None => return done,
                Some(one) => done = done.and(one),
            }
        }
    }

    /// Compacts each shard to at most so many segments, after a flush; what is written meanwhile comes on
    /// top.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub fn force_merge<'a>(
        &'a self,
        indices: &'a [Arc<Index>],
        max_segments: usize,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // What the flush writes keeps its deletions, as OpenSearch's merges keep those of the last commit on.
            let last_key = crate::shard::next_key();
            self.flush(indices).await?;
            for index in indices {
                for shard in index.shards() {
                    let merge = shard.force_merge(max_segments, last_key);
                    while self.inner.compact_shard(shard, Some(merge)).await? {}
                    self.inner.agenda.report(index, shard);
                }
            }
            Ok(())
        })
    }

    /// Reads a small secret of the node, such as a password's hash.
    ///
    /// # Errors
    /// The catalog fails.
    pub async fn get_secret(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.inner.services.catalog.get(key).await
    }

    /// Stores such a secret.
    ///
    /// # Errors
    /// The catalog fails.
    pub async fn put_secret(&self, key: &str, value: &[u8]) -> Result<()> {
        self.inner.services.catalog.put(key, value).await
    }

    /// Reads users, roles and whatever else belongs to accounts, by kind and name.
    ///
    /// # Errors
    /// The catalog fails.
    pub async fn accounts(&self) -> Result<Vec<AccountRecord>> {
        self.inner.services.catalog.accounts().await
    }

    /// Changes some of them in order, all or none, durably.
    ///
    /// # Errors
    /// The catalog fails.
    pub async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()> {
        self.inner.services.catalog.put_accounts(changes).await
    }

    /// Bytes of unflushed documents, and the bound on them.
    pub fn memtable_bytes(&self) -> (u64, u64) {
        (self.inner.budget.used(), self.inner.budget.max())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(upkeep) = self.upkeep.lock().take() {
            upkeep.abort();
        }
    }
}

impl Inner {
    async fn refresh_one(self: Arc<Self>, item: Item) -> Result<()> {
        if item.shard.read().dirty() {
            item.shard.refresh(self.env(), self.clock.now_ms()).await?;
            self.agenda.report(&item.index, &item.shard);
        }
        Ok(())
    }

    async fn flush_one(self: Arc<Self>, item: Item) -> Result<()> {
        if item.shard.read().needs_flush() {
            self.flush_shard(&item.shard).await?;
            self.agenda.report(&item.index, &item.shard);
        }
        Ok(())
    }

    /// Merges a body into an index's mapping and logs it; returns the frame that is to be durable.
    async fn merge_mapping(&self, index: &Index, body: &Value) -> Result<FrameNumber> {
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

    /// Makes a decided change durable, then true; returns the indices that were closed by it. The caller holds
    /// `metadata_change`.
    async fn change_durably(
        self: &Arc<Self>,
        current: Arc<Metadata>,
        changes: Vec<MetadataChange>,
        created: Vec<Arc<Index>>,
        mut mappings: Vec<(Uuid, Vec<u8>)>,
    ) -> Result<Vec<Arc<Index>>> {
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
        let one = match unsaved.is_empty() {
            true => None,
            false => Some(self.services.commits.lock().await),
        };
        mappings.extend(unsaved.iter().map(|(index, _, encoded)| (index.meta().uuid, encoded.clone())));
        let described = self.describe_change(&changes, &created).await?;
        if let Err(error) = self.services.catalog.change(&changes, &mappings).await {
            self.undescribe_change(described, &created).await;
            return Err(error);
        }
        for (index, version, _) in &unsaved {
            index.saved_mapping.fetch_max(*version, Ordering::Relaxed);
        }
        drop(one);
        let outdated = self.with_other_description(&changes);
        let inner = Arc::clone(self);
        let applied =
            sync::blocking(move || Ok(inner.apply_change(&current, &changes, &created, followed))).await?;
        drop(described);
        for index in outdated {
            self.describe_again(&index).await;
        }
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
fn follow(updated: &[(Arc<Index>, Arc<IndexMeta>)]) -> Result<(HashMap<Uuid, Mapping>, Vec<Unsaved>)> {
    let (mut followed, mut unsaved) = (HashMap::new(), Vec::new());
    for (index, meta) in updated {
        let mapping = index.mapping();
        followed.insert(meta.uuid, mapping.with_settings(&meta.settings)?);
        if mapping.version() != index.saved_mapping.load(Ordering::Relaxed) {
            unsaved.push((Arc::clone(index), mapping.version(), mapping.encode()));
        }
    }
    Ok((followed, unsaved))
}

/// An index, the version of its mapping, the mapping for the catalog.
type Unsaved = (Arc<Index>, u64, Vec<u8>);
