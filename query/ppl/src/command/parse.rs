//! `parse expression pattern`: columns of a text by a regular expression.

use crate::ast::{Expression, StringLiteral};

/// `parse`: adds a column for each named group of a regular expression.
#[derive(Clone, Debug, PartialEq)]
pub struct ParseCommand {
    /// The text.
    pub source: Expression,
    /// The regular expression.
    pub pattern: StringLiteral,
}
