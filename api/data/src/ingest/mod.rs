//! Ingest pipelines: `_ingest/pipeline`, `_simulate`, and what pipelines make of documents before they are written.
//!
//! [`IngestService`] has the definitions, stored as documents of a system index, and the compiled pipelines. [`pipelines`]
//! answers requests for definitions, [`simulate`] tries pipelines. [`DocumentPipelines`] takes the operations of a request
//! through the pipelines that the request and the settings of indices name. Pipelines run on the threads of writes.

mod apply;
pub(crate) mod pipelines;
mod service;
pub(crate) mod simulate;

use millrace_processors::ProcessorError;

pub(crate) use apply::{DocumentPipelines, PipelineVerdict, is_pipelined, names_pipelines};
pub use service::IngestService;

use crate::error::Error;

/// Makes the answer of a processor's failure.
pub(crate) fn failure(error: &ProcessorError) -> Error {
    let mut answer = Error::new(error.status(), error.kind(), error.reason());
    for (name, value) in error.members() {
        answer = answer.with(name, value);
    }
    match error.cause() {
        Some((kind, reason)) => answer.caused_by(kind, reason),
        None => answer,
    }
}
