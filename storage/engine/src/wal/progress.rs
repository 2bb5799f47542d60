//! Progress of reading the log at the start, for tasks that wait for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the log that there are, and those that have been replayed. Read while the store is being opened.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    total: AtomicU64,
    replayed: AtomicU64,
}

impl ReplayProgress {
    /// Returns the bytes that have been replayed and those of the whole log, which are 0 before it was found.
    pub fn bytes(&self) -> (u64, u64) {
        (self.replayed.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(super) fn found(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn replayed(&self, bytes: u64) {
        self.replayed.fetch_add(bytes, Ordering::Relaxed);
    }
}
