//! Ingest pipelines for listeners whose requests name none.
//!
//! The data API implements [`WritePipelines`]. Listeners of OTLP and of Arrow Flight hand it their operations before they write, so
//! that `index.default_pipeline` and `index.final_pipeline` hold for every way into an index.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_engine::{Session, WriteOp};

use crate::error::Error;
use crate::http::MemoryAllowance;

/// Takes operations through the pipelines of their indices.
pub trait WritePipelines: fmt::Debug + Send + Sync {
    /// Applies the default and the final pipeline of each index.
    ///
    /// # Errors
    /// The pipelines cannot be read, or take too long; nothing is to be written then.
    fn apply<'a>(
        &'a self,
        session: &'a Session,
        ops: Vec<WriteOp>,
        allowance: &'a MemoryAllowance,
    ) -> BoxFuture<'a, Result<PipelinedWrite, Error>>;
}

/// Operations behind their pipelines.
#[derive(Debug, Default)]
pub struct PipelinedWrite {
    /// Operations to be written.
    pub ops: Vec<WriteOp>,
    /// Failures of documents that are not to be written.
    pub failures: Vec<Error>,
}

/// Applies the pipelines of a listener, where it has some.
///
/// # Errors
/// As [`WritePipelines::apply`].
pub async fn apply_pipelines(
    pipelines: Option<&Arc<dyn WritePipelines>>,
    session: &Session,
    ops: Vec<WriteOp>,
    allowance: &MemoryAllowance,
) -> Result<PipelinedWrite, Error> {
    match pipelines {
        Some(pipelines) if !ops.is_empty() => pipelines.apply(session, ops, allowance).await,
        _ => Ok(PipelinedWrite { ops, failures: Vec::new() }),
    }
}
