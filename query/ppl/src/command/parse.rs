//! `parse expression pattern`: columns of a text by a regular expression.

use crate::ast::{Expression, StringLiteral};
use crate::parser::{Parser, Parsing};

/// `parse`: adds a column for each named group of a regular expression.
#[derive(Clone, Debug, PartialEq)]
pub struct ParseCommand {
    /// The text.
    pub source: Expression,
    /// The regular expression.
    pub pattern: StringLiteral,
}

impl Parser<'_> {
    pub(crate) fn parse_command(&mut self) -> Parsing<ParseCommand> {
        Ok(ParseCommand { source: self.value_expression()?, pattern: self.string()? })
    }
}
