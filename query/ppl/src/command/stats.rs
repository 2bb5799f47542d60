//! `stats [options] aggregate, … [by keys]`: aggregates of groups.

use crate::ast::{AggregateCall, Grouping};

/// `stats`: aggregates of groups, a row for each.
#[derive(Clone, Debug, PartialEq)]
pub struct StatsCommand {
    /// At least one aggregate.
    pub aggregates: Vec<AggregateCall>,
    /// The keys behind `by`.
    pub by: Option<Grouping>,
    /// `bucket_nullable`: whether rows without a key form a group; `None` takes the setting.
    pub bucket_nullable: Option<bool>,
    /// `partitions`, which changes no answer.
    pub partitions: Option<u64>,
    /// `allnum`: read and not used, as in OpenSearch.
    pub allnum: Option<bool>,
    /// `delim`: read and not used, as in OpenSearch.
    pub delim: Option<String>,
    /// `dedup_splitvalues`: read and not used, as in OpenSearch.
    pub dedup_splitvalues: Option<bool>,
}
