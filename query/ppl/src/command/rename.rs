//! `rename old as new, …`: other names for columns.

use crate::ast::FieldPattern;
use crate::parser::{Parser, Parsing};

/// `rename`: gives columns other names. The text of each `*` goes to the `*` of the same number.
#[derive(Clone, Debug, PartialEq)]
pub struct RenameCommand {
    /// At least one pair of an old and a new name.
    pub renamings: Vec<Renaming>,
}

/// An old and a new name.
#[derive(Clone, Debug, PartialEq)]
pub struct Renaming {
    /// The column, or a pattern.
    pub from: FieldPattern,
    /// The new name, with as many `*`.
    pub to: FieldPattern,
}

impl Parser<'_> {
    pub(crate) fn rename_command(&mut self) -> Parsing<RenameCommand> {
        let mut renamings = Vec::new();
        loop {
            let start = self.start();
            let from = self.field_pattern()?;
            self.expect_keyword("as")?;
            let to = self.field_pattern()?;
            renamings.push(Renaming { from, to });
            self.check_count(start, renamings.len())?;
            let has_comma = self.symbol(",");
            if !has_comma && !self.peek_pattern() {
                return Ok(RenameCommand { renamings });
            }
        }
    }
}
