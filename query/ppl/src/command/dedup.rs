//! `dedup [n] fields [keepempty=bool] [consecutive=bool]`: the first rows of each combination of values.

use crate::ast::FieldName;

/// `dedup`: keeps the first rows of each combination of values.
#[derive(Clone, Debug, PartialEq)]
pub struct DedupCommand {
    /// The rows of a combination that stay (default 1).
    pub count: u64,
    /// At least one field.
    pub fields: Vec<FieldName>,
    /// `keepempty`: whether rows that miss a field stay (default false).
    pub keepempty: bool,
    /// `consecutive`: whether only neighbours count as equal (default false).
    pub consecutive: bool,
}
