//! `parse expression pattern`: columns of a text by a regular expression.

use crate::ast::{Expression, StringLiteral};
use crate::parser::{ParseResult, Parser};

/// `parse`: adds a column for each named group of a regular expression.
#[derive(Clone, Debug, PartialEq)]
pub struct ParseCommand {
    /// The text.
    pub source: Expression,
    /// The regular expression.
    pub pattern: StringLiteral,
}

impl Parser<'_> {
    pub(crate) fn parse_command(&mut self) -> ParseResult<ParseCommand> {
        Ok(ParseCommand { source: self.value_expression()?, pattern: self.string()? })
    }
}
