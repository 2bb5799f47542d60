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
use super::transfer::TransferPacer;

impl Objects {
    /// Writes an object of so many bytes that shares the blocks of a file, once the pacer admits them. Returns `false` where the file
    /// system cannot; then nothing is written.
    ///
    /// # Errors
    /// The store's; then the object is either absent or whole. The pacer's; then it is absent, or what it was.
    pub async fn put_reflink(
        &self,
        path: &Path,
        (file, len): (&FilePath, u64),
        pacer: &dyn TransferPacer,
    ) -> Result<bool> {
        match &self.local {
            Some(local) => local.put_reflink(path, (file, len), pacer).await,
            None => Ok(false),
        }
    }

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
    async fn put_reflink(
        &self,
        location: &Path,
        (file, len): (&FilePath, u64),
        pacer: &dyn TransferPacer,
    ) -> Result<bool> {
        let (target, scratch) = (self.inner.file_of(location)?, self.inner.scratch_file());
        if !self.reflink(file.to_owned(), scratch.clone()).await? {
            return Ok(false);
        }
        let admitted = pacer.admit(len).await;
        let inner = self.inner.clone();
        blocking(move || {
            let placed = admitted.and_then(|()| {
                inner.disk.sync_file(&scratch)?;
                inner.place(&scratch, &target, true)
            });
            inner.cleaned(&scratch, placed)
        })
        .await?;
        Ok(true)
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
