//! Capture of the store for a snapshot: many indices as of one frame of the log.
//!
//! A flush of the chosen indices comes first, so little of them is left in memory. Then the write locks of all shards are taken, in the order in which writers
//! take them: no frame is applied meanwhile, and each shard is captured before the locks go. The capture counts once the log is
//! durable up to that frame. Files of captured segments stay for as long as the capture is held.

use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use millrace_catalog::Position;
use millrace_catalog::frame::FrameNumber;
use millrace_catalog::metadata::{IndexMeta, Metadata};
use millrace_mapping::Mapping;
use millrace_runtime::sync::AsyncMutexGuard;
use millrace_runtime::{Result, sync};
use millrace_segment::MergeOutput;
use millrace_segment::objects::{ObjectStoreConfig, Objects};
use object_store::path::Path;
use uuid::Uuid;

use super::{Engine, Index};
use crate::shard::ShardCapture;

/// Choices of indices that other changes outdate, until one is made while nobody may change the metadata.
const SELECTIONS: usize = 3;

/// Chooses the indices of a capture by the metadata of its moment.
pub type IndexSelection<'a> = Box<dyn Fn(&Metadata) -> Result<Vec<Arc<IndexMeta>>> + Send + Sync + 'a>;

/// The store as of one frame.
#[derive(Debug)]
pub struct StoreCapture {
    /// The frame: everything before and in it is captured, nothing behind it. `None` where the log never had one.
    pub frame: Option<FrameNumber>,
    /// Metadata of all indices, templates and settings.
    pub metadata: Arc<Metadata>,
    /// Positions of all sources.
    pub positions: Vec<Position>,
    /// The chosen indices, by name.
    pub indices: Vec<IndexCapture>,
}

/// An index as of one frame.
#[derive(Debug)]
pub struct IndexCapture {
    /// Its metadata.
    pub meta: Arc<IndexMeta>,
    /// Its mapping, which knows every captured row's fields.
    pub mapping: Arc<Mapping>,
    /// Its shards in order; an error names the damage of one that is out of use.
    pub shards: Vec<Result<ShardCapture>>,
}

impl Engine {
    /// Captures indices as of one frame.
    ///
    /// # Errors
    /// The selection's; a failing flush; a log that has stopped.
    pub fn capture<'a>(&'a self, select: IndexSelection<'a>) -> BoxFuture<'a, Result<StoreCapture>> {
        Box::pin(sync::scope(self.capture_selected(select)))
    }

    async fn capture_selected(&self, select: IndexSelection<'_>) -> Result<StoreCapture> {
        self.inner.check_accepting()?;
        // An index that is deleted meanwhile needs no flush.
        let selected = select(&self.inner.metadata.load())?;
        let selected: Vec<Arc<Index>> =
            selected.iter().filter_map(|meta| self.index(&meta.name).ok()).collect();
        // What cannot be flushed now is captured from memory.
        if let Err(error) = self.flush(&selected).await {
            tracing::warn!(%error, "cannot flush before a snapshot; it takes the rows from memory");
        }
        let (change, metadata, chosen) = self.select_locked(select).await?;
        let mut indices: Vec<Arc<Index>> = Vec::with_capacity(chosen.len());
        for meta in chosen {
            indices.push(self.index(&meta.name)?);
        }
        indices.sort_unstable_by_key(|index| index.meta().uuid);
        let mut locks = Vec::with_capacity(indices.len());
        for index in &indices {
            for shard in index.shards() {
                locks.push(shard.write_lock().await);
            }
        }
        let mut held = locks.iter();
        let mut captured = Vec::with_capacity(indices.len());
        for index in &indices {
            let locks = held.by_ref().take(index.shards().len());
            let shards: Vec<_> = locks.filter_map(|lock| lock.capture().transpose()).collect();
            captured.push(IndexCapture { meta: index.meta(), mapping: index.mapping(), shards });
        }
        let positions = self.inner.positions.list_all();
        let wal = self.inner.wal()?;
        let frame = wal.next_frame().checked_sub(1);
        drop(locks);
        drop(change);
        if let Some(frame) = frame {
            wal.synced(frame).await?;
        }
        captured.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        Ok(StoreCapture { frame, metadata, positions, indices: captured })
    }

