//! Paced writes to the local directory: the files of snapshots in a repository on this machine.
//!
//! They run on the snapshot threads, whose priority is below that of ingest: copies beside writers take the time that these leave. Large
//! files go past the cache of the operating system, so a sync of the write-ahead log waits for little of them.

use std::path::{Path as FilePath, PathBuf};

use bytes::Bytes;
use millrace_runtime::disk::DiskFile;
use millrace_runtime::{Priority, Result};
use object_store::path::Path;

use super::local::DurableLocal;
use super::staged::StagedObject;
use super::transfer::{TransferObserver, TransferPacer};

/// Bytes of a chunk, for which the pacer is asked.
const CHUNK_BYTES: usize = 2 << 20;
/// Bytes from which on a file goes past the cache.
const UNCACHED_BYTES: usize = 1 << 20;

impl DurableLocal {
    /// Writes an object, replacing one of that name, chunk by chunk as the pacer admits it.
    ///
    /// # Errors
    /// The disk's; then the object is either absent or whole. The pacer's; then it is absent, or what it was.
    pub(super) async fn put_paced(
        &self,
        location: &Path,
        bytes: Bytes,
        pacer: &dyn TransferPacer,
    ) -> Result<()> {
        self.inner.file_of(location)?;
        let (staged, ()) = self.stage(bytes, pacer, ()).await?;
        staged.place(location).await
    }

    /// Writes an object that gets its name later, chunk by chunk as the pacer admits it. The observer sees each chunk before it is written.
    ///
    /// # Errors
    /// The disk's and the pacer's; then nothing is left.
    pub(super) async fn stage<O: TransferObserver>(
        &self,
        bytes: Bytes,
        pacer: &dyn TransferPacer,
        observer: O,
    ) -> Result<(StagedObject, O)> {
        let scratch = self.inner.scratch_file();
        match self.write_scratch(&scratch, bytes, pacer, observer).await {
            Ok(observer) => Ok((StagedObject::new(self.clone(), scratch), observer)),
            Err(error) => {
                let inner = self.inner.clone();
                let removed = self.on_snapshot_thread(move || inner.disk.remove(&scratch)).await;
                if let Err(left) = removed {
                    tracing::warn!(error = %left, "cannot remove a file under construction; a cleanup will");
                }
                Err(error)
            }
        }
    }

    async fn write_scratch<O: TransferObserver>(
        &self,
        scratch: &FilePath,
        bytes: Bytes,
        pacer: &dyn TransferPacer,
        mut observer: O,
    ) -> Result<O> {
        let mut file = self.create_scratch(scratch.to_owned(), bytes.len()).await?;
        for start in (0..bytes.len()).step_by(CHUNK_BYTES) {
            let chunk = bytes.slice(start..bytes.len().min(start + CHUNK_BYTES));
            pacer.admit(chunk.len() as u64).await?;
            let append = move || {
                observer.observe(&chunk);
                file.append(&chunk).map(|()| (file, observer))
            };
            (file, observer) = self.on_snapshot_thread(append).await?;
        }
        self.on_snapshot_thread(move || file.sync()).await?;
        Ok(observer)
    }

    async fn create_scratch(&self, scratch: PathBuf, len: usize) -> Result<Box<dyn DiskFile>> {
        let inner = self.inner.clone();
        self.on_snapshot_thread(move || match len >= UNCACHED_BYTES {
            true => inner.disk.create_uncached(&scratch),
            false => inner.disk.create(&scratch),
        })
        .await
    }

    /// Runs work that blocks on a snapshot thread, where the store has these.
    pub(super) async fn on_snapshot_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match &self.inner.compute {
            Some(compute) => compute.run(Priority::Snapshot, work).await,
            None => super::blocking(work).await,
        }
    }
}
