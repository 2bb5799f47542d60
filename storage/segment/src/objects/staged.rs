//! Objects of a local store whose bytes are there before their name: a repository names contents by hashes of what it has written.

use std::path::{Path as FilePath, PathBuf};

use bytes::Bytes;
use millrace_runtime::Result;
use object_store::path::Path;

use super::Objects;
use super::local::{DurableLocal, Inner};
use super::transfer::{TransferObserver, TransferPacer};

/// A durable file of a local store that is no object yet. One that is dropped stays a file under construction, which a cleanup removes.
#[derive(Debug)]
pub struct StagedObject {
    local: DurableLocal,
    scratch: PathBuf,
}

impl StagedObject {
    pub(super) fn new(local: DurableLocal, scratch: PathBuf) -> Self {
        Self { local, scratch }
    }

    /// Makes it an object, replacing one of that name.
    ///
    /// # Errors
    /// The disk's; then the object is either absent or whole.
    pub async fn place(self, path: &Path) -> Result<()> {
        self.place_by(path, |inner, scratch, target| inner.place(scratch, target, true)).await
    }

    /// Makes it an object as [`StagedObject::place`] does, whose name is durable after [`Objects::make_durable`]: many names of a
    /// directory are synced at once.
    ///
    /// # Errors
    /// The disk's.
    pub async fn place_lazily(self, path: &Path) -> Result<()> {
        self.place_by(path, Inner::place_lazily).await
    }

    async fn place_by(
        self,
        path: &Path,
        place: impl FnOnce(&Inner, &FilePath, &FilePath) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let Self { local, scratch } = self;
        let (inner, target) = (local.inner.clone(), local.inner.file_of(path)?);
        let place = move || {
            let placed = place(&inner, &scratch, &target);
            // It has another name by now, or is of no use.
            inner.cleaned(&scratch, placed)
        };
        local.on_snapshot_thread(place).await
    }

    /// Removes it.
    ///
    /// # Errors
    /// The disk's.
    pub async fn discard(self) -> Result<()> {
        let Self { local, scratch } = self;
        let inner = local.inner.clone();
        local.on_snapshot_thread(move || inner.disk.remove(&scratch)).await
    }
}

impl Objects {
    /// Writes an object of a local store that gets its name later, chunk by chunk as the pacer admits it. The observer sees each chunk on
    /// its way. `None` where the store is remote.
    ///
    /// # Errors
    /// The disk's and the pacer's; then nothing is left.
    pub async fn stage<O: TransferObserver>(
        &self,
        bytes: Bytes,
        pacer: &dyn TransferPacer,
        observer: O,
    ) -> Result<Option<(StagedObject, O)>> {
        match &self.local {
            Some(local) => local.stage(bytes, pacer, observer).await.map(Some),
            None => Ok(None),
        }
    }

    /// Makes an object that gets its name later, of so many bytes, and that shares the blocks of a file, once the pacer admits them.
    /// `None` where the store is remote, or the file system cannot.
    ///
    /// # Errors
    /// The disk's and the pacer's; then nothing is left.
    pub async fn stage_reflink(
        &self,
        file: (&FilePath, u64),
        pacer: &dyn TransferPacer,
    ) -> Result<Option<StagedObject>> {
        match &self.local {
            Some(local) => local.stage_reflink(file, pacer).await,
            None => Ok(None),
        }
    }
}
