//! `replace text with text, … in fields`: other texts for texts.

use crate::ast::{FieldName, StringLiteral};

/// `replace`: replaces values of fields. `*` in a pattern stands for any text.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaceCommand {
    /// At least one pair; the pairs are applied in their order.
    pub pairs: Vec<ReplacePair>,
    /// At least one field.
    pub fields: Vec<FieldName>,
}

/// A pattern and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacePair {
    /// The pattern.
    pub pattern: StringLiteral,
    /// The replacement.
    pub replacement: StringLiteral,
}
