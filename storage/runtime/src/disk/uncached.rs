//! Files that go past the cache of the operating system, as far as the file system can.
//!
//! Whole blocks of aligned memory, such as those of a mapped file, are written directly: nothing is copied, nothing is left for a sync, and
//! no page that somebody reads loses its place. What is left over is written through the cache, and synced every few megabytes.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

use super::DiskFile;
use crate::{Error, Result};

/// Alignment of direct writes: of memory, of offsets and of lengths. No file system asks for more.
const BLOCK_BYTES: usize = 4096;
/// Bytes that wait for a sync at most: a sync of another file may have to wait for them.
const UNSYNCED_BYTES: usize = 16 << 20;

/// A file open for appending past the cache.
#[derive(Debug)]
pub(super) struct UncachedFile {
    file: File,
    path: PathBuf,
    /// `true` for as long as the file takes direct writes: all that was appended are whole blocks.
    is_direct: bool,
    /// Bytes that went through the cache since the last sync.
    unsynced: usize,
}

impl UncachedFile {
    /// Takes a new file over.
    pub(super) fn new(file: File, path: PathBuf) -> Self {
        let is_direct = set_direct(&file, true).is_ok();
        Self { file, path, is_direct, unsynced: 0 }
    }

    /// Writes whole blocks from the begin of `bytes` directly, and counts their bytes. Where the file system refuses, none are written.
    fn append_direct(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_direct || !(bytes.as_ptr() as usize).is_multiple_of(BLOCK_BYTES) {
            return Ok(0);
        }
        let blocks = bytes.len() - bytes.len() % BLOCK_BYTES;
        let mut written = 0;
        // A disk that is nearly full may take a part of a block.
        while written < blocks && written.is_multiple_of(BLOCK_BYTES) {
            match self.file.write(&bytes[written..blocks]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_refusal(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn append_cached(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.is_direct {
            // The end of the file is not at a block's end any more.
            set_direct(&self.file, false)?;
            self.is_direct = false;
        }
        self.file.write_all(bytes)?;
        self.unsynced += bytes.len();
        if self.unsynced >= UNSYNCED_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }
}

impl DiskFile for UncachedFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut append = || {
            let written = self.append_direct(bytes)?;
            self.append_cached(&bytes[written..])
        };
        append().map_err(|error| Error::io("write", &self.path, error))
    }

    fn sync(&mut self) -> Result<()> {
        self.unsynced = 0;
        self.file.sync_data().map_err(|error| Error::io("sync", &self.path, error))
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        let mut cut = || {
            if self.is_direct {
                set_direct(&self.file, false)?;
                self.is_direct = false;
            }
            self.file.set_len(len)?;
            self.file.seek(SeekFrom::Start(len))
        };
        cut().map(drop).map_err(|error| Error::io("truncate", &self.path, error))
    }
}

/// Returns whether a file system that takes the flag says that it has no direct writes, or none of this alignment.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

#[cfg(target_os = "linux")]
fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, is_direct);
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn set_direct(_file: &File, is_direct: bool) -> io::Result<()> {
    if is_direct { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
}
