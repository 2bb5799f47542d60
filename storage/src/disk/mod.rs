//! The small trait through which log and segment files are written, its real and its simulated form.
// CONTRACT STUB (owner: durability)
use std::fmt;
use std::path::{Path, PathBuf};

use crate::Result;

/// A disk. Paths are absolute or relative to the process, as given. All calls block.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Creates a file for appending; an existing one is an error.
    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>>;
    /// Reads a whole file.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    /// Lists the names in a directory; a missing directory is empty.
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>>;
    /// Cuts a file to `len` bytes and syncs it.
    fn truncate(&self, path: &Path, len: u64) -> Result<()>;
    /// Renames within a directory tree.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file; a missing one is no error.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Creates a directory and its parents, each synced into its own parent.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;
    /// Syncs a directory's entries.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Tells the free bytes of the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
}

/// A file open for appending.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Appends bytes.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes everything appended durable.
    fn sync(&mut self) -> Result<()>;
}
