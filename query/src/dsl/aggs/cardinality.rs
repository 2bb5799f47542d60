//! `cardinality`: the number of distinct values.

use super::source::ValuesSource;

/// A `cardinality` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cardinality {
    /// What is read.
    pub source: ValuesSource,
    /// Number of values up to which the count is exact at least.
    pub precision_threshold: u64,
}
