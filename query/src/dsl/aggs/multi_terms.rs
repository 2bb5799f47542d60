//! `multi_terms`: a bucket for each combination of values of several fields.

use super::order::BucketOrder;
use super::source::ValuesSource;
use super::terms::{CollectMode, Thresholds};

/// A `multi_terms` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MultiTerms {
    /// What is read: at least two.
    pub terms: Vec<ValuesSource>,
    /// How buckets are ordered.
    pub order: BucketOrder,
    /// How many buckets there are, and with how many documents.
    pub thresholds: Thresholds,
    /// Whether each bucket shows `doc_count_error_upper_bound`.
    pub show_error: bool,
    /// `collect_mode`; both give the same answer.
    pub collect_mode: Option<CollectMode>,
}
