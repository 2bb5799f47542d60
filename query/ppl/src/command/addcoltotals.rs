//! `addcoltotals [fields] [label=text] [labelfield=text]`: a row with the totals of columns.

use crate::ast::FieldName;

/// `addcoltotals`: adds a last row with the total of each column.
#[derive(Clone, Debug, PartialEq)]
pub struct AddColTotalsCommand {
    /// The fields to add up; empty means all that are numbers.
    pub fields: Vec<FieldName>,
    /// `label`: the text in the row of totals (default `Total`).
    pub label: String,
    /// `labelfield`: the column of that text.
    pub labelfield: Option<String>,
}
