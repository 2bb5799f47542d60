//! Counters that the passes of a search share: matches that were counted, and matches that are still allowed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Atomic};

/// Counter of matching rows, shared by the partitions of a scan.
#[derive(Debug)]
pub struct Totals {
    tracked: bool,
    limit: u64,
    matched: AtomicU64,
    cut: AtomicBool,
    waived: AtomicBool,
}

impl Totals {
    /// Makes a counter that stops caring beyond `limit`; `None` does not count at all.
    pub const fn new(limit: Option<u64>) -> Self {
        let (tracked, limit) = match limit {
            Some(limit) => (true, limit),
            None => (false, 0),
        };
        Self {
            tracked,
            limit,
            matched: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            waived: AtomicBool::new(false),
        }
    }

    pub(super) fn add(&self, rows: u64) {
        self.matched.fetch_add(rows, Atomic::Relaxed);
    }

    /// Returns whether more matches would not change what is told.
    pub(super) fn satisfied(&self) -> bool {
        !self.tracked || self.matched.load(Atomic::Relaxed) > self.limit
    }

    /// Returns whether a segment that only adds to the count is still worth visiting.
    pub fn wants_more(&self) -> bool {
        !self.satisfied()
    }

    /// Tells that nobody will read the counter of matches.
    pub fn waive(&self) {
        self.waived.store(true, Atomic::Relaxed);
    }

    /// Returns whether a segment whose rows cannot be among the first is visited for the counter alone.
    pub fn wants_rest(&self) -> bool {
        self.wants_more() && !self.waived.load(Atomic::Relaxed)
    }

    /// Returns whether every match is counted, however many there are.
    pub(super) fn counts_all(&self) -> bool {
        self.tracked && self.limit == u64::MAX
    }

    /// Returns the matches counted, and whether there are more than that.
    pub fn read(&self) -> (u64, bool) {
        let matched = self.matched.load(Atomic::Relaxed);
        if matched > self.limit { (self.limit, true) } else { (matched, self.cut.load(Atomic::Relaxed)) }
    }
}

/// Matches that a shard may still have before it stops (`terminate_after`).
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
    spent: AtomicBool,
}

impl Budget {
    /// Allows `matches`.
    pub fn new(matches: u64) -> Self {
        Self { left: AtomicU64::new(matches), spent: AtomicBool::new(false) }
    }

    /// Takes one of them, if any is left.
    pub(super) fn take(&self) -> bool {
        let took =
            self.left.fetch_update(Atomic::Relaxed, Atomic::Relaxed, |left| left.checked_sub(1)).is_ok();
        if !took {
            self.spent.store(true, Atomic::Relaxed);
        }
        took
    }

    /// Returns whether matches were left out.
    pub fn spent(&self) -> bool {
        self.spent.load(Atomic::Relaxed)
    }
}
