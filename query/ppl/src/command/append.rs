//! `append [ … ]`: the rows of a subsearch behind the others.

use crate::ast::Pipeline;
use crate::ast::PipelineSource;
use crate::parser::{Parser, Parsing};

/// `append`: adds the rows of a pipeline behind those of the input. Columns meet by name.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendCommand {
    /// The pipeline in brackets. Its source may be [`Empty`](crate::ast::PipelineSource::Empty).
    pub pipeline: Box<Pipeline>,
}

impl Parser<'_> {
    pub(crate) fn append_command(&mut self) -> Parsing<AppendCommand> {
        let has_source = self.begins_source();
        let pipeline = match has_source {
            true => self.bracketed_search()?,
            false => self.bracketed_commands(PipelineSource::Empty)?,
        };
        Ok(AppendCommand { pipeline: Box::new(pipeline) })
    }
}
