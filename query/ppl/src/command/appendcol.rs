//! `appendcol [override=bool] [ … ]`: columns of a pipeline beside the others, row by row.

use crate::ast::Pipeline;
use crate::ast::PipelineSource;
use crate::parser::{Parser, Parsing};

/// `appendcol`: runs commands over the source of the whole pipeline and adds their columns by row number.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendColCommand {
    /// `override`: whether columns of the same name are replaced (default false).
    pub is_override: bool,
    /// The commands; the source is [`OuterSource`](crate::ast::PipelineSource::OuterSource).
    pub pipeline: Box<Pipeline>,
}

impl Parser<'_> {
    pub(crate) fn appendcol_command(&mut self) -> Parsing<AppendColCommand> {
        let is_override = if self.option("override") { self.boolean()? } else { false };
        let pipeline = Box::new(self.bracketed_commands(PipelineSource::OuterSource)?);
        Ok(AppendColCommand { is_override, pipeline })
    }
}
