//! Multipart uploads to the local directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use millrace_runtime::disk::DiskFile;
use millrace_runtime::{Error, Result};
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};
use parking_lot::Mutex;

use super::local::{DurableLocal, Inner, StoreResult, UNTAGGED};

/// A multipart upload: parts go to a scratch file in order; parts that come early wait in memory.
#[derive(Debug)]
pub(super) struct Upload {
    local: DurableLocal,
    location: Path,
    scratch: PathBuf,
    parts: Arc<Mutex<UploadedParts>>,
    given: usize,
}

#[derive(Debug)]
struct UploadedParts {
    file: Box<dyn DiskFile>,
    next: usize,
    early: BTreeMap<usize, PutPayload>,
    failed: bool,
}

impl Upload {
    /// Begins an upload whose scratch file was just created.
    pub(super) fn new(
        local: DurableLocal,
        location: Path,
        scratch: PathBuf,
        file: Box<dyn DiskFile>,
    ) -> Self {
        let parts = UploadedParts { file, next: 0, early: BTreeMap::new(), failed: false };
        Self { local, location, scratch, parts: Arc::new(Mutex::new(parts)), given: 0 }
    }
}

impl UploadedParts {
    fn add(&mut self, number: usize, payload: PutPayload) -> Result<()> {
        self.early.insert(number, payload);
        while let Some(payload) = self.early.remove(&self.next) {
            for piece in &payload {
                if let Err(error) = self.file.append(piece) {
                    self.failed = true;
                    return Err(error);
                }
            }
            self.next += 1;
        }
        Ok(())
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let number = self.given;
        self.given += 1;
        let (local, location, parts) = (self.local.clone(), self.location.clone(), Arc::clone(&self.parts));
        async move { local.run(&location, move |_, _| parts.lock().add(number, data)).await }.boxed()
    }

    async fn complete(&mut self) -> StoreResult<PutResult> {
        let (parts, scratch, given) = (Arc::clone(&self.parts), self.scratch.clone(), self.given);
        let complete = move |inner: &Inner, file: &FilePath| {
            let mut parts = parts.lock();
            if parts.failed || parts.next != given {
                let reason = format!("{} of {given} parts were written", parts.next);
                return Err(Error::io("complete", file, io::Error::other(reason)));
            }
            parts.file.sync()?;
            inner.place(&scratch, file, true)
        };
        self.local.run(&self.location, complete).await?;
        Ok(UNTAGGED)
    }

    async fn abort(&mut self) -> StoreResult<()> {
        let scratch = self.scratch.clone();
        self.local.run(&self.location, move |inner, _| inner.disk.remove(&scratch)).await
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After completion there is nothing to remove; a remnant is removed at the next start.
        let _ = self.local.inner.disk.remove(&self.scratch);
    }
}
