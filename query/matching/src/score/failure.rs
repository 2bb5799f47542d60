//! Errors of rows: what is driven row by row returns none, so that they wait for the end of a pass.

use std::fmt;
use std::sync::Arc;

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

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failure")
    }
}
