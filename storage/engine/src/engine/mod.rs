//! The store as its users see it: indices, documents, snapshots, figures.
//!
//! [`Engine`] owns the running indices, the log, the catalog and the object store; here it is opened and shut down. `recovery.rs` is
//! the start, `write.rs` and `round.rs` are the write path, `get.rs` reads by id, `change.rs` changes metadata and mappings,
//! `refresh.rs` is what requests ask of shards: refresh, flush, merge. `source.rs` and `positions.rs` are what sources of pipelines
//! need, `capture.rs` and `restore.rs` what snapshots need, `system.rs` indices of the server's own, `system_documents.rs` their documents. `upkeep.rs` is the background work: refresh,
//! flush, compaction, cutting the log; `watermarks.rs` what a disk that fills up means.

mod batched_write;
mod budget;
mod capture;
mod change;
mod deletions;
mod describe;
mod feed;
mod get;
pub(crate) mod identity;
mod index;
mod leases;
mod maintenance;
mod maintenance_queue;
mod node_faults;
mod orphans;
mod ownership;
mod positions;
#[cfg(test)]
mod protocol;
mod read_back;
mod recheck;
mod recovery;
mod refresh;
mod resize;
mod restore;
mod restored_position;
mod segment_origin;
mod source;
mod system;
mod system_documents;
mod target;
#[cfg(test)]
mod tests;
mod timings;
mod types;
mod update;
mod visibility_check;
mod watermarks;
mod write;
mod write_batch;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{Entry, Frame};
use millrace_catalog::metadata::{IndicesOptions, Metadata};
pub use millrace_catalog::operation::{
    Action, ActionKind, DeadLetter, DocResult, OnReject, RefreshPolicy, SourceWrite, Update, VersionType,
    WriteOp, WriteOutcome,
};
use millrace_catalog::routing::IdGenerator;
pub use millrace_catalog::system_document::{DocumentVersion, Precondition, SystemDocument, hidden_index};
use millrace_catalog::{AccountChange, AccountRecord, Catalog};
use millrace_runtime::disk::{Disk, SystemDisk};
use millrace_runtime::sync::{self, AsyncMutex};
use millrace_runtime::tasks::TaskRegistry;
use millrace_runtime::{Error, HistogramSnapshot, Instant, Result, SharedClock};
use millrace_segment::objects::{ObjectRequestKind, ObjectRequestOutcome};
use millrace_segment::{CacheFigures, Env};
pub use millrace_session::{ShardSnapshot, Snapshot, StoredDoc};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::budget::Budget;
pub use self::capture::{IndexCapture, IndexSelection, StoreCapture};
pub use self::feed::{FEED_PIPELINE, FeedItem, FeedReader};
pub use self::index::Index;
pub use self::leases::Lease;
use self::maintenance_queue::MaintenanceQueue;
pub use self::node_faults::NodeFault;
pub use self::read_back::{Choice, Missing, ReadBack};
pub use self::restore::{
    AdoptedSegment, RestoreDecision, RestoredIndex, RestoredShard, RestoredState, SegmentFiles,
};
pub use self::restored_position::{RESTORED_PARTITION, RULES_READER, RestoredPosition};
pub use self::segment_origin::{PendingSegment, SegmentOrigin};
pub use self::source::UnsyncedWrite;
pub use self::system_documents::{
    DocumentMirror, MirroredDocument, SystemDocuments, UnreadableDocument, VersionedDocument,
};
pub use self::timings::EngineTimings;
pub use self::types::*;
use crate::Config;
use crate::access::{Views, Visibility};
use crate::shard::Services;
pub use crate::shard::{CapturedSegment, ContextFigures, OpenContext, SearchContextKind, ShardCapture};
use crate::wal::{ReplayProgress, Wal};

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

/// State that the engine's parts share.
#[derive(Debug)]
struct Inner {
    config: Config,
    clock: SharedClock,
    tasks: TaskRegistry,
    timings: EngineTimings,
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
    /// Queue of the background work.
    agenda: Arc<MaintenanceQueue>,
    /// Permits of flushes; a large one takes several.
    flushes: Semaphore,
    compactions: maintenance::Compactions,
    busy: Mutex<maintenance::BusySet>,
    /// Set where the log may have a file that is needed no more.
    wants_cut: AtomicBool,
    leases: sync::Mutex<leases::Leases>,
    /// Restored segments that the start found without all their files, until they are taken.
    pending_segments: Mutex<Option<Vec<PendingSegment>>>,
    /// Frames that readers of the log decoded last.
    decoded: feed::DecodedFrameCache,
    positions: positions::Positions,
    identity: identity::Identity,
    /// Files that no commit knows, left to their time.
    orphans: Mutex<Vec<orphans::Orphan>>,
    /// Shared by updates of sources while they are decided, alone with one that lost against another.
    source_updates: tokio::sync::RwLock<()>,
    /// Shards that are out of use; held while they are looked at again.
    damaged: Arc<tokio::sync::Mutex<Vec<deletions::DamagedShard>>>,
    stopping: AtomicBool,
    /// Held for as long as the data directory is in use.
    _lock: Box<dyn millrace_runtime::disk::LockGuard>,
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
        self.check_ownership()
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
            futures::future::join(maintenance::run(Arc::clone(&inner)), watermarks::run(Arc::clone(&inner)));
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

