//! The small trait through which everything durable is written, its real and its simulated form.
//!
//! [`Disk`] has just the operations that crash safety is argued with: append, sync, rename, link,
//! remove, and the sync of a directory. [`SystemDisk`] is the operating system's file system.
//! [`SimulatedDisk`] keeps files in memory and, on a simulated power loss, drops or keeps in part
//! whatever was not synced, so that "what is acknowledged survives" is a test. The write-ahead log
//! (`millrace_engine::wal`) and the local object store (`millrace_segment::objects`) write through it. Files under
//! construction, which no crash needs to keep, are ordinary files until [`Disk::import`] takes them.
//!
//! What a caller may rely on, and no more:
//! - a file's contents are durable up to what was appended before its last successful sync;
//! - a name (created, linked, renamed, removed) is durable once its directory was synced, and only
//!   if the directory's own name is;
//! - a rename replaces its target atomically;
//! - after a failed sync nothing is known about what was appended since the one before.

mod emptied;
mod mapped;
mod replacement;
mod simulated;
mod system;
#[cfg(test)]
mod tests;
mod uncached;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use bytes::Bytes;

pub use emptied::empty_directory;
pub use mapped::MappedPages;
pub use replacement::replace_file;
pub use simulated::SimulatedDisk;
pub use system::SystemDisk;

use crate::{Error, Result};

/// A disk. Paths are absolute or relative to the process, as given. All calls block.
///
/// A missing file is [`Error::Io`] whose source is [`io::ErrorKind::NotFound`]; [`is_not_found`]
/// tells.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Creates a file for appending; an existing one is an error.
    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>>;
    /// Creates a file as [`Disk::create`] does, for large contents that this machine does not read soon. They go past the cache of the
    /// operating system where the file system can, and otherwise to the disk every few megabytes: a sync of another file waits for little.
    fn create_uncached(&self, path: &Path) -> Result<Box<dyn DiskFile>> {
        self.create(path)
    }
    /// Reads a whole file.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    /// Reads ranges of a file, opening it once. A range that ends beyond the file is an error.
    fn read_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;
    /// Reads `len` bytes at `offset`; fewer there are an error.
    fn read_range(&self, path: &Path, offset: u64, len: usize) -> Result<Bytes> {
        let end = offset.saturating_add(len as u64);
        Ok(self.read_ranges(path, std::slice::from_ref(&(offset..end)))?.pop().unwrap_or_default())
    }
    /// Opens an immutable file as memory: mapped where the disk can, a copy otherwise. The file may
    /// be removed meanwhile, but must not be cut or written to.
    fn open_mapped(&self, path: &Path) -> Result<Bytes>;
    /// Opens a file as [`Disk::open_mapped`] does, with a handle that releases its resident pages.
    fn open_mapped_pages(&self, path: &Path) -> Result<(Bytes, MappedPages)> {
        Ok((self.open_mapped(path)?, MappedPages::default()))
    }
    /// Tells a file's or directory's length, kind and age.
    fn metadata(&self, path: &Path) -> Result<Metadata>;
    /// Tells a file's length.
    fn len(&self, path: &Path) -> Result<u64> {
        Ok(self.metadata(path)?.len)
    }
    /// Lists the names in a directory in ascending order; a missing directory is empty.
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>>;
    /// Cuts a file to `len` bytes and syncs it.
    fn truncate(&self, path: &Path, len: u64) -> Result<()>;
    /// Makes durable what any process has written to a file.
    fn sync_file(&self, path: &Path) -> Result<()>;
    /// Renames within a file system, replacing an existing target.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Moves a finished file of the local file system, a *scratch file* that was not written through
    /// this trait, to the new name `to`, and makes its contents durable. The name is not synced.
    fn import(&self, scratch: &Path, to: &Path) -> Result<()>;
    /// Gives a file a second name; an existing target is an error.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes the new file `to` with the contents of `from`, which share their blocks until one of them is written to; not synced. Returns
    /// `false` where the file system cannot; then there is no new file.
    fn reflink(&self, from: &Path, to: &Path) -> Result<bool> {
        let _ = (from, to);
        Ok(false)
    }
    /// Removes a file; a missing one is no error.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes a directory if it is empty, and tells whether it is gone.
    fn remove_dir(&self, dir: &Path) -> Result<bool>;
    /// Creates a directory in an existing one, not synced, and tells whether it was missing.
    fn create_dir(&self, dir: &Path) -> Result<bool>;
    /// Creates a directory and its parents, and syncs the name of each into its own parent, also
    /// where it was there: an earlier process may have ended before it did. A parent that this
    /// process may not open is none of its business.
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        let chain: Vec<&Path> = dir.ancestors().filter(|dir| dir.file_name().is_some()).collect();
        for dir in chain.into_iter().rev() {
            let created = self.create_dir(dir)?;
            match self.sync_dir(parent_of(dir)) {
                Err(error) if !created && io_kind(&error) == Some(io::ErrorKind::PermissionDenied) => {}
                other => other?,
            }
        }
        Ok(())
    }
    /// Syncs a directory's entries.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Tells the space of the file system that holds `path`.
    fn space(&self, path: &Path) -> Result<Space>;
    /// Tells the free bytes of the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        Ok(self.space(path)?.free)
    }
    /// Takes the advisory lock that the file `path` stands for (creating the file, and writing this
    /// process's id into it), until the guard is dropped.
    ///
    /// # Errors
    /// [`Error::Locked`] names the directory and the holder's process id.
    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>>;
}

/// A file open for appending.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Appends bytes. After an error, a part of them may have been appended.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes everything appended durable.
    fn sync(&mut self) -> Result<()>;
    /// Has the operating system begin to write what was appended, so that a later sync takes less time. Nothing is durable by it.
    fn begin_sync(&mut self) {}
    /// Cuts the file to `len` bytes, where the next append goes; not synced.
    fn truncate(&mut self, len: u64) -> Result<()>;
}

/// Holds an advisory lock until dropped.
pub trait LockGuard: fmt::Debug + Send + Sync {}

/// Metadata of a name on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes of a file; unspecified for a directory.
    pub len: u64,
    /// `true` if it is a directory.
    pub is_dir: bool,
    /// Time of the last change in milliseconds since the Unix epoch. A simulated disk counts its
    /// operations instead, so everything on it is old.
    pub modified_ms: i64,
}

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that this process may still write.
    pub free: u64,
    /// Size of the file system.
    pub total: u64,
}

/// Returns whether an operation failed because its file does not exist.
pub fn is_not_found(error: &Error) -> bool {
    io_kind(error) == Some(io::ErrorKind::NotFound)
}

/// Returns whether an operation failed because its file exists already.
pub fn is_already_exists(error: &Error) -> bool {
    io_kind(error) == Some(io::ErrorKind::AlreadyExists)
}

/// Returns whether an operation failed for want of space or quota: it can succeed later.
pub fn is_full(error: &Error) -> bool {
    matches!(io_kind(error), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    match error {
        Error::Io { source, .. } => Some(source.kind()),
        _ => None,
    }
}

/// Directory part of a path; the current directory where it has none.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}
