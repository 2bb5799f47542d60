//! `expand field [as alias]`: a row for each element of an array.

use crate::ast::FieldName;
use crate::parser::{Parser, Parsing};

/// `expand`: makes a row of each element of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpandCommand {
    /// The field with arrays.
    pub field: FieldName,
    /// The name behind `as`.
    pub alias: Option<FieldName>,
}

impl Parser<'_> {
    pub(crate) fn expand_command(&mut self) -> Parsing<ExpandCommand> {
        Ok(ExpandCommand { field: self.field()?, alias: self.alias()? })
    }
}
