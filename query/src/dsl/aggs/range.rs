//! `range`: buckets between numbers.

use super::source::ValuesSource;

/// A `range` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    /// What is read.
    pub source: ValuesSource,
    /// Whether buckets are members of an object.
    pub keyed: bool,
    /// The ranges, in the order of the request. Buckets come ordered by `from`, then `to`.
    pub ranges: Vec<NumericRange>,
}

/// One range: `from` belongs to it, `to` does not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NumericRange {
    /// Key; made of the bounds where absent.
    pub key: Option<String>,
    /// Lower bound; open where absent.
    pub from: Option<f64>,
    /// Upper bound; open where absent.
    pub to: Option<f64>,
}
