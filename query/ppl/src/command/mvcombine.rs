//! `mvcombine field [delim=text]`: one row of rows that differ in a field alone.

use crate::ast::FieldName;

/// `mvcombine`: makes one row of rows that differ in a field alone; the field becomes an array.
#[derive(Clone, Debug, PartialEq)]
pub struct MvCombineCommand {
    /// The field.
    pub field: FieldName,
    /// `delim`: the text between elements where the array is shown as text.
    pub delim: Option<String>,
}
