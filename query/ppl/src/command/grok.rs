//! `grok expression pattern`: columns of a text by a grok pattern.

use crate::ast::{Expression, StringLiteral};

/// `grok`: adds a column for each name of a grok pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct GrokCommand {
    /// The text.
    pub source: Expression,
    /// The pattern.
    pub pattern: StringLiteral,
}
