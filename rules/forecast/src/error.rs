//! The crate's one error type.

use std::sync::atomic::{AtomicBool, Ordering};

/// Result of a forecast.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with a forecast.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is less in the window than the algorithm needs.
    #[error("{algorithm} needs {needed} samples, and the window has {there}: widen it, or wait for more")]
    TooFew {
        /// Name of the algorithm.
        algorithm: &'static str,
        /// Samples that it needs.
        needed: usize,
        /// Samples that there are.
        there: usize,
    },
    /// There is more than the algorithm takes.
    #[error("{what} may be {limit} at most, not {there}")]
    TooMany {
        /// Name of the excess.
        what: &'static str,
        /// Largest number that is allowed.
        limit: usize,
        /// Number that is there.
        there: usize,
    },
    /// A sample or a forecast is no finite number.
    #[error(
        "{what} leaves what numbers can hold: the series is too large, or grows too fast for this algorithm"
    )]
    NotFinite {
        /// Kind of the number.
        what: &'static str,
    },
    /// The window is shorter than two seasons.
    #[error("a seasonality of {season} buckets needs a window of {}, and it has {there}: widen it, or shorten the seasonality", season * 2 + 1)]
    SeasonTooLong {
        /// Buckets of a season.
        season: usize,
        /// Buckets of the window.
        there: usize,
    },
    /// A seasonality is no season.
    #[error("a seasonality is 2 or more buckets, not {season}")]
    SeasonTooShort {
        /// Buckets of a season.
        season: usize,
    },
    /// All samples are gaps.
    #[error("the window has no sample: choose a field that documents have, or widen the window")]
    AllMissing,
    /// No caller waits for the model any more.
    #[error("the training was cancelled")]
    Cancelled,
    /// Stored bytes are no model, or one of another version.
    #[error("the stored model cannot be read: {0}")]
    Corrupt(String),
}

/// Refuses to go on with a training that was cancelled. Trainings ask between steps of some milliseconds.
///
/// # Errors
/// [`Error::Cancelled`].
pub fn check_cancelled(cancelled: &AtomicBool) -> Result<()> {
    if cancelled.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
}
