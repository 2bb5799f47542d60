//! `appendpipe [ … ]`: rows that commands make of the input, behind the input.

use crate::ast::Pipeline;

/// `appendpipe`: runs commands over the input and adds their rows behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendPipeCommand {
    /// The commands; the source is [`Input`](crate::ast::PipelineSource::Input).
    pub pipeline: Box<Pipeline>,
}
