//! The crate's one error type.

/// Result of training or scoring.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong while a model is trained, applied or read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The window has less than the detector needs.
    #[error("{detector} needs {needed} {unit}, and the window has {available}: widen it, or wait for more")]
    TooFew {
        /// Name of the detector.
        detector: &'static str,
        /// Unit that is counted.
        unit: &'static str,
        /// Smallest number that is enough.
        needed: usize,
        /// Number that the window has.
        available: usize,
    },
    /// The input is larger than a bound.
    #[error("{subject} may be {limit} at most, not {actual}")]
    TooMany {
        /// Name of the excess.
        subject: &'static str,
        /// Largest number that is allowed.
        limit: usize,
        /// Number of the input.
        actual: usize,
    },
    /// A row has another number of features than its table or model.
    #[error("a row has {actual} features, and {expected} are expected")]
    WrongWidth {
        /// Number of features of the table or model.
        expected: usize,
        /// Number of features of the row.
        actual: usize,
    },
    /// A value is infinite.
    #[error("feature {feature} of a row is infinite: leave the value out, or correct its source")]
    Infinite {
        /// Number of the feature, from 0.
        feature: usize,
    },
    /// All values of a feature, or of the whole window, are missing.
    #[error("{}: choose a field that documents have, or widen the window", match feature {
        Some(feature) => format!("all values of feature {feature} are missing"),
        None => "all values are missing".to_owned(),
    })]
    AllMissing {
        /// Number of the feature, from 0; `None` stands for all of the window.
        feature: Option<usize>,
    },
    /// All values are the same.
    #[error(
        "all values of the window are the same, and teach nothing: choose another field, or a longer window"
    )]
    Constant,
    /// The window is shorter than two seasons.
    #[error("a seasonality of {season} buckets needs a window of {}, and it has {buckets}: widen it, or shorten the seasonality", season * 2)]
    SeasonTooLong {
        /// Buckets of a season.
        season: usize,
        /// Buckets of the window.
        buckets: usize,
    },
    /// A parameter is out of its range.
    #[error("{parameter} is {value}, and {allowed} is allowed")]
    InvalidParameter {
        /// Name of the parameter.
        parameter: &'static str,
        /// Values that are allowed.
        allowed: &'static str,
        /// Value that was given.
        value: String,
    },
    /// A bucket is not behind the latest one.
    #[error("bucket {bucket} is not behind the latest one, {latest}: revise it instead")]
    OutOfOrder {
        /// Number of the bucket.
        bucket: i64,
        /// Number of the latest bucket that the model has.
        latest: i64,
    },
    /// A late bucket is older than the history of the model.
    #[error("bucket {bucket} is older than {oldest}, the oldest one that the model has in its history")]
    Forgotten {
        /// Number of the bucket.
        bucket: i64,
        /// Number of the oldest bucket in the history.
        oldest: i64,
    },
    /// The series models refuse the series.
    #[error(transparent)]
    Forecast(#[from] millrace_forecast::Error),
    /// Stored bytes are a model of another version.
    #[error("the stored model has version {found}, which this version does not read: train it anew")]
    OldVersion {
        /// Version of the stored model.
        found: u16,
    },
    /// Stored bytes are no model.
    #[error("the stored model cannot be read: {0}")]
    Corrupt(String),
}
