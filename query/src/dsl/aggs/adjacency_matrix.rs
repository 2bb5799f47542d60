//! `adjacency_matrix`: a bucket for each query and for each pair of queries.

use super::filters::NamedFilter;

/// An `adjacency_matrix` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdjacencyMatrix {
    /// The queries, ordered by name.
    pub filters: Vec<NamedFilter>,
    /// What stands between the names of a pair, `&` by default.
    pub separator: String,
}
