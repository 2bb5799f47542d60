//! `multisearch [ search … ] [ search … ] …`: the rows of several searches.

use crate::ast::Pipeline;

/// `multisearch`: unites searches. Columns meet by name, rows are in the order of `@timestamp`, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiSearchCommand {
    /// At least two searches.
    pub pipelines: Vec<Pipeline>,
}
