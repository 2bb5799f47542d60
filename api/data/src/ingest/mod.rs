//! Ingest pipelines: `_ingest/pipeline`, `_simulate`, and what pipelines make of documents before they are written.
//!
//! [`IngestService`] has the definitions, stored as documents of a system index, and the compiled pipelines. [`pipelines`]
//! answers requests for definitions, [`simulate`] tries pipelines. [`DocumentPipelines`] takes the operations of a request
//! through the pipelines that the request and the settings of indices name; [`unrequested`] does so for other ways into an index.
//! Pipelines run on the threads of writes.

mod apply;
pub(crate) mod pipelines;
mod service;
pub(crate) mod simulate;
mod unrequested;

use millrace_processors::ProcessorError;

pub(crate) use apply::{DocumentPipelines, PipelineVerdict, is_pipelined, names_pipelines};
pub use service::IngestService;
pub use unrequested::TransformOutcome;

use crate::error::Error;

/// Most bytes of a reason in the answer of a failure. Reasons of processors quote values.
const MAX_REASON_BYTES: usize = 16 << 10;

/// Makes the answer of a processor's failure. Long reasons are cut.
pub(crate) fn failure(error: &ProcessorError) -> Error {
    let cut = |reason: &str| {
        let end = reason.floor_char_boundary(MAX_REASON_BYTES);
        reason.get(..end).unwrap_or_default().to_owned()
    };
    let mut answer = Error::new(error.status(), error.kind(), cut(error.reason()));
    for (name, value) in error.members() {
        answer = answer.with(name, value);
    }
    match error.cause() {
        Some((kind, reason)) => answer.caused_by(kind, cut(reason)),
        None => answer,
    }
}
