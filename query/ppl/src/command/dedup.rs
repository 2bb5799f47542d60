//! `dedup [n] fields [keepempty=bool] [consecutive=bool]`: the first rows of each combination of values.

use crate::ast::FieldName;
use crate::parser::{Expectation, Parser, Parsing};

/// `dedup`: keeps the first rows of each combination of values.
#[derive(Clone, Debug, PartialEq)]
pub struct DedupCommand {
    /// The rows of a combination that stay (default 1).
    pub count: u64,
    /// At least one field.
    pub fields: Vec<FieldName>,
    /// `keepempty`: whether rows that miss a field stay (default false).
    pub keepempty: bool,
    /// `consecutive`: whether only neighbours count as equal (default false).
    pub consecutive: bool,
}

impl Parser<'_> {
    pub(crate) fn dedup_command(&mut self) -> Parsing<DedupCommand> {
        self.note(Expectation::Integer);
        let start = self.start();
        let has_count = self.peek_digit() || self.peek_symbol("-");
        let count = if has_count { self.count("dedup")? } else { 1 };
        if count == 0 {
            return self.refuse_syntax(start, "the number of [dedup] must be at least 1, but is [0]");
        }
        let fields = self.field_list()?;
        let mut command = DedupCommand { count, fields, keepempty: false, consecutive: false };
        loop {
            if self.option("keepempty") {
                command.keepempty = self.boolean()?;
            } else if self.option("consecutive") {
                command.consecutive = self.boolean()?;
            } else {
                return Ok(command);
            }
        }
    }
}
