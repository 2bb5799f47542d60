//! Figures of snapshots and restores since the start of the process.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Figures of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFigures {
    /// Snapshots that are being made, or wait for another one.
    pub running: u64,
    /// Creations that have ended.
    pub snapshots: OutcomeCounts,
    /// Restores that have ended.
    pub restores: OutcomeCounts,
    /// Bytes of the files that creations have written to repositories.
    pub uploaded_bytes: u64,
    /// Time of the end of the last whole snapshot, in milliseconds since the epoch.
    pub last_success_ms: Option<i64>,
}

/// Numbers of operations by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Operations with all that was requested.
    pub success: u64,
    /// Operations with a part of it.
    pub partial: u64,
    /// Operations that came to nothing.
    pub failure: u64,
}

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationOutcome {
    Success,
    Partial,
    Failure,
}

/// Counts operations by outcome.
#[derive(Debug, Default)]
pub(crate) struct OutcomeCounter([AtomicU64; 3]);

impl OutcomeCounter {
    pub(crate) fn add(&self, outcome: OperationOutcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> OutcomeCounts {
        let [success, partial, failure] = [0, 1, 2].map(|at: usize| self.0[at].load(Ordering::Relaxed));
        OutcomeCounts { success, partial, failure }
    }
}

/// Counters of a service.
#[derive(Debug, Default)]
pub(crate) struct OperationCounters {
    pub(crate) snapshots: OutcomeCounter,
    pub(crate) restores: OutcomeCounter,
    uploaded_bytes: AtomicU64,
    /// 0 before the first one.
    last_success_ms: AtomicI64,
}

impl OperationCounters {
    pub(crate) fn add_uploaded(&self, bytes: u64) {
        self.uploaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_success(&self, ended_ms: i64) {
        self.last_success_ms.store(ended_ms, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, running: u64) -> SnapshotFigures {
        let last_success_ms = self.last_success_ms.load(Ordering::Relaxed);
        SnapshotFigures {
            running,
            snapshots: self.snapshots.read(),
            restores: self.restores.read(),
            uploaded_bytes: self.uploaded_bytes.load(Ordering::Relaxed),
            last_success_ms: (last_success_ms > 0).then_some(last_success_ms),
        }
    }
}
