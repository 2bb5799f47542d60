//! `order`: how buckets are ordered.

/// The order of buckets: criteria, the first that tells two apart decides. Never empty; the last is always
/// by key, so that ties are broken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BucketOrder(pub Vec<PathOrder>);

/// One criterion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathOrder {
    /// What is compared.
    pub by: OrderBy,
    /// Whether less comes first.
    pub ascending: bool,
}

/// What a criterion compares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OrderBy {
    /// The key (`_key`, `_term`, `_time`).
    Key,
    /// The number of documents.
    Count,
    /// A sub-aggregation's value.
    Path {
        /// Names of sub-aggregations, outermost first: all but the last are single-bucket ones.
        names: Vec<String>,
        /// Which value of the last one: `avg` of `stats.avg`, `95` of `p[95]` or `p.95`; `value` of a
        /// metric and `doc_count` of a bucket where absent.
        property: Option<String>,
    },
}
