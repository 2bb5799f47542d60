//! `expand field [as alias]`: a row for each element of an array.

use crate::ast::FieldName;

/// `expand`: makes a row of each element of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpandCommand {
    /// The field with arrays.
    pub field: FieldName,
    /// The name behind `as`.
    pub alias: Option<FieldName>,
}
