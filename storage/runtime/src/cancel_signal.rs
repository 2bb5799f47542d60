//! [`CancelSignal`]: tells blocking work on compute threads that no caller waits for it any more.
//!
//! The work asks [`CancelSignal::check`] between its steps, a few milliseconds apart at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// State of a signal that was given.
const CANCELLED: u64 = 0;
/// State of one that was not.
const RUNNING: u64 = u64::MAX;

/// Signal that ends blocking work early. Clones are the same signal.
#[derive(Clone, Debug)]
pub struct CancelSignal(Arc<AtomicU64>);

impl Default for CancelSignal {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(RUNNING)))
    }
}

impl CancelSignal {
    /// Makes a signal that is given after so many checks, for tests of how often work checks.
    #[cfg(any(test, feature = "testing"))]
    pub fn after_checks(checks: u64) -> Self {
        Self(Arc::new(AtomicU64::new(checks)))
    }

    /// Ends the work at its next check.
    pub fn cancel(&self) {
        self.0.store(CANCELLED, Ordering::Relaxed);
    }

    /// Refuses to go on once the signal is given.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            RUNNING => Ok(()),
            CANCELLED => Err(Error::Cancelled),
            _ => {
                let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_at_the_check_behind_the_signal() {
        let signal = CancelSignal::default();
        assert!(signal.check().is_ok());
        signal.clone().cancel();
        assert!(matches!(signal.check(), Err(Error::Cancelled)));
        let counted = CancelSignal::after_checks(2);
        let checks: Vec<bool> = (0..4).map(|_| counted.check().is_ok()).collect();
        assert_eq!(checks, [true, true, false, false]);
    }
}
