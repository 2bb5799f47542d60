//! `grok expression pattern`: columns of a text by a grok pattern.

use crate::ast::{Expression, StringLiteral};
use crate::parser::{Parser, Parsing};

/// `grok`: adds a column for each name of a grok pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct GrokCommand {
    /// The text.
    pub source: Expression,
    /// The pattern.
    pub pattern: StringLiteral,
}

impl Parser<'_> {
    pub(crate) fn grok_command(&mut self) -> Parsing<GrokCommand> {
        Ok(GrokCommand { source: self.value_expression()?, pattern: self.string()? })
    }
}
