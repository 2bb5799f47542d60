//! `fields [+|-] field, …` and `table …`: the columns that stay, or that go.

use crate::ast::FieldPattern;
use crate::parser::{Parser, Parsing};

/// `fields` and `table`: chooses columns.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldsCommand {
    /// `true` for `fields - …`: the columns go.
    pub is_exclusion: bool,
    /// At least one name or pattern, in order.
    pub fields: Vec<FieldPattern>,
}

impl Parser<'_> {
    pub(crate) fn fields_command(&mut self) -> Parsing<FieldsCommand> {
        let is_exclusion = self.symbol("-");
        if !is_exclusion {
            self.symbol("+");
        }
        let mut fields = vec![self.field_pattern()?];
        loop {
            let has_comma = self.symbol(",");
            if !has_comma && !self.peek_pattern() {
                return Ok(FieldsCommand { is_exclusion, fields });
            }
            let start = self.start();
            fields.push(self.field_pattern()?);
            self.check_count(start, fields.len())?;
        }
    }
}
