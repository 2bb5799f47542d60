//! Names of fields and indices.

use super::TextSpan;

/// The name of a field, such as `a.b` or `` `a b` ``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName {
    /// The dotted path, without backticks.
    pub path: String,
    /// The text of the name.
    pub span: TextSpan,
}

/// The name of a field, or a pattern with `*` for any number of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPattern {
    /// The dotted path, without quotes.
    pub pattern: String,
    /// The text of the pattern.
    pub span: TextSpan,
}

impl FieldPattern {
    /// Returns whether the pattern holds a `*`.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.pattern.contains('*')
    }
}

/// One member of the list behind `source=`: an index, an alias, or a pattern such as `logs-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSelector {
    /// The expression, without backticks.
    pub expression: String,
    /// The text of the expression.
    pub span: TextSpan,
}
