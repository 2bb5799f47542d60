//! `append [ … ]`: the rows of a subsearch behind the others.

use crate::ast::Pipeline;

/// `append`: adds the rows of a pipeline behind those of the input. Columns meet by name.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendCommand {
    /// The pipeline in brackets. Its source may be [`Empty`](crate::ast::PipelineSource::Empty).
    pub pipeline: Box<Pipeline>,
}
