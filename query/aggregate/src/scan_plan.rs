//! The rows and columns that a tree of aggregations reads of every segment.
//!
//! Rows are of a [`Scope`]: documents, or the elements of a nested path as one `nested` aggregation reaches them. Columns are listed by
//! scope and index, filters are numbered for the whole tree.

use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_matching::table::statistics::Functions;
use millrace_scoring::node::ResolvedPredicate;

/// Scopes and filters of a tree of aggregations.
#[derive(Debug, Default)]
pub(crate) struct ScanPlan {
    /// Kinds of rows; the first is documents.
    pub scopes: Vec<Scope>,
    /// Filters.
    pub filters: Vec<FilterPlan>,
}

impl ScanPlan {
    /// Lists the columns that are read of a scope in an index.
    pub(crate) fn columns(&self, scope: usize, index: usize) -> &[PathId] {
        self.scopes.get(scope).and_then(|scope| scope.columns.get(index)).map_or(&[], Vec::as_slice)
    }
}

/// A kind of rows.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Nested path; documents where absent.
    pub path: Option<Arc<str>>,
    /// Number of the scope around.
    pub outer: usize,
    /// Number of the nested path in each index that has it.
    pub(super) paths: Vec<Option<PathId>>,
    /// Columns that are read, by index.
    pub(super) columns: Vec<Vec<PathId>>,
}

impl Scope {
    /// Returns the number of the nested path in an index.
    pub(crate) fn nested_in(&self, index: usize) -> Option<PathId> {
        self.paths.get(index).copied().flatten()
    }
}

/// A filter.
#[derive(Debug)]
pub(crate) struct FilterPlan {
    /// Number of the scope whose rows are filtered.
    pub scope: usize,
    /// The predicate of the filter in each index that understands it.
    pub resolved: Vec<Option<ResolvedPredicate>>,
    /// Terms that it expands to, by shard.
    pub functions: Functions,
}
