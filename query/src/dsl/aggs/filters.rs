//! `filters`: a bucket for each query.

use std::sync::Arc;

use crate::dsl::query::Query;

/// A `filters` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filters {
    /// The queries; named ones ordered by name.
    pub filters: Vec<NamedFilter>,
    /// Whether they have names (and buckets are members of an object).
    pub keyed: bool,
    /// Key of the bucket of documents that no query matches; no such bucket where absent.
    pub other: Option<String>,
}

/// One query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedFilter {
    /// Key of the bucket; the number where the queries have no names.
    pub key: String,
    /// The query.
    pub query: Arc<Query>,
}
