//! State of rules on disk: files in the directory `rules` of the data directory, named by the last frame that they have seen.
//!
//! A file is there whole or not at all: written under another name, synced, renamed. The last two are kept, so that one
//! that cannot be read costs no state as long as the log reaches back to the one before; the lease on it does.
//!
//! The runner and those who change rules both store state. Who takes it keeps others from that until it is stored, so that what was
//! taken last is what there is, also of one position.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_engine::Engine;
use millrace_runtime::disk::replace_file;
use millrace_runtime::{Error, Result};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::runner::blocking;

/// Snapshots that are kept.
const KEPT: usize = 2;
const SUFFIX: &str = ".state";

/// The snapshots of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    dir: PathBuf,
    storing: Arc<Mutex<()>>,
}

/// Held by who stores state, or removes it: nobody else does meanwhile.
#[derive(Debug)]
pub(crate) struct SnapshotWriteGuard {
    snapshots: Snapshots,
    _alone: OwnedMutexGuard<()>,
}

/// A snapshot as it was found.
#[derive(Debug)]
pub(crate) struct LoadedSnapshot {
    /// The last frame that it has seen.
    pub(crate) position: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Snapshots {
    /// Names the snapshots of an engine.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self::in_dir(engine.data_dir().join("rules"))
    }

    fn in_dir(dir: PathBuf) -> Self {
        Self { dir, storing: Arc::default() }
    }

    /// Waits until nobody else stores state. Who holds the rules may wait for it; who has it does not wait for them.
    pub(crate) async fn storing(&self) -> SnapshotWriteGuard {
        SnapshotWriteGuard { snapshots: self.clone(), _alone: Arc::clone(&self.storing).lock_owned().await }
    }

    /// Removes all, in a task of its own.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) async fn clear(&self) -> Result<()> {
        let storing = self.storing().await;
        blocking(move || storing.clear()).await
    }

    /// Reads those that there are, the newest first. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(&self) -> Result<Vec<LoadedSnapshot>> {
        let mut found = Vec::new();
        for position in self.positions()? {
            let path = self.path(position);
            let bytes = fs::read(&path).map_err(|error| Error::io("read", &path, error))?;
            found.push(LoadedSnapshot { position, bytes });
        }
        Ok(found)
    }

    /// Lists the snapshots, the newest first.
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

impl SnapshotWriteGuard {
    /// Stores one, and removes those that are too many. Returns the first frame that a start may have to read then. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`]; those of before are still there then.
    pub(crate) fn write(self, position: u64, bytes: &[u8]) -> Result<u64> {
        let snapshots = &self.snapshots;
        let dir = &snapshots.dir;
        let failed = |error| Error::io("write", dir, error);
        fs::create_dir_all(dir).map_err(failed)?;
        let (path, new) = (snapshots.path(position), dir.join("new"));
        replace_file(&new, &path, bytes).map_err(failed)?;
        let positions = snapshots.positions()?;
        for old in positions.iter().skip(KEPT) {
            let old = snapshots.path(*old);
            fs::remove_file(&old).map_err(|error| Error::io("remove", &old, error))?;
        }
        Ok(positions.into_iter().take(KEPT).min().unwrap_or(position) + 1)
    }

    /// Removes all: there are no rules. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn clear(self) -> Result<()> {
        let dir = &self.snapshots.dir;
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", dir, error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_two_are_kept_and_what_was_not_finished_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::in_dir(dir.path().join("rules"));
        assert!(snapshots.read().unwrap().is_empty());
        assert_eq!(snapshots.storing().await.write(7, b"seven").unwrap(), 8);
        assert_eq!(snapshots.storing().await.write(9, b"nine").unwrap(), 8);
        assert_eq!(snapshots.storing().await.write(12, b"twelve").unwrap(), 10);
        fs::write(snapshots.dir.join("new"), b"half").unwrap();
        let found = snapshots.read().unwrap();
        let found: Vec<_> = found.iter().map(|found| (found.position, found.bytes.as_slice())).collect();
        assert_eq!(found, [(12, b"twelve".as_slice()), (9, b"nine".as_slice())]);
        // The same again, as after a change of a rule where nothing has come meanwhile.
        assert_eq!(snapshots.storing().await.write(12, b"anew").unwrap(), 10);
        assert_eq!(snapshots.read().unwrap().len(), 2);
        snapshots.storing().await.clear().unwrap();
        assert!(snapshots.read().unwrap().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_takes_state_later_stores_it_later_also_of_the_same_position() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::in_dir(dir.path().join("rules"));
        // As the runner and changes of rules: taken under a lock of their own, and stored behind it.
        let state = Arc::new(Mutex::new(0_u32));
        let mut stored = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (snapshots, state) = (snapshots.clone(), Arc::clone(&state));
            stored.spawn(async move {
                let mut state = state.lock().await;
                let storing = snapshots.storing().await;
                *state += 1;
                let bytes = vec![u8::try_from(*state).unwrap(); 1 << 16];
                drop(state);
                tokio::task::spawn_blocking(move || storing.write(7, &bytes)).await.unwrap()
            });
        }
        assert!(stored.join_all().await.into_iter().all(|stored| stored.unwrap() == 8));
        let found = snapshots.read().unwrap();
        assert_eq!((found.len(), found[0].bytes.as_slice()), (1, [64; 1 << 16].as_slice()));
    }
}
