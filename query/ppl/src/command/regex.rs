//! `regex field = pattern` and `regex field != pattern`: rows that a regular expression matches.

use crate::ast::{FieldName, StringLiteral};

/// `regex`: keeps rows whose text a regular expression matches.
#[derive(Clone, Debug, PartialEq)]
pub struct RegexCommand {
    /// The field.
    pub field: FieldName,
    /// `true` for `!=`.
    pub is_negated: bool,
    /// The regular expression.
    pub pattern: StringLiteral,
}
