//! Counts what searches keep open over shards between requests: scrolls, points in time, cursors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_runtime::SharedClock;

/// Kind of an open context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchContextKind {
    /// A scroll.
    Scroll,
    /// A point in time.
    PointInTime,
    /// A cursor of a statement.
    Cursor,
}

const KINDS: usize = 3;

/// Figures of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextFigures {
    /// Open now.
    pub current: u64,
    /// Closed since start.
    pub total: u64,
    /// Time for which those were open together, in milliseconds.
    pub time_ms: u64,
}

impl ContextFigures {
    /// Adds the figures of another shard.
    pub fn add(&mut self, other: &Self) {
        self.current += other.current;
        self.total += other.total;
        self.time_ms += other.time_ms;
    }
}

/// Counters of a shard, by kind.
#[derive(Debug, Default)]
pub(crate) struct ContextCounters([Counter; KINDS]);

#[derive(Debug, Default)]
struct Counter {
    current: AtomicU64,
    total: AtomicU64,
    time_ms: AtomicU64,
}

impl ContextCounters {
    pub(crate) fn figures(&self, kind: SearchContextKind) -> ContextFigures {
        let Counter { current, total, time_ms } = &self.0[kind as usize];
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ContextFigures { current: read(current), total: read(total), time_ms: read(time_ms) }
    }
}

/// A context that is counted as open over some shards of an index until it is dropped. It pins none of them.
#[derive(Debug)]
pub struct OpenContext {
    kind: SearchContextKind,
    shards: Vec<Arc<ContextCounters>>,
    clock: SharedClock,
    since_ms: i64,
}

impl OpenContext {
    pub(crate) fn new(
        kind: SearchContextKind,
        shards: Vec<Arc<ContextCounters>>,
        clock: SharedClock,
    ) -> Self {
        for shard in &shards {
            shard.0[kind as usize].current.fetch_add(1, Ordering::Relaxed);
        }
        let since_ms = clock.now_ms();
        Self { kind, shards, clock, since_ms }
    }
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        let open_ms = u64::try_from(self.clock.now_ms() - self.since_ms).unwrap_or(0);
        for shard in &self.shards {
            let counter = &shard.0[self.kind as usize];
            counter.current.fetch_sub(1, Ordering::Relaxed);
            counter.total.fetch_add(1, Ordering::Relaxed);
            counter.time_ms.fetch_add(open_ms, Ordering::Relaxed);
        }
    }
}
