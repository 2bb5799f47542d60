//! `transpose [n] [column_name=text]`: rows as columns.

use crate::parser::{Expectation, Parser, Parsing};

/// `transpose`: turns rows into columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransposeCommand {
    /// The number of rows that become columns (default 5).
    pub count: u64,
    /// `column_name`: the column with the old names (default `column`).
    pub column_name: String,
}

impl Parser<'_> {
    pub(crate) fn transpose_command(&mut self) -> Parsing<TransposeCommand> {
        let mut command = TransposeCommand { count: 5, column_name: "column".to_owned() };
        loop {
            self.note(Expectation::Integer);
            if self.option("column_name") {
                command.column_name = self.string()?.value;
            } else if self.peek_digit() || self.peek_symbol("-") {
                command.count = self.count("transpose")?;
            } else {
                return Ok(command);
            }
        }
    }
}
