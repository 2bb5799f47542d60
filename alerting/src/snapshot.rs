//! State of rules on disk: files in the directory `rules` of the data directory, named by the last frame that they have seen.
//!
//! A file is there whole or not at all: written under another name, synced, renamed. The last two are kept, so that one
//! that cannot be read costs no state as long as the log reaches back to the one before; the lease on it does.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use millrace_storage::{Engine, Error, Result};

/// Snapshots that are kept.
const KEPT: usize = 2;
const SUFFIX: &str = ".state";

/// The snapshots of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    dir: PathBuf,
}

/// A snapshot as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The last frame that it has seen.
    pub(crate) position: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Snapshots {
    /// Names the snapshots of an engine.
    pub(crate) fn of(engine: &Engine) -> Self {
        Self { dir: engine.data_dir().join("rules") }
    }

    /// Reads those that there are, the newest first. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(&self) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        for position in self.positions()? {
            let path = self.path(position);
            let bytes = fs::read(&path).map_err(|error| Error::io("read", &path, error))?;
            found.push(Found { position, bytes });
        }
        Ok(found)
    }

    /// Stores one, and removes those that are too many. Returns the first frame that a start may have to read then. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`]; those of before are still there then.
    pub(crate) fn write(&self, position: u64, bytes: &[u8]) -> Result<u64> {
        let failed = |error| Error::io("write", &self.dir, error);
        fs::create_dir_all(&self.dir).map_err(failed)?;
        let (path, new) = (self.path(position), self.dir.join("new"));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync(&self.dir)
        };
        write().map_err(failed)?;
        let positions = self.positions()?;
        for old in positions.iter().skip(KEPT) {
            let old = self.path(*old);
            fs::remove_file(&old).map_err(|error| Error::io("remove", &old, error))?;
        }
        Ok(positions.into_iter().take(KEPT).min().unwrap_or(position) + 1)
    }

    /// Removes all: there are no rules. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove", &self.dir, error))
            }
            _ => Ok(()),
        }
    }

    /// Lists what there is, the newest first.
    fn positions(&self) -> Result<Vec<u64>> {
        let failed = |error| Error::io("list", &self.dir, error);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut positions = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let position = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            positions.extend(position.and_then(|position| position.parse::<u64>().ok()));
        }
        positions.sort_unstable_by(|one, other| other.cmp(one));
        Ok(positions)
    }

    fn path(&self, position: u64) -> PathBuf {
        self.dir.join(format!("{position:020}{SUFFIX}"))
    }
}

/// Makes the names in a directory durable.
fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_are_kept_and_what_was_not_finished_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Snapshots { dir: dir.path().join("rules") };
        assert!(snapshots.read().unwrap().is_empty());
        assert_eq!(snapshots.write(7, b"seven").unwrap(), 8);
        assert_eq!(snapshots.write(9, b"nine").unwrap(), 8);
        assert_eq!(snapshots.write(12, b"twelve").unwrap(), 10);
        fs::write(snapshots.dir.join("new"), b"half").unwrap();
        let found = snapshots.read().unwrap();
        let found: Vec<_> = found.iter().map(|found| (found.position, found.bytes.as_slice())).collect();
        assert_eq!(found, [(12, b"twelve".as_slice()), (9, b"nine".as_slice())]);
        // The same again, as after a change of a rule where nothing has come meanwhile.
        assert_eq!(snapshots.write(12, b"anew").unwrap(), 10);
        assert_eq!(snapshots.read().unwrap().len(), 2);
        snapshots.clear().unwrap();
        assert!(snapshots.read().unwrap().is_empty());
    }
}
