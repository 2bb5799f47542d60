//! `appendcol [override=bool] [ … ]`: columns of a pipeline beside the others, row by row.

use crate::ast::Pipeline;

/// `appendcol`: runs commands over the source of the whole pipeline and adds their columns by row number.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendColCommand {
    /// `override`: whether columns of the same name are replaced (default false).
    pub is_override: bool,
    /// The commands; the source is [`OuterSource`](crate::ast::PipelineSource::OuterSource).
    pub pipeline: Box<Pipeline>,
}
