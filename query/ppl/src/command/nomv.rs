//! `nomv field`: an array as one text.

use crate::ast::FieldName;
use crate::parser::{Parser, Parsing};

/// `nomv`: makes one text of an array, an element a line.
#[derive(Clone, Debug, PartialEq)]
pub struct NoMvCommand {
    /// The field.
    pub field: FieldName,
}

impl Parser<'_> {
    pub(crate) fn nomv_command(&mut self) -> Parsing<NoMvCommand> {
        Ok(NoMvCommand { field: self.field()? })
    }
}
