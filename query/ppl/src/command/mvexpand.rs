//! `mvexpand field [limit=n]`: a row for each element of an array.

use crate::ast::FieldName;

/// `mvexpand`: makes a row of each element of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct MvExpandCommand {
    /// The field with arrays.
    pub field: FieldName,
    /// `limit`: the most elements of each row.
    pub limit: Option<u64>,
}
