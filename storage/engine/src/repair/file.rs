//! The catalog's file: written beside the present one, then put in its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_catalog::{Catalog, open_sqlite};
use millrace_runtime::disk::Disk;
use millrace_runtime::{Error, Result};

/// Files of SQLite beside a database's own.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Target of the new catalog.
#[derive(Debug)]
pub(super) struct Target {
    dir: PathBuf,
}

impl Target {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("catalog.sqlite{name}"))
    }

    /// Returns whether there is a catalog with something in it.
    fn exists(&self) -> bool {
        std::fs::metadata(self.path("")).is_ok_and(|metadata| metadata.len() > 0)
    }

    /// Refuses to put a new catalog in the place of one that nobody gave up.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub(super) fn check(&self, replace: bool) -> Result<()> {
        let refuse = |what: String, remedy: &str| Err(Error::Mismatch { what, remedy: remedy.to_owned() });
        if self.exists() && !replace {
            return refuse(
                format!("there is a catalog [{}]", self.path("").display()),
                "start the server on it, or move it aside and make a new one with --replace",
            );
        }
        let aside = self.path(".before-repair");
        if self.exists() && aside.exists() {
            return refuse(
                format!("there is a catalog of an earlier repair [{}]", aside.display()),
                "move it away first",
            );
        }
        Ok(())
    }

    /// Makes the new catalog, under a name of its own.
    pub(super) async fn create(&self) -> Result<Arc<dyn Catalog>> {
        let path = self.path(".repair");
        for name in ["", BESIDE[0], BESIDE[1]] {
            remove(&self.path(&format!(".repair{name}")))?;
        }
        open_sqlite(&path).await
    }

    /// Gives the new catalog its name; returns that of the one before. In between, should this end there, there is no
    /// catalog, and a start is refused.
    pub(super) fn install(&self, disk: &dyn Disk) -> Result<Option<String>> {
        let new = self.path(".repair");
        disk.sync_file(&new)?;
        let mut moved = None;
        for name in [BESIDE[0], BESIDE[1], ""] {
            let (from, to) = (self.path(name), self.path(&format!(".before-repair{name}")));
            if from.exists() {
                disk.rename(&from, &to)?;
                moved = Some(to.display().to_string());
            }
        }
        disk.sync_dir(&self.dir)?;
        disk.rename(&new, &self.path(""))?;
        disk.sync_dir(&self.dir)?;
        Ok(moved)
    }
}

fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", file, error)),
        _ => Ok(()),
    }
}
