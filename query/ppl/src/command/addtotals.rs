//! `addtotals [fields] [row=bool] [col=bool] [fieldname=text] [label=text] [labelfield=text]`: totals of rows and of columns.

use crate::ast::FieldName;

/// `addtotals`: adds a column with the total of each row, a row with the total of each column, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct AddTotalsCommand {
    /// The fields to add up; empty means all that are numbers.
    pub fields: Vec<FieldName>,
    /// `row`: whether each row gets a total (default true).
    pub row: bool,
    /// `col`: whether a row with totals of columns follows (default false).
    pub col: bool,
    /// `fieldname`: the column with totals of rows (default `Total`).
    pub fieldname: String,
    /// `label`: the text in the row of totals (default `Total`).
    pub label: String,
    /// `labelfield`: the column of that text.
    pub labelfield: Option<String>,
}
