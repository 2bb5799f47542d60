//! `terms`: a bucket for each value.

use super::include::IncludeExclude;
use super::order::BucketOrder;
use super::source::ValuesSource;

/// A `terms` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Terms {
    /// What is read.
    pub source: ValuesSource,
    /// How buckets are ordered; by count, greatest first, where the request does not say.
    pub order: BucketOrder,
    /// Which terms make buckets.
    pub include: IncludeExclude,
    /// How many buckets there are, and with how many documents.
    pub thresholds: Thresholds,
    /// Whether each bucket shows `doc_count_error_upper_bound`, here always 0.
    pub show_error: bool,
    /// `collect_mode`; both give the same answer.
    pub collect_mode: Option<CollectMode>,
}

/// How many buckets are shown, and with how many documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Most buckets.
    pub size: usize,
    /// Most buckets of a shard as the request has it; at least `size`. `None` where absent. Counts here are exact without it.
    pub shard_size: Option<usize>,
    /// Least documents of a bucket. 0 shows terms of the index without a matching document too.
    pub min_doc_count: u64,
    /// Least documents of a bucket on a shard.
    pub shard_min_doc_count: u64,
}

/// `collect_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum CollectMode {
    DepthFirst,
    BreadthFirst,
}
