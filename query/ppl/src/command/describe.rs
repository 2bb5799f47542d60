//! `describe index`: the fields of an index.

use crate::ast::IndexSelector;
use crate::parser::{Parser, Parsing};

/// `describe`: a row for each field of the indices.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribeCommand {
    /// At least one index, alias or pattern.
    pub indices: Vec<IndexSelector>,
}

impl Parser<'_> {
    pub(crate) fn describe_command(&mut self) -> Parsing<DescribeCommand> {
        let indices = self.index_list()?;
        // An alias is read, and has nothing to name.
        self.alias()?;
        Ok(DescribeCommand { indices })
    }
}
