//! `multisearch [ search … ] [ search … ] …`: the rows of several searches.

use crate::ast::Pipeline;
use crate::parser::{Parser, Parsing};

/// `multisearch`: unites searches. Columns meet by name, rows are in the order of `@timestamp`, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiSearchCommand {
    /// At least two searches.
    pub pipelines: Vec<Pipeline>,
}

impl Parser<'_> {
    pub(crate) fn multisearch_command(&mut self) -> Parsing<MultiSearchCommand> {
        let mut pipelines = vec![self.bracketed_search()?];
        while self.peek_bracket() {
            let start = self.start();
            pipelines.push(self.bracketed_search()?);
            self.check_count(start, pipelines.len())?;
        }
        if pipelines.len() < 2 {
            let offset = self.start();
            return self.refuse_syntax(offset, "Multisearch command requires at least two subsearches");
        }
        Ok(MultiSearchCommand { pipelines })
    }
}
