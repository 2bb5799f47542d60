//! `appendpipe [ … ]`: rows that commands make of the input, behind the input.

use crate::ast::Pipeline;
use crate::ast::PipelineSource;
use crate::parser::{Parser, Parsing};

/// `appendpipe`: runs commands over the input and adds their rows behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendPipeCommand {
    /// The commands; the source is [`Input`](crate::ast::PipelineSource::Input).
    pub pipeline: Box<Pipeline>,
}

impl Parser<'_> {
    pub(crate) fn appendpipe_command(&mut self) -> Parsing<AppendPipeCommand> {
        let pipeline = Box::new(self.bracketed_commands(PipelineSource::Input)?);
        Ok(AppendPipeCommand { pipeline })
    }
}
