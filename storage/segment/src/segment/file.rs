//! Sources of the bytes of a stored segment: a memory map of the local store, or verified blocks of a remote object behind a
//! bounded cache.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use bytes::buf::Reader;
use bytes::{Buf, Bytes, BytesMut};
use lru::LruCache;
use millrace_runtime::{Error, Result, wait_for_network};
use object_store::path::Path;
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::checked::{BLOCK_BYTES, CheckedBytes, Verifier};
use crate::objects::Objects;

/// Blocks of remote Parquet files kept in memory: 64 MiB.
const CACHED_BLOCKS: NonZeroUsize = NonZeroUsize::new((64 << 20) / BLOCK_BYTES).expect("not zero");

/// Recently read blocks of remote files, least recently used out first.
#[derive(Debug)]
pub struct BlockCache(Mutex<LruCache<(Uuid, usize), Bytes>>);

impl Default for BlockCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(CACHED_BLOCKS)))
    }
}

/// A Parquet file as the reader sees it. Reading blocks, so it happens on compute threads only.
#[derive(Clone, Debug)]
pub(crate) enum DataFile {
    /// The whole file at hand.
    Whole(CheckedBytes),
    /// An object fetched by ranges.
    Remote(Arc<Remote>),
}

/// An object of a remote store.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) segment: Uuid,
    pub(crate) path: Path,
    pub(crate) bytes: u64,
    pub(crate) verifier: Verifier,
    pub(crate) objects: Arc<Objects>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) runtime: Handle,
}

impl Remote {
    fn block_range(&self, block: usize) -> Range<u64> {
        let start = (block * BLOCK_BYTES) as u64;
        start..(start + BLOCK_BYTES as u64).min(self.bytes)
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let start = usize::try_from(range.start).unwrap_or(usize::MAX);
        let end = usize::try_from(range.end).unwrap_or(usize::MAX);
        let blocks = Verifier::blocks(&(start..end));
        let mut found: Vec<Option<Bytes>> = {
            let mut cache = self.cache.0.lock();
            blocks.clone().map(|block| cache.get(&(self.segment, block)).cloned()).collect()
        };
        // One request spans the first to the last missing block.
        let first = found.iter().position(Option::is_none);
        let last = found.iter().rposition(Option::is_none);
        if let (Some(first), Some(last)) = (first, last) {
            let from = self.block_range(blocks.start + first).start;
            let to = self.block_range(blocks.start + last).end;
            let read = self.objects.get_range(&self.path, from..to);
            let bytes = wait_for_network(|| millrace_runtime::sync::block_on(&self.runtime, read))??;
            let mut cache = self.cache.0.lock();
            for (i, place) in found.iter_mut().enumerate().take(last + 1).skip(first) {
                let block = blocks.start + i;
                let at = self.block_range(block);
                let local = usize::try_from(at.start - from).unwrap_or(0)
                    ..usize::try_from(at.end - from).unwrap_or(0);
                let piece = Bytes::copy_from_slice(bytes.get(local).unwrap_or_default());
                self.verifier.verify_block(block, &piece)?;
                cache.put((self.segment, block), piece.clone());
                *place = Some(piece);
            }
        }
        let mut out = BytesMut::with_capacity(end - start);
        for (i, piece) in found.into_iter().flatten().enumerate() {
            let base = (blocks.start + i) * BLOCK_BYTES;
            let from = start.max(base) - base;
            let to = (end.min(base + BLOCK_BYTES) - base).min(piece.len());
            out.extend_from_slice(&piece[from..to]);
        }
        Ok(out.freeze())
    }
}

impl DataFile {
    fn read(&self, start: u64, length: u64) -> Result<Bytes> {
        let end = start.saturating_add(length);
        if end > self.len() {
            return Err(Error::Corrupt {
                file: self.name(),
                offset: end,
                reason: format!("read past the end, the file has {} bytes", self.len()),
            });
        }
        match self {
            Self::Whole(bytes) => {
                let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
                bytes.slice(at(start)..at(end))
            }
            Self::Remote(remote) => remote.read(start..end),
        }
    }

    /// Reads a range for what comes of verifying it; what is beyond the end was cut.
    pub(super) fn read_again(&self, range: Range<usize>) -> Result<()> {
        self.read(range.start as u64, range.len() as u64).map(drop)
    }

    /// Name of the file, for messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Whole(bytes) => bytes.name().to_string(),
            Self::Remote(remote) => remote.verifier.name().to_string(),
        }
    }
}

impl Length for DataFile {
    fn len(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Remote(remote) => remote.bytes,
        }
    }
}

impl ChunkReader for DataFile {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        // The reader asks so for page headers only; a block is plenty.
        let length = (self.len().saturating_sub(start)).min(BLOCK_BYTES as u64);
        Ok(self.read(start, length).map_err(external)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.read(start, length as u64).map_err(external)
    }
}

fn external(error: Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

/// Brings an error of the Parquet reader back to the store's, naming the file.
pub(crate) fn reading(file: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => beneath(file, inner),
        other => Error::Corrupt { file: file.to_owned(), offset: 0, reason: other.to_string() },
    }
}

/// Brings an error from beneath a library back to the store's. What the system refuses, a full disk perhaps where rows
/// are copied, says nothing of the file.
pub(crate) fn beneath(file: &str, error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    use io::ErrorKind::{InvalidData, Other, UnexpectedEof};
    let corrupt = |reason: String| Error::Corrupt { file: file.to_owned(), offset: 0, reason };
    match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => match error.downcast::<io::Error>() {
            Ok(error) if matches!(error.kind(), InvalidData | UnexpectedEof | Other) => {
                corrupt(error.to_string())
            }
            Ok(error) => Error::io("read or copy", file, *error),
            Err(error) => corrupt(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_no_damage() {
        let of = |error: io::Error| reading("data", ParquetError::External(Box::new(error)));
        let full = of(io::ErrorKind::StorageFull.into());
        assert!(millrace_runtime::disk::is_full(&full), "{full}");
        assert!(matches!(of(io::ErrorKind::UnexpectedEof.into()), Error::Corrupt { .. }));
        let own = reading("data", external(Error::Rejected("later".to_owned())));
        assert!(matches!(own, Error::Rejected(_)));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(millrace_runtime::disk::is_full(&ParquetError::from(full).into()));
    }
}
