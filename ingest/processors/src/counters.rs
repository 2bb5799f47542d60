//! Counters of pipelines and processors, for `_nodes/stats/ingest` and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_runtime::Instant;

/// Counters of a pipeline or of a processor.
#[derive(Debug, Default)]
pub struct PipelineCounters {
    count: AtomicU64,
    failed: AtomicU64,
    current: AtomicU64,
    nanos: AtomicU64,
}

/// Figures of [`PipelineCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineFigures {
    /// Documents.
    pub count: u64,
    /// Documents that failed.
    pub failed: u64,
    /// Documents at work now.
    pub current: u64,
    /// Time of all documents.
    pub time: Duration,
}

/// Measures one document.
#[derive(Debug)]
pub(crate) struct DocumentTimer<'a> {
    counters: &'a PipelineCounters,
    began: Instant,
    failed: bool,
}

impl PipelineCounters {
    pub(crate) fn start(&self) -> DocumentTimer<'_> {
        self.current.fetch_add(1, Ordering::Relaxed);
        // A panic counts as a failure.
        DocumentTimer { counters: self, began: Instant::now(), failed: true }
    }

    /// Returns the figures.
    pub fn figures(&self) -> PipelineFigures {
        PipelineFigures {
            count: self.count.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            current: self.current.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }

    /// Adds a document that was measured elsewhere.
    pub fn add(&self, time: Duration, failed: bool) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
    }
}

impl DocumentTimer<'_> {
    pub(crate) fn finish(mut self, failed: bool) {
        self.failed = failed;
    }
}

impl Drop for DocumentTimer<'_> {
    fn drop(&mut self) {
        self.counters.add(self.began.elapsed(), self.failed);
        self.counters.current.fetch_sub(1, Ordering::Relaxed);
    }
}
