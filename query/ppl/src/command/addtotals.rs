//! `addtotals [fields] [row=bool] [col=bool] [fieldname=text] [label=text] [labelfield=text]`: totals of rows and of columns.

use crate::ast::FieldName;
use crate::parser::{Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn addtotals_command(&mut self) -> Parsing<AddTotalsCommand> {
        let mut command = AddTotalsCommand {
            fields: Vec::new(),
            row: true,
            col: false,
            fieldname: "Total".to_owned(),
            label: "Total".to_owned(),
            labelfield: None,
        };
        loop {
            if self.option("row") {
                command.row = self.boolean()?;
            } else if self.option("col") {
                command.col = self.boolean()?;
            } else if self.option("fieldname") {
                command.fieldname = self.string()?.value;
            } else if self.option("labelfield") {
                command.labelfield = Some(self.string()?.value);
            } else if self.option("label") {
                command.label = self.string()?.value;
            } else if self.peek_field() && command.fields.is_empty() {
                command.fields = self.field_list()?;
            } else {
                return Ok(command);
            }
        }
    }
}
