//! `replace text with text, … in fields`: other texts for texts.

use crate::ast::{FieldName, StringLiteral};
use crate::parser::{Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn replace_command(&mut self) -> Parsing<ReplaceCommand> {
        let mut pairs = Vec::new();
        loop {
            let start = self.start();
            let pattern = self.string()?;
            self.expect_keyword("with")?;
            pairs.push(ReplacePair { pattern, replacement: self.string()? });
            self.check_count(start, pairs.len())?;
            if !self.symbol(",") {
                break;
            }
        }
        self.expect_keyword("in")?;
        Ok(ReplaceCommand { pairs, fields: self.field_list()? })
    }
}