    /// Chooses indices, and takes the lock of the metadata that they are chosen by. Patterns are compared with names before the lock.
    async fn select_locked(
        &self,
        select: IndexSelection<'_>,
    ) -> Result<(AsyncMutexGuard<'static>, Arc<Metadata>, Vec<Arc<IndexMeta>>)> {
        let inner = &self.inner;
        for _ in 0..SELECTIONS {
            let metadata = inner.metadata.load_full();
            let chosen = select(&metadata)?;
            let change = inner.metadata_change.lock_owned().await;
            if Arc::ptr_eq(&metadata, &inner.metadata.load_full()) {
                return Ok((change, metadata, chosen));
            }
        }
        let change = inner.metadata_change.lock_owned().await;
        let metadata = inner.metadata.load_full();
        let chosen = select(&metadata)?;
        Ok((change, metadata, chosen))
    }

    /// Writes the rows of a captured shard that no stored segment has into files, which are removed with the result. `None` where
    /// there are no such rows.
    ///
    /// # Errors
    /// The disk's.
    pub async fn merge_unflushed(
        &self,
        index: &IndexCapture,
        shard: &ShardCapture,
    ) -> Result<Option<MergeOutput>> {
        shard.merge_unflushed(&index.mapping, self.inner.env(), &self.inner.services.scratch).await
    }

    /// Opens a file of a captured segment. One of a remote object store is fetched to the local disk first, and is gone there with
    /// the result.
    ///
    /// # Errors
    /// The object store's or the disk's; a file of another length.
    pub async fn open_captured(&self, path: &Path, bytes: u64) -> Result<Bytes> {
        let objects = Arc::clone(&self.inner.env().objects);
        if objects.is_local() {
            let (objects, path) = (Arc::clone(&objects), path.clone());
            // A repository may hold the file for now.
            if let Some(mapped) = sync::blocking(move || objects.map_local(&path)).await? {
                return Ok(mapped);
            }
        }
        let file = self.scratch_file();
        let fetched = objects.get_to_file(path, &file, bytes).await;
        let disk = Arc::clone(&self.inner.disk);
        sync::blocking(move || {
            // The mapping outlives the file's name.
            let mapped = fetched.and_then(|()| disk.open_mapped(&file));
            disk.remove(&file)?;
            mapped
        })
        .await
    }

    /// Returns the file of a captured segment on this machine; `None` where an object store or a repository has it.
    pub fn captured_file(&self, path: &Path) -> Option<std::path::PathBuf> {
        let objects = &self.inner.env().objects;
        objects.local_path(path).filter(|_| !objects.has_origin(path))
    }

    /// Removes a file of [`Engine::scratch_file`], if it is there.
    pub async fn remove_scratch(&self, file: std::path::PathBuf) {
        let disk = Arc::clone(&self.inner.disk);
        if let Err(error) = sync::blocking(move || disk.remove(&file)).await
            && !millrace_segment::objects::is_missing(&error)
        {
            tracing::warn!(%error, "cannot remove a file under construction; the next start will");
        }
    }

    /// Names a new file in the directory of files under construction, which every start empties.
    pub fn scratch_file(&self) -> std::path::PathBuf {
        self.inner.services.scratch.join(format!("snapshot-{}", Uuid::new_v4().simple()))
    }

    /// Returns the id of the store.
    pub fn store_id(&self) -> Uuid {
        self.inner.identity.id()
    }

    /// Returns the object store of the segments.
    pub fn objects(&self) -> &Arc<Objects> {
        &self.inner.env().objects
    }

    /// Opens an S3-compatible service as an object store.
    ///
    /// # Errors
    /// An unusable configuration or an unreachable service.
    pub async fn open_service(&self, config: &ObjectStoreConfig) -> Result<Objects> {
        millrace_segment::objects::open_service(config, Arc::clone(&self.inner.disk)).await
    }

    /// Opens a directory of this machine as an object store of its own, whose paced writes run on the snapshot threads.
    ///
    /// # Errors
    /// The disk's.
    pub async fn open_directory(&self, root: &FilePath) -> Result<Objects> {
        let (disk, root) = (Arc::clone(&self.inner.disk), root.to_owned());
        millrace_segment::objects::open_directory(disk, root, Some(self.compute().clone())).await
    }
}
