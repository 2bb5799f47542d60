//! `rex field=name [mode=extract|sed] [max_match=n] [offset_field=name] pattern`: parts of a text.

use crate::ast::{FieldName, StringLiteral};
use crate::parser::{Mismatch, Parser, Parsing};

/// `rex`: adds a column for each named group, or edits a text as `sed` does.
#[derive(Clone, Debug, PartialEq)]
pub struct RexCommand {
    /// The field.
    pub field: FieldName,
    /// The regular expression, or the expression of `sed`.
    pub pattern: StringLiteral,
    /// `mode` (default extract).
    pub mode: RexMode,
    /// `max_match`: the most matches (default 1); more than one makes arrays, 0 means the setting's limit.
    pub max_match: u64,
    /// `offset_field`: the column with the positions of groups.
    pub offset_field: Option<FieldName>,
}

/// Operation of `rex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RexMode {
    /// Adds a column for each named group.
    #[default]
    Extract,
    /// Replaces text: `s/…/…/g`, `y/…/…/`.
    Sed,
}

impl Parser<'_> {
    pub(crate) fn rex_command(&mut self) -> Parsing<RexCommand> {
        self.expect_option("field")?;
        let field = self.field()?;
        let (mut mode, mut max_match, mut offset_field) = (RexMode::default(), 1, None);
        let mut pattern = None;
        loop {
            if self.option("max_match") {
                max_match = self.count("max_match")?;
            } else if self.option("mode") {
                let modes = [("extract", RexMode::Extract), ("sed", RexMode::Sed)];
                mode = self.one_of(&modes).ok_or(Mismatch)?;
            } else if self.option("offset_field") {
                offset_field = Some(self.field()?);
            } else if pattern.is_none() {
                pattern = Some(self.string()?);
            } else {
                break;
            }
        }
        let pattern = pattern.ok_or(Mismatch)?;
        Ok(RexCommand { field, pattern, mode, max_match, offset_field })
    }
}
