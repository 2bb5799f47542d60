//! Deadline of matching.

use std::cell::Cell;
use std::time::Duration;

use millrace_runtime::Instant;

/// The end of the time for one or several matches. The clock starts at the first look at it, so that a match
/// that is found at once costs none.
#[derive(Debug)]
pub struct Deadline {
    time: Duration,
    end: Cell<Option<Instant>>,
}

impl Deadline {
    /// A deadline so long after its first look.
    pub fn within(time: Duration) -> Self {
        Self { time, end: Cell::new(None) }
    }

    /// Returns whether the time is over.
    pub fn is_over(&self) -> bool {
        let now = Instant::now();
        match self.end.get() {
            Some(end) => now >= end,
            None => {
                self.end.set(now.checked_add(self.time));
                self.time.is_zero()
            }
        }
    }
}

/// A second.
impl Default for Deadline {
    fn default() -> Self {
        Self::within(Duration::from_secs(1))
    }
}