    /// Returns whether the engine is being shut down, or has been.
    pub fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Relaxed)
    }

    /// Stops accepting writes, flushes every shard, and closes log and catalog.
    ///
    /// # Errors
    /// A flush fails; what it would have written is still in the log.
    pub fn shutdown(&self) -> BoxFuture<'_, Result<()>> {
        self.shutdown_within(Duration::MAX)
    }

    /// Does what [`Engine::shutdown`] does, and gives the flushes no more time than that: an object store that does not
    /// answer, or a disk, is no reason to wait. What is not flushed is still in the log.
    ///
    /// # Errors
    /// A flush fails or does not end in time; log and catalog are closed all the same.
    pub fn shutdown_within(&self, time: Duration) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.inner.stopping.store(true, Ordering::Relaxed);
            let upkeep = self.upkeep.lock().take();
            if let Some(upkeep) = upkeep {
                upkeep.abort();
                let _ = upkeep.await;
            }
            let deadline = Instant::now().checked_add(time);
            let left = || deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let indices = self.inner.all_indices();
            let flushed = tokio::time::timeout(left(), self.flush(&indices)).await.unwrap_or_else(|_| {
                let reason = "the store could not be flushed in time; the log has what is missing";
                Err(Error::Stopped(reason.to_owned()))
            });
            // A hanging flush may hold what this waits for.
            let kept = tokio::time::timeout(NOTE_TIME.min(left()), self.inner.keep_leases()).await;
            let kept = kept.unwrap_or_else(|_| Err(Error::Stopped("there was no time left".to_owned())));
            if let Err(error) = kept {
                tracing::warn!(%error, "cannot store where leases on the log are; they begin where they were before");
            }
            // An object store that does not answer is no reason to wait: the next start notes it.
            let _ = tokio::time::timeout(NOTE_TIME.min(left()), self.inner.note_generation()).await;
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

    /// Returns the tasks that run on this node.
    pub fn tasks(&self) -> &TaskRegistry {
        &self.inner.tasks
    }

    /// Returns the durations of the engine's work.
    pub fn timings(&self) -> &EngineTimings {
        &self.inner.timings
    }

    /// Counts the requests to the object store since the start, by kind and outcome.
    pub fn object_requests(&self) -> Vec<(ObjectRequestKind, ObjectRequestOutcome, u64)> {
        self.inner.env().objects.requests()
    }

    /// Reads the figures of the caches of segment files, by their names.
    pub fn cache_figures(&self) -> [(&'static str, CacheFigures); 2] {
        self.inner.env().cache_figures()
    }

    /// Returns the bytes of the log, and those that it is to have at most.
    pub fn log_bytes(&self) -> (u64, u64) {
        (self.inner.wal().map_or(0, |wal| wal.bytes()), self.wal_max_bytes())
    }

    /// Returns the durations of the log's syncs, each of which makes a group of frames durable.
    pub fn log_sync_time(&self) -> HistogramSnapshot {
        self.inner.wal().map(|wal| wal.sync_time()).unwrap_or_default()
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
    pub fn compute(&self) -> &millrace_runtime::Compute {
        &self.inner.env().compute
    }

    /// Returns the metadata (indices, aliases, templates, cluster settings) as of now.
    pub fn metadata(&self) -> Arc<Metadata> {
        self.inner.metadata.load_full()
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
    /// The catalog fails; [`Error::Stopped`] where another process has taken the object store over.
    pub async fn put_secret(&self, key: &str, value: &[u8]) -> Result<()> {
        self.check_ownership()?;
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
    /// The catalog fails; [`Error::Stopped`] where another process has taken the object store over.
    pub async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()> {
        self.check_ownership()?;
        self.inner.services.catalog.put_accounts(changes).await
    }

    /// Refuses what only the process may do that writes to the object store.
    ///
    /// # Errors
    /// [`Error::Stopped`] where another process has taken it over.
    pub(crate) fn check_ownership(&self) -> Result<()> {
        self.inner.check_ownership()
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
