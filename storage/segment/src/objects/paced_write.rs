//! Paced writes to the local directory: the files of snapshots in a repository on this machine.
//!
//! They run on the snapshot threads, whose priority is below that of ingest: copies beside writers take the time that these leave. What
//! is written is synced every few megabytes, so a sync of the write-ahead log never waits for more than that.

use std::path::{Path as FilePath, PathBuf};

use bytes::Bytes;
use millrace_runtime::{Priority, Result};
use object_store::path::Path;

use super::local::DurableLocal;
use super::transfer::TransferPacer;

/// Bytes of a chunk, for which the pacer is asked.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes after which what is written is synced.
const SYNCED_BYTES: usize = 16 << 20;

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
        let (target, scratch) = (self.inner.file_of(location)?, self.inner.scratch_file());
        let written = self.write_paced((&scratch, target), bytes, pacer).await;
        let inner = self.inner.clone();
        // It has another name by now, or is of no use.
        let removed = self.on_snapshot_thread(move || inner.disk.remove(&scratch)).await;
        written.and(removed)
    }

    async fn write_paced(
        &self,
        (scratch, target): (&FilePath, PathBuf),
        bytes: Bytes,
        pacer: &dyn TransferPacer,
    ) -> Result<()> {
        let (inner, created) = (self.inner.clone(), scratch.to_owned());
        let mut file = self.on_snapshot_thread(move || inner.disk.create(&created)).await?;
        for start in (0..bytes.len()).step_by(CHUNK_BYTES) {
            let chunk = bytes.slice(start..bytes.len().min(start + CHUNK_BYTES));
            pacer.admit(chunk.len() as u64).await?;
            let syncs = (start + chunk.len()).is_multiple_of(SYNCED_BYTES);
            let append = move || {
                file.append(&chunk)?;
                if syncs {
                    file.sync()?;
                }
                Ok(file)
            };
            file = self.on_snapshot_thread(append).await?;
        }
        let (inner, scratch) = (self.inner.clone(), scratch.to_owned());
        let place = move || {
            file.sync()?;
            inner.place(&scratch, &target, true)
        };
        self.on_snapshot_thread(place).await
    }

    /// Runs work that blocks on a snapshot thread, where the store has these.
    async fn on_snapshot_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match &self.inner.compute {
            Some(compute) => compute.run(Priority::Snapshot, work).await,
            None => super::blocking(work).await,
        }
    }
}
