//! `date_histogram`: buckets of equal spans of time, or of calendar units.

use serde_json::Value;

use super::interval::Interval;
use super::order::BucketOrder;
use super::source::ValuesSource;

/// A `date_histogram` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DateHistogram {
    /// What is read; its `time_zone` is that of rounding and keys.
    pub source: ValuesSource,
    /// The interval.
    pub interval: Interval,
    /// Milliseconds added to every boundary.
    pub offset_ms: i64,
    /// Whether buckets are members of an object.
    pub keyed: bool,
    /// Least documents of a bucket; with 0 (the default) gaps are filled with empty buckets.
    pub min_doc_count: u64,
    /// How buckets are ordered; by key where the request does not say.
    pub order: BucketOrder,
    /// Span that empty buckets fill at least.
    pub extended_bounds: Option<DateBounds>,
    /// Span outside of which there are no buckets.
    pub hard_bounds: Option<DateBounds>,
}

/// Bounds: numbers (milliseconds) or texts in the field's or the aggregation's format, date math included.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DateBounds {
    /// Lower bound; open where absent.
    pub min: Option<Value>,
    /// Upper bound; open where absent.
    pub max: Option<Value>,
}
