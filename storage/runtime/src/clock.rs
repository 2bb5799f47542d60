//! Time: the only module that asks the operating system what time it is.
//!
//! - [`Clock`] is wall-clock time. It is injected; [`ManualClock`] replaces it in tests.
//! - [`Instant`] is monotonic time: deadlines, pauses, durations of work. It is the time of the timers that wait for such a
//!   deadline, so that a test which pauses the runtime's time moves deadlines and timers together. Outside of tests a read
//!   costs what a read of the operating system's monotonic clock costs.
//!
//! Clippy refuses the standard library's readings of either.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use tokio::time::Instant;

/// Source of wall-clock time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Reads the wall clock, in milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
}

/// Shared handle to a clock.
pub type SharedClock = Arc<dyn Clock>;

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that may")]
    fn now_ms(&self) -> i64 {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A clock that moves only when told to, for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Creates a clock that shows `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Moves the clock forward.
    pub fn advance_ms(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Instant;

    #[tokio::test(start_paused = true)]
    async fn paused_time_moves_deadlines_and_timers_together() {
        let began = Instant::now();
        let deadline = began + Duration::from_secs(3_600);
        tokio::time::sleep_until(deadline).await;
        assert!(Instant::now() >= deadline);
        assert_eq!(began.elapsed().as_secs(), 3_600);
    }
}
