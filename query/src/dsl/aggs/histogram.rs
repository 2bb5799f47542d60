//! `histogram`: buckets of equal width.

use super::order::BucketOrder;
use super::source::ValuesSource;

/// A `histogram` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Histogram {
    /// What is read.
    pub source: ValuesSource,
    /// Width of a bucket, greater than 0.
    pub interval: f64,
    /// Where boundaries begin, between 0 and `interval`.
    pub offset: f64,
    /// Whether buckets are members of an object.
    pub keyed: bool,
    /// Least documents of a bucket; with 0 (the default) gaps are filled with empty buckets.
    pub min_doc_count: u64,
    /// How buckets are ordered; by key where the request does not say.
    pub order: BucketOrder,
    /// Span that empty buckets fill at least.
    pub extended_bounds: Option<Bounds>,
    /// Span outside of which there are no buckets.
    pub hard_bounds: Option<Bounds>,
}

/// Bounds of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bounds {
    /// Lower bound; open where absent.
    pub min: Option<f64>,
    /// Upper bound; open where absent.
    pub max: Option<f64>,
}
