//! `tail [n]`: the last rows.

use crate::parser::{Expectation, Parser, Parsing};

/// `tail`: keeps the last rows, the last one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailCommand {
    /// The number of rows that stay (default 10).
    pub count: u64,
}

impl Parser<'_> {
    pub(crate) fn tail_command(&mut self) -> Parsing<TailCommand> {
        self.note(Expectation::Integer);
        let has_count = self.peek_digit() || self.peek_symbol("-");
        Ok(TailCommand { count: if has_count { self.count("tail")? } else { 10 } })
    }
}
