//! Temporary files of a merge.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_runtime::{CancelSignal, Error, Result};

use super::Section;

/// Distinguishes the files of merges that run at the same time in one directory.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes temporary files in a directory. A file loses its name as soon as it is open, so nothing of
/// a merge is left behind, whatever ends it.
pub(in crate::bundle) struct Scratch<'a> {
    directory: &'a Path,
    /// Ends the merge early.
    cancel: &'a CancelSignal,
}

impl<'a> Scratch<'a> {
    pub(in crate::bundle) fn new(directory: &'a Path, cancel: &'a CancelSignal) -> Self {
        Self { directory, cancel }
    }

    /// Refuses to go on once nobody waits for the merge.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        self.cancel.check()
    }

    pub(super) fn section(&self, name: &str) -> Result<Section> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("merge-{}-{number}.{name}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(|error| Error::io("create", &path, error))?;
        fs::remove_file(&path).map_err(|error| Error::io("unlink", &path, error))?;
        Ok(Section { file, len: 0 })
    }

    pub(super) fn error(&self, error: io::Error) -> Error {
        Error::io("write scratch file in", self.directory, error)
    }
}
