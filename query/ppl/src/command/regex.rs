//! `regex field = pattern` and `regex field != pattern`: rows that a regular expression matches.

use crate::ast::{FieldName, StringLiteral};
use crate::parser::{Mismatch, Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn regex_command(&mut self) -> Parsing<RegexCommand> {
        let field = self.field()?;
        let is_negated = self.symbol("!=");
        if !is_negated && !self.symbol("=") {
            return Err(Mismatch);
        }
        Ok(RegexCommand { field, is_negated, pattern: self.string()? })
    }
}
