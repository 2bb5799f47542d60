//! Counters of plugins and pipelines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_runtime::{DurationHistogram, HistogramSnapshot};

/// Counters of a plugin or a pipeline since its start.
#[derive(Debug, Default)]
pub struct Meter {
    events_in: AtomicU64,
    filtered: AtomicU64,
    events_out: AtomicU64,
    /// Times spent on batches of events.
    batches: DurationHistogram,
    failures: AtomicU64,
    waited_nanos: AtomicU64,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Events that came in.
    pub events_in: u64,
    /// Events that went through all filters.
    pub filtered: u64,
    /// Events that went out.
    pub events_out: u64,
    /// Time spent on them.
    pub duration: Duration,
    /// Events that became dead letters here, and failed starts of an input.
    pub failures: u64,
    /// Time that inputs waited for the queue.
    pub waited: Duration,
}

impl Meter {
    pub(crate) fn came_in(&self, events: usize) {
        self.events_in.fetch_add(events as u64, Ordering::Relaxed);
    }

    pub(crate) fn were_filtered(&self, events: usize) {
        self.filtered.fetch_add(events as u64, Ordering::Relaxed);
    }

    pub(crate) fn went_out(&self, events: usize) {
        self.events_out.fetch_add(events as u64, Ordering::Relaxed);
    }

    pub(crate) fn took(&self, time: Duration) {
        self.batches.record(time);
    }

    pub(crate) fn waited(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.waited_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, events: usize) {
        self.failures.fetch_add(events as u64, Ordering::Relaxed);
    }

    /// Reads the counters.
    pub fn figures(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CounterSnapshot {
            events_in: read(&self.events_in),
            filtered: read(&self.filtered),
            events_out: read(&self.events_out),
            duration: self.batches.snapshot().sum,
            failures: read(&self.failures),
            waited: Duration::from_nanos(read(&self.waited_nanos)),
        }
    }

    /// Reads the times spent on batches of events.
    pub fn batch_durations(&self) -> HistogramSnapshot {
        self.batches.snapshot()
    }
}
