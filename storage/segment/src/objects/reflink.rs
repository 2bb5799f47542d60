//! Copies of files into and out of a local store that share their blocks: the file system copies a block once it is written to.
//!
//! XFS and Btrfs can, within one file system. Objects are never written to, so such a copy takes neither time nor space.

use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::Ordering;

use millrace_runtime::sync::blocking;
use millrace_runtime::{Error, Result};
use object_store::path::Path;

use super::Objects;
use super::local::DurableLocal;
use super::staged::StagedObject;
use super::transfer::TransferPacer;

impl Objects {
    /// Makes a file of so many bytes that shares the blocks of an object, once the pacer admits them. Returns `false` where the file
    /// system cannot; then there is no file. The file is not synced, and left behind after an error.
    ///
    /// # Errors
    /// The store's; an existing file is one, and so is an object of another length. The pacer's.
    pub async fn get_reflink(
        &self,
        path: &Path,
        (file, len): (&FilePath, u64),
        pacer: &dyn TransferPacer,
    ) -> Result<bool> {
        let Some(local) = self.local.as_ref().filter(|_| !self.has_origin(path)) else { return Ok(false) };
        let source = local.inner.file_of(path)?;
        if !local.reflink(source, file.to_owned()).await? {
            return Ok(false);
        }
        let found = self.on_disk(file, |disk, file| disk.len(file)).await?;
        if found != len {
            let reason = format!("{found} bytes, the catalog says {len}");
            return Err(Error::Corrupt { file: path.to_string(), offset: found.min(len), reason });
        }
        pacer.admit(len).await?;
        Ok(true)
    }
}

impl DurableLocal {
    /// Makes an object that gets its name later; see [`Objects::stage_reflink`].
    pub(super) async fn stage_reflink(
        &self,
        (file, len): (&FilePath, u64),
        pacer: &dyn TransferPacer,
    ) -> Result<Option<StagedObject>> {
        let scratch = self.inner.scratch_file();
        if !self.reflink(file.to_owned(), scratch.clone()).await? {
            return Ok(None);
        }
        let staged = StagedObject::new(self.clone(), scratch.clone());
        let inner = self.inner.clone();
        let durable = match pacer.admit(len).await {
            Ok(()) => self.on_snapshot_thread(move || inner.disk.sync_file(&scratch)).await,
            Err(ended) => Err(ended),
        };
        match durable {
            Ok(()) => Ok(Some(staged)),
            Err(error) => {
                if let Err(left) = staged.discard().await {
                    tracing::warn!(error = %left, "cannot remove a file under construction; a cleanup will");
                }
                Err(error)
            }
        }
    }

    /// Makes a file that shares the blocks of another one. What the file system cannot do once is not tried again.
    async fn reflink(&self, from: PathBuf, to: PathBuf) -> Result<bool> {
        if self.inner.lacks_reflinks.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let inner = self.inner.clone();
        blocking(move || {
            let is_made = inner.disk.reflink(&from, &to)?;
            if !is_made {
                inner.lacks_reflinks.store(true, Ordering::Relaxed);
            }
            Ok(is_made)
        })
        .await
    }
}
