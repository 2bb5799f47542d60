//! Temporary files of a merge.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_runtime::{Error, Result};

use super::Section;

/// Distinguishes the files of merges that run at the same time in one directory.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes temporary files in a directory. A file loses its name as soon as it is open, so nothing of
/// a merge is left behind, whatever ends it.
pub(super) struct Scratch<'a> {
    directory: &'a Path,
}

impl<'a> Scratch<'a> {
    pub(super) fn new(directory: &'a Path) -> Self {
        Self { directory }
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
