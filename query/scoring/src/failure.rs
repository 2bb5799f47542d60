//! Errors of rows: a row-driven iterator returns none, so that they wait for the end of a pass.

use std::fmt;
use std::sync::Arc;

use millrace_work::QueryContext;
use millrace_work::error::Error;
use parking_lot::Mutex;

/// An error that waits for the end of a pass.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    /// Takes the error.
    pub fn take(&self) -> Option<Error> {
        self.0.lock().take()
    }

    /// Keeps an error, if it is the first.
    pub(super) fn put(&self, error: Error) {
        self.0.lock().get_or_insert(error);
    }
}

/// Steps between two looks at the stop.
const STEPS: u32 = 1 << 10;

/// Looks at the stop of some work while a pass finds nothing to return.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    work: &'a QueryContext,
    failure: &'a Failure,
    steps: u32,
    ended: bool,
}

impl<'a> Watch<'a> {
    /// Starts the first steps; `failure` is given the error that ends the pass.
    pub(super) fn new(work: &'a QueryContext, failure: &'a Failure) -> Self {
        Self { work, failure, steps: 0, ended: false }
    }

    /// Takes a step; returns whether the pass goes on.
    #[inline]
    pub(super) fn goes_on(&mut self) -> bool {
        self.steps += 1;
        if self.steps == STEPS {
            self.steps = 0;
            if let Err(error) = self.work.check() {
                self.failure.put(error);
                self.ended = true;
            }
        }
        !self.ended
    }

    /// Returns whether the pass has ended before its last row.
    #[inline]
    pub(super) fn ended(&self) -> bool {
        self.ended
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failure")
    }
}

#[cfg(test)]
mod tests {
    use crate::failure::*;

    #[test]
    fn a_pass_ends_once_its_work_should() {
        let (work, failure) = (QueryContext::default(), Failure::default());
        let mut watch = Watch::new(&work, &failure);
        assert!((0..2 * STEPS).all(|_| watch.goes_on()));
        drop(work.until_dropped());
        assert!(!(0..STEPS).all(|_| watch.goes_on()) && watch.ended());
        assert!(matches!(failure.take(), Some(Error::TimedOut)));
    }
}
