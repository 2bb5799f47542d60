//! `describe index`: the fields of an index.

use crate::ast::IndexSelector;

/// `describe`: a row for each field of the indices.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribeCommand {
    /// At least one index, alias or pattern.
    pub indices: Vec<IndexSelector>,
}
