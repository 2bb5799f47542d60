//! Snapshots that are being restored or deleted: none is both at a time. Repositories of those that are being restored stay registered.

use std::sync::{Arc, Weak};

use millrace_engine::Engine;

use crate::error::{Error, Result};
use crate::service::{Inner, SnapshotKey};

/// Snapshots that are being restored or deleted; none is both. A place may be registered by several names.
#[derive(Debug, Default)]
pub(crate) struct BusySnapshots {
    /// Each restore has an element of its own.
    restoring: Vec<(SnapshotKey, SnapshotPlace)>,
    deleting: Vec<SnapshotPlace>,
}

/// Place of a repository, name of a snapshot.
type SnapshotPlace = (String, String);

impl BusySnapshots {
    /// Returns whether a snapshot of a repository is being restored.
    pub(crate) fn restores_from(&self, repository: &str) -> bool {
        self.restoring.iter().any(|((name, _), _)| name == repository)
    }

    /// Notes a restore, unless its snapshot is being deleted; returns whether it did.
    fn begin_restore(&mut self, key: &SnapshotKey, place: SnapshotPlace) -> bool {
        let is_free = !self.deleting.contains(&place);
        if is_free {
            self.restoring.push((key.clone(), place));
        }
        is_free
    }

    fn end_restore(&mut self, key: &SnapshotKey) {
        if let Some(at) = self.restoring.iter().position(|(restored, _)| restored == key) {
            self.restoring.swap_remove(at);
        }
    }

    /// Notes deletions.
    ///
    /// # Errors
    /// The name of a snapshot that is being restored; then none is noted.
    fn begin_deletion(&mut self, places: &[SnapshotPlace]) -> Result<(), String> {
        let is_restored = |wanted: &&SnapshotPlace| self.restoring.iter().any(|(_, place)| place == *wanted);
        match places.iter().find(is_restored) {
            Some((_, snapshot)) => Err(snapshot.clone()),
            None => {
                self.deleting.extend(places.iter().cloned());
                Ok(())
            }
        }
    }

    /// Deletions run one at a time, so none has these but the one that ends.
    fn end_deletion(&mut self, places: &[SnapshotPlace]) {
        self.deleting.retain(|place| !places.contains(place));
    }
}

/// RAII guard: keeps a snapshot among those that are being restored. It does not keep the store open.
#[derive(Debug)]
pub(crate) struct RestoringGuard {
    inner: Weak<Inner>,
    key: SnapshotKey,
}

impl RestoringGuard {
    /// Begins to restore a snapshot.
    ///
    /// # Errors
    /// [`Error::Concurrent`] for a snapshot that is being deleted.
    pub(crate) async fn begin(inner: &Arc<Inner>, key: SnapshotKey) -> Result<Self> {
        let place = (inner.place(&key.0).await, key.1.clone());
        if inner.busy.lock().begin_restore(&key, place) {
            return Ok(Self { inner: Arc::downgrade(inner), key });
        }
        let reason = "cannot restore a snapshot while a snapshot deletion is in-progress".to_owned();
        Err(Error::Concurrent { repository: key.0, snapshot: key.1, reason })
    }

    /// Returns repository and snapshot.
    pub(crate) fn key(&self) -> &SnapshotKey {
        &self.key
    }
}

impl Drop for RestoringGuard {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        inner.busy.lock().end_restore(&self.key);
    }
}

/// RAII guard: keeps snapshots among those that are being deleted.
#[derive(Debug)]
pub(crate) struct DeletingGuard<'a> {
    inner: &'a Inner,
    places: Vec<SnapshotPlace>,
}

impl<'a> DeletingGuard<'a> {
    /// Begins to delete snapshots.
    ///
    /// # Errors
    /// [`Error::Concurrent`] for one that is being restored, by this name of its repository or another one.
    pub(crate) async fn begin(inner: &'a Inner, repository: &str, snapshots: &[String]) -> Result<Self> {
        let place = inner.place(repository).await;
        let places: Vec<SnapshotPlace> =
            snapshots.iter().map(|snapshot| (place.clone(), snapshot.clone())).collect();
        let begun = inner.busy.lock().begin_deletion(&places);
        begun.map(|()| Self { inner, places }).map_err(|snapshot| Error::Concurrent {
            repository: repository.to_owned(),
            snapshot,
            reason: "cannot delete snapshot during a restore in progress".to_owned(),
        })
    }
}

impl Drop for DeletingGuard<'_> {
    fn drop(&mut self) {
        self.inner.busy.lock().end_deletion(&self.places);
    }
}

/// Refuses files of a restore that would bring the disk to its flood stage.
///
/// # Errors
/// [`Error::Restore`] with both numbers of bytes; the disk's.
pub(crate) async fn check_space(
    engine: &Engine,
    (repository, snapshot): (&str, &str),
    bytes: u64,
) -> Result<()> {
    match engine.space_before_flood_stage().await? {
        Some(space) if space < bytes => Err(Error::Restore {
            repository: repository.to_owned(),
            snapshot: snapshot.to_owned(),
            reason: format!(
                "the files have [{bytes}] bytes, and the disk takes [{space}] bytes before its flood stage"
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(first: &str, second: &str) -> (String, String) {
        (first.to_owned(), second.to_owned())
    }

    #[test]
    fn a_snapshot_is_restored_or_deleted() {
        let mut busy = BusySnapshots::default();
        let (one, two) = (pair("fs:/backups", "one"), pair("fs:/backups", "two"));
        // Two restores by two names of the place.
        let keys = [pair("backup", "one"), pair("again", "one")];
        assert!(keys.iter().all(|key| busy.begin_restore(key, one.clone())));
        assert!(busy.restores_from("again") && !busy.restores_from("other"));
        busy.end_restore(&keys[0]);
        assert_eq!(busy.begin_deletion(&[two.clone(), one.clone()]), Err("one".to_owned()));
        assert!(busy.begin_restore(&pair("backup", "two"), two.clone()), "what is refused is not noted");
        busy.end_restore(&keys[1]);
        busy.end_restore(&pair("backup", "two"));

        assert_eq!(busy.begin_deletion(&[one.clone(), two.clone()]), Ok(()));
        assert!(!busy.begin_restore(&keys[0], one.clone()));
        // A snapshot of that name in another place.
        assert!(busy.begin_restore(&pair("other", "one"), pair("s3:b/", "one")));
        busy.end_deletion(&[one.clone(), two]);
        assert!(busy.begin_restore(&keys[0], one));
    }
}
