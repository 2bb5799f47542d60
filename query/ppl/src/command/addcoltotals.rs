//! `addcoltotals [fields] [label=text] [labelfield=text]`: a row with the totals of columns.

use crate::ast::FieldName;
use crate::parser::{Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn addcoltotals_command(&mut self) -> Parsing<AddColTotalsCommand> {
        let mut command =
            AddColTotalsCommand { fields: Vec::new(), label: "Total".to_owned(), labelfield: None };
        loop {
            if self.option("labelfield") {
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
