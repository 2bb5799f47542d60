//! `auto_date_histogram`: about so many buckets, of the least interval that gives no more.

use super::source::ValuesSource;

/// An `auto_date_histogram` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AutoDateHistogram {
    /// What is read.
    pub source: ValuesSource,
    /// Most buckets, 10 by default.
    pub buckets: usize,
    /// Least interval.
    pub minimum_interval: Option<MinimumInterval>,
}

/// Values of `minimum_interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub(crate) enum MinimumInterval {
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Year,
}
