//! Snapshots that are being restored: none of them is deleted meanwhile, and their repositories stay registered.

use std::sync::{Arc, Weak};

use millrace_engine::Engine;

use crate::error::{Error, Result};
use crate::service::{Inner, SnapshotKey};

/// RAII guard: keeps a snapshot among those that are being restored. It does not keep the store open.
#[derive(Debug)]
pub(crate) struct RestoringGuard {
    inner: Weak<Inner>,
    key: SnapshotKey,
}

impl RestoringGuard {
    pub(crate) fn new(inner: &Arc<Inner>, key: SnapshotKey) -> Self {
        inner.restoring.lock().push(key.clone());
        Self { inner: Arc::downgrade(inner), key }
    }

    /// Returns repository and snapshot.
    pub(crate) fn key(&self) -> &SnapshotKey {
        &self.key
    }
}

impl Drop for RestoringGuard {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        let mut restoring = inner.restoring.lock();
        // Each restore of a snapshot has an element of its own.
        if let Some(at) = restoring.iter().position(|key| *key == self.key) {
            restoring.swap_remove(at);
        }
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
