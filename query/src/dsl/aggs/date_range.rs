//! `date_range`: buckets between dates.

use super::source::ValuesSource;

/// A `date_range` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DateRange {
    /// What is read; its `format` and `time_zone` read bounds and write keys.
    pub source: ValuesSource,
    /// Whether buckets are members of an object.
    pub keyed: bool,
    /// The ranges, in the order of the request. Buckets come ordered by `from`, then `to`.
    pub ranges: Vec<DateRangeItem>,
}

/// One range: `from` belongs to it, `to` does not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DateRangeItem {
    /// Key; made of the bounds where absent.
    pub key: Option<String>,
    /// Lower bound; open where absent.
    pub from: Option<DateBound>,
    /// Upper bound; open where absent.
    pub to: Option<DateBound>,
}

/// A bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DateBound {
    /// A number, which the format reads as its text (milliseconds by default).
    Number(f64),
    /// A text in the format, date math included.
    Text(String),
}
