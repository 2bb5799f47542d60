//! Contents on their way into a repository and out of it, at its rates and under the sums that name them.

use std::path::Path as FilePath;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use millrace_runtime::Error as StoreError;
use millrace_runtime::sync::blocking;
use millrace_segment::objects::{StagedObject, TransferPacer};

use super::Repository;
use crate::digest::{ContentDigest, DigestBuilder};
use crate::error::Result;
use crate::transfer_limits::TransferCheck;

/// Bytes of a file that are hashed at a time.
const HASHED_BYTES: usize = 8 << 20;

impl Repository {
    /// Writes a content under its name, at the rate of uploads; `check` is asked meanwhile. The name is durable after
    /// [`Repository::make_names_durable`].
    ///
    /// # Errors
    /// The object store's, and those of `check`.
    pub(crate) async fn put_content(
        &self,
        digest: ContentDigest,
        bytes: Bytes,
        check: TransferCheck<'_>,
    ) -> Result<()> {
        let pacer = self.limits.pace_upload(check);
        let fail = |error: StoreError| self.fail(&format!("write content [{digest}]"), &error);
        match self.objects.stage(bytes.clone(), &pacer, ()).await.map_err(fail)? {
            Some((staged, ())) => self.name_content(digest, staged).await,
            None => self.objects.put_paced(&Self::content_path(digest), bytes, &pacer).await.map_err(fail),
        }
    }

    /// Writes a content at the rate of uploads, and hashes it on the way: it gets its name once it is there. `None` where the object store
    /// is remote.
    ///
    /// # Errors
    /// As [`Repository::put_content`].
    pub(crate) async fn stage(
        &self,
        bytes: Bytes,
        check: TransferCheck<'_>,
    ) -> Result<Option<(StagedObject, ContentDigest)>> {
        let pacer = self.limits.pace_upload(check);
        let written = self.objects.stage(bytes, &pacer, DigestBuilder::new()).await;
        let written = written.map_err(|error| self.fail("write a content", &error))?;
        Ok(written.map(|(staged, builder)| (staged, builder.finish())))
    }

    /// Makes a content without a name that shares the blocks of a file of so many bytes; `None` where the file system cannot.
    ///
    /// # Errors
    /// As [`Repository::put_content`].
    pub(crate) async fn stage_reflink(
        &self,
        file: (&FilePath, u64),
        check: TransferCheck<'_>,
    ) -> Result<Option<StagedObject>> {
        let pacer = self.limits.pace_upload(check);
        let made = self.objects.stage_reflink(file, &pacer).await;
        made.map_err(|error| self.fail("write a content", &error))
    }

    /// Gives a content its name, which is durable after [`Repository::make_names_durable`].
    ///
    /// # Errors
    /// As [`Repository::put_content`].
    pub(crate) async fn name_content(&self, digest: ContentDigest, staged: StagedObject) -> Result<()> {
        self.has_durable_names.store(false, Ordering::Release);
        let placed = staged.place_lazily(&Self::content_path(digest)).await;
        placed.map_err(|error| self.fail(&format!("write content [{digest}]"), &error))
    }

    /// Writes a content from a local file.
    ///
    /// # Errors
    /// As [`Repository::put_content`].
    pub(crate) async fn put_content_file(
        &self,
        digest: ContentDigest,
        file: &FilePath,
        check: TransferCheck<'_>,
    ) -> Result<()> {
        let (objects, file) = (self.objects.clone(), file.to_owned());
        let content = blocking(move || objects.map_file(&file)).await?;
        self.put_content(digest, content, check).await
    }

    /// Copies a content of so many bytes to a new local file at the rate of restores, and verifies it; `check` is asked meanwhile.
    ///
    /// # Errors
    /// The object store's, a content that is not what was written, and those of `check`.
    pub(crate) async fn fetch_content(
        &self,
        (digest, bytes): (ContentDigest, u64),
        file: &FilePath,
        check: TransferCheck<'_>,
    ) -> Result<()> {
        let pacer = self.limits.pace_restore(check);
        let path = Self::content_path(digest);
        let fetched = async {
            if self.objects.get_reflink(&path, (file, bytes), &pacer).await? {
                return Ok(None);
            }
            self.objects.get_paced(&path, (file, bytes), &pacer, DigestBuilder::new()).await.map(Some)
        };
        let hashed = match fetched.await {
            Ok(Some(builder)) => Ok(builder.finish()),
            Ok(None) => self.hash_file(file).await,
            Err(error) => return Err(self.fail(&format!("read content [{digest}]"), &error)),
        };
        match hashed {
            Ok(found) if found == digest => Ok(()),
            Ok(_) => {
                self.note_damage(digest);
                Err(self
                    .fail(&format!("read content [{digest}]"), &"its bytes are not those that were written"))
            }
            Err(error) => Err(self.fail(&format!("verify content [{digest}]"), &error)),
        }
    }

    /// Waits until so many bytes may be read at the rate of restores.
    ///
    /// # Errors
    /// Those of `check`.
    pub(crate) async fn pace_read(&self, bytes: u64, check: TransferCheck<'_>) -> Result<()> {
        Ok(self.limits.pace_restore(check).admit(bytes).await?)
    }

    /// Hashes a local file beside the repository.
    pub(crate) async fn hash_file(&self, file: &FilePath) -> Result<ContentDigest, StoreError> {
        let (objects, file) = (self.objects.clone(), file.to_owned());
        blocking(move || {
            let mut builder = DigestBuilder::new();
            objects.map_file(&file)?.chunks(HASHED_BYTES).for_each(|piece| builder.update(piece));
            Ok(builder.finish())
        })
        .await
    }
}
