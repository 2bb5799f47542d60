//! Transfers between files and the object store: whole files, chunk by chunk, at the pace that the caller sets.

use std::ops::Range;
use std::path::Path as FilePath;
use std::pin::pin;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use millrace_runtime::sync::blocking;
use millrace_runtime::{Error, Result};
use object_store::path::Path;
use object_store::{ObjectStoreExt, UploadPart};

use super::{Objects, lift};

/// Bytes of one part of an upload.
const PART_BYTES: usize = 8 << 20;
/// Bytes that a download to a file collects before they are written.
const WRITTEN_BYTES: usize = 1 << 20;
/// Parts on their way at once.
const PARTS: usize = 4;

/// Sets the pace of a transfer, and ends it early.
#[async_trait]
pub trait TransferPacer: Send + Sync {
    /// Waits until so many bytes may be moved.
    ///
    /// # Errors
    /// The transfer is to end.
    async fn admit(&self, bytes: u64) -> Result<()>;
}

/// Lets a transfer go as fast as it can.
#[derive(Clone, Copy, Debug)]
pub struct UnpacedTransfer;

#[async_trait]
impl TransferPacer for UnpacedTransfer {
    async fn admit(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

impl Objects {
    /// Writes an object as [`Objects::put`] does, chunk by chunk as the pacer admits it. A local store writes on its snapshot threads.
    ///
    /// # Errors
    /// The store's; then the object is either absent or whole. The pacer's; then it is absent, or what it was.
    pub async fn put_paced(&self, path: &Path, bytes: Bytes, pacer: &dyn TransferPacer) -> Result<()> {
        match &self.local {
            Some(local) => local.put_paced(path, bytes, pacer).await,
            None => self.put_remote(path, bytes, pacer).await,
        }
    }

    /// Writes an object of a remote store, a large one in parts.
    pub(super) async fn put_remote(
        &self,
        path: &Path,
        bytes: Bytes,
        pacer: &dyn TransferPacer,
    ) -> Result<()> {
        if bytes.len() <= 2 * PART_BYTES {
            pacer.admit(bytes.len() as u64).await?;
            return self.store.put(path, bytes.into()).await.map(drop).map_err(lift);
        }
        let bytes = &bytes;
        let part = |range: Range<u64>| async move {
            pacer.admit(range.end - range.start).await?;
            Ok(bytes.slice(range.start as usize..range.end as usize))
        };
        self.upload(path, bytes.len() as u64, part).await
    }

    pub(super) async fn upload_file(&self, path: &Path, file: &FilePath) -> Result<()> {
        let len = self.on_disk(file, |disk, file| disk.len(file)).await?;
        if len <= PART_BYTES as u64 {
            let bytes = self.on_disk(file, |disk, file| disk.read(file)).await?;
            self.store.put(path, bytes.into()).await.map_err(lift)?;
        } else {
            let part = |range: Range<u64>| {
                let len = (range.end - range.start) as usize;
                self.on_disk(file, move |disk, file| disk.read_range(file, range.start, len))
            };
            self.upload(path, len, part).await?;
        }
        self.on_disk(file, |disk, file| disk.remove(file)).await
    }

    /// Copies an object as [`Objects::get_paced`] does, as fast as it can.
    ///
    /// # Errors
    /// The store's or the disk's.
    pub async fn get_to_file(&self, path: &Path, file: &FilePath, len: u64) -> Result<()> {
        self.get_paced(path, (file, len), &UnpacedTransfer).await
    }

    /// Copies an object of so many bytes to a new local file as the pacer admits it: never more of it than two chunks are in
    /// memory. The file is not synced. A part of it may be left behind after an error.
    ///
    /// # Errors
    /// The store's or the disk's; an existing file is one, and so is an object of another length. The pacer's.
    pub async fn get_paced(
        &self,
        path: &Path,
        (file, len): (&FilePath, u64),
        pacer: &dyn TransferPacer,
    ) -> Result<()> {
        let opened = match self.origins.find(path)? {
            Some((origin, there)) => origin.store.get(&there).await,
            None => self.store.get(path).await,
        };
        let mut pieces = opened.map_err(lift)?.into_stream();
        let mut target = self.on_disk(file, |disk, file| disk.create(file)).await?;
        let (mut found, mut waiting) = (0, BytesMut::new());
        loop {
            let piece = pieces.try_next().await.map_err(lift)?;
            let ended = piece.is_none();
            if let Some(piece) = piece {
                pacer.admit(piece.len() as u64).await?;
                found += piece.len() as u64;
                waiting.extend_from_slice(&piece);
            }
            if found > len || (ended && found < len) {
                let reason = format!("{found} bytes, the catalog says {len}");
                return Err(Error::Corrupt { file: path.to_string(), offset: found, reason });
            }
            if !waiting.is_empty() && (ended || waiting.len() >= WRITTEN_BYTES) {
                let bytes = waiting.split().freeze();
                target = blocking(move || target.append(&bytes).map(|()| target)).await?;
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Uploads an object in parts of [`PART_BYTES`], a few at a time. An upload that fails is aborted,
    /// so that the service keeps no parts of it.
    async fn upload<F>(&self, path: &Path, len: u64, part: impl Fn(Range<u64>) -> F) -> Result<()>
    where
        F: Future<Output = Result<Bytes>>,
    {
        let mut upload = self.store.put_multipart(path).await.map_err(lift)?;
        let parts = async {
            let mut running = FuturesUnordered::new();
            for start in (0..len).step_by(PART_BYTES) {
                let bytes =
                    wait_for_part(part(start..len.min(start + PART_BYTES as u64)), &mut running).await?;
                running.push(upload.put_part(bytes.into()));
                if running.len() >= PARTS {
                    running.try_next().await.map_err(lift)?;
                }
            }
            while running.try_next().await.map_err(lift)?.is_some() {}
            upload.complete().await.map_err(lift)
        };
        if let Err(error) = parts.await {
            if let Err(left) = upload.abort().await {
                tracing::warn!(%path, error = %left, "parts of a failed upload stay in the object store");
            }
            return Err(error);
        }
        Ok(())
    }
}

/// Waits for the bytes of a part, while the parts on their way go on: a service ends a connection that stands still.
async fn wait_for_part(
    part: impl Future<Output = Result<Bytes>>,
    running: &mut FuturesUnordered<UploadPart>,
) -> Result<Bytes> {
    let mut part = pin!(part);
    while !running.is_empty() {
        match select(part.as_mut(), running.try_next()).await {
            Either::Left((bytes, _)) => return bytes,
            Either::Right((ended, _)) => _ = ended.map_err(lift)?,
        }
    }
    part.await
}
