//! `head [n] [from m]`: the first rows.

use crate::parser::{Expectation, Parser, Parsing};

/// `head`: keeps the first rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadCommand {
    /// The number of rows that stay (default 10).
    pub count: u64,
    /// `from`: how many rows are skipped (default 0).
    pub from: u64,
}

impl Parser<'_> {
    pub(crate) fn head_command(&mut self) -> Parsing<HeadCommand> {
        let mut command = HeadCommand { count: 10, from: 0 };
        if self.option("limit") {
            command.count = self.count("limit")?;
        } else {
            self.note(Expectation::Integer);
            if self.peek_digit() || self.peek_symbol("-") {
                command.count = self.count("head")?;
            }
        }
        if self.keyword("from") {
            command.from = self.count("from")?;
        }
        Ok(command)
    }
}
