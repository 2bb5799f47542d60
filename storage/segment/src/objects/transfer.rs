//! Transfers between files and the object store: whole files, chunk by chunk, at the pace that the caller sets.

use std::ops::Range;
use std::path::Path as FilePath;
use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use millrace_runtime::disk::{Disk, DiskFile};
use millrace_runtime::sync::blocking;
use millrace_runtime::{Error, Result};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, UploadPart};

use super::{Objects, lift};

/// Bytes of one part of an upload.
const PART_BYTES: usize = 8 << 20;
/// Bytes that a download to a file collects before they are written.
const WRITTEN_BYTES: usize = 1 << 20;
/// Bytes of a copy after which the disk begins to write them.
const SYNC_BEGIN_BYTES: u64 = 8 << 20;
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

/// Sees the bytes of a transfer in their order, on the threads that move them.
pub trait TransferObserver: Send + 'static {
    /// Takes the next bytes.
    fn observe(&mut self, bytes: &[u8]);
}

impl TransferObserver for () {
    fn observe(&mut self, _bytes: &[u8]) {}
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

    /// Copies an object of so many bytes to a new local file, as fast as it can. The file is not synced.
    ///
    /// # Errors
    /// As [`Objects::get_paced`].
    pub async fn get_to_file(&self, path: &Path, file: &FilePath, len: u64) -> Result<()> {
        let copy = LocalCopy { is_synced_soon: false, ..LocalCopy::new(path, len, ()) };
        self.copy(path, file, copy, &UnpacedTransfer).await
    }

    /// Copies an object of so many bytes to a new local file as the pacer admits it, and shows its bytes to the observer: never more
    /// of it than two chunks are in memory. The disk begins to write the file, which the caller syncs. A part of it may be left
    /// behind after an error.
    ///
    /// # Errors
    /// The store's or the disk's; an existing file is one, and so is an object of another length. The pacer's.
    pub async fn get_paced<O: TransferObserver>(
        &self,
        path: &Path,
        (file, len): (&FilePath, u64),
        pacer: &dyn TransferPacer,
        observer: O,
    ) -> Result<O> {
        self.copy(path, file, LocalCopy::new(path, len, observer), pacer).await
    }

    async fn copy<O: TransferObserver>(
        &self,
        path: &Path,
        file: &FilePath,
        copy: LocalCopy<O>,
        pacer: &dyn TransferPacer,
    ) -> Result<O> {
        match (self.origins.find(path)?, &self.local) {
            (None, Some(local)) => self.copy_local(&local.inner.file_of(path)?, file, copy, pacer).await,
            (None, None) => self.copy_stream((&self.store, path), file, copy, pacer).await,
            (Some((origin, there)), _) => self.copy_stream((&origin.store, &there), file, copy, pacer).await,
        }
    }

    /// Copies a file of this machine: each chunk is read, seen and written while it is in the cache of the processor.
    async fn copy_local<O: TransferObserver>(
        &self,
        source: &FilePath,
        file: &FilePath,
        mut copy: LocalCopy<O>,
        pacer: &dyn TransferPacer,
    ) -> Result<O> {
        let len = self.on_disk(source, |disk, source| disk.len(source)).await?;
        copy.check_end(len)?;
        let mut target = self.on_disk(file, |disk, file| disk.create(file)).await?;
        for start in (0..len).step_by(WRITTEN_BYTES) {
            let bytes = (len - start).min(WRITTEN_BYTES as u64);
            pacer.admit(bytes).await?;
            let append = move |disk: &dyn Disk, source: &FilePath| {
                let bytes = disk.read_range(source, start, bytes as usize)?;
                copy.append(&mut *target, &bytes).map(|()| (copy, target))
            };
            (copy, target) = self.on_disk(source, append).await?;
        }
        Ok(copy.observer)
    }

    /// Copies an object of a store that sends it in pieces.
    async fn copy_stream<O: TransferObserver>(
        &self,
        (store, path): (&Arc<dyn ObjectStore>, &Path),
        file: &FilePath,
        mut copy: LocalCopy<O>,
        pacer: &dyn TransferPacer,
    ) -> Result<O> {
        let mut pieces = store.get(path).await.map_err(lift)?.into_stream();
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
            if ended || found > copy.len {
                copy.check_end(found)?;
            }
            if !waiting.is_empty() && (ended || waiting.len() >= WRITTEN_BYTES) {
                let bytes = waiting.split().freeze();
                let append = move || copy.append(&mut *target, &bytes).map(|()| (copy, target));
                (copy, target) = blocking(append).await?;
            }
            if ended {
                return Ok(copy.observer);
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

/// State of a copy of an object to this machine.
struct LocalCopy<O> {
    name: String,
    /// Bytes of the object.
    len: u64,
    observer: O,
    /// Bytes that were appended.
    copied: u64,
    /// `true` if the file is synced once it is whole: the disk begins with what is there.
    is_synced_soon: bool,
}

impl<O: TransferObserver> LocalCopy<O> {
    fn new(path: &Path, len: u64, observer: O) -> Self {
        Self { name: path.to_string(), len, observer, copied: 0, is_synced_soon: true }
    }

    /// Refuses an object of another length.
    fn check_end(&self, found: u64) -> Result<()> {
        if found == self.len {
            return Ok(());
        }
        let reason = format!("{found} bytes, the catalog says {}", self.len);
        Err(Error::Corrupt { file: self.name.clone(), offset: found.min(self.len), reason })
    }

    fn append(&mut self, target: &mut dyn DiskFile, bytes: &[u8]) -> Result<()> {
        self.observer.observe(bytes);
        target.append(bytes)?;
        let before = self.copied;
        self.copied += bytes.len() as u64;
        if self.is_synced_soon && before / SYNC_BEGIN_BYTES != self.copied / SYNC_BEGIN_BYTES {
            target.begin_sync();
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
