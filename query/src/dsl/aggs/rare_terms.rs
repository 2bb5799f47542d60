//! `rare_terms`: values that few documents have, rarest first.

use super::include::IncludeExclude;
use super::source::ValuesSource;

/// A `rare_terms` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RareTerms {
    /// What is read.
    pub source: ValuesSource,
    /// Which terms make buckets.
    pub include: IncludeExclude,
    /// Most documents of a bucket, 1 to 100.
    pub max_doc_count: u64,
    /// Accuracy that OpenSearch would give its filter. Counts here are exact.
    pub precision: f64,
}
