//! Pipelines for operations outside of document requests: those of OTLP, Arrow Flight, and the outputs of Logstash pipelines.
//!
//! The first two name no pipeline: [`WritePipelines`] applies those of their indices. An output may name one for each event:
//! [`IngestService::transform`].

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_engine::{Session, WriteOp};
use millrace_gateway::{PipelinedWrite, WritePipelines};
use millrace_runtime::Priority;

use super::apply::{DocumentPipelines, PipelineVerdict, names_pipelines};
use super::service::IngestService;
use crate::error::Error;
use crate::http::MemoryAllowance;

/// Failures of a request that keep their whole reasons.
const MAX_WHOLE_ERRORS: usize = 1_000;
/// Most indices that are looked at before the documents are.
const MAX_COMPARED: usize = 64;
/// Bytes that one document of an output may take while it goes through pipelines.
const MAX_DOCUMENT_BYTES: usize = 1 << 30;

/// Returns whether an index of some operations has pipelines. Each index is looked at once.
fn names_any_pipeline(session: &Session, ops: &[WriteOp]) -> bool {
    let mut known: Vec<&Arc<str>> = Vec::new();
    for op in ops {
        // Names are shared within a request: most have one or two.
        if known.iter().any(|name| Arc::ptr_eq(name, &op.index)) {
            continue;
        }
        if known.len() == MAX_COMPARED || names_pipelines(session, &op.index) {
            return true;
        }
        known.push(&op.index);
    }
    false
}

impl WritePipelines for IngestService {
    fn apply<'a>(
        &'a self,
        session: &'a Session,
        ops: Vec<WriteOp>,
        allowance: &'a MemoryAllowance,
    ) -> BoxFuture<'a, Result<PipelinedWrite, Error>> {
        async move {
            if !names_any_pipeline(session, &ops) {
                return Ok(PipelinedWrite { ops, failures: Vec::new() });
            }
            let stored = self.stored().await?;
            let (service, session, allowance) = (self.clone(), session.clone(), allowance.clone());
            let compute = session.compute().clone();
            let work = move || {
                let mut pipelines = DocumentPipelines::new(&session, &stored, service.total());
                let mut write = PipelinedWrite { ops: Vec::with_capacity(ops.len()), failures: Vec::new() };
                for mut op in ops {
                    match pipelines.apply(&mut op, None, &allowance) {
                        Ok(PipelineVerdict::Untouched) => write.ops.push(op),
                        Ok(PipelineVerdict::Write) => {
                            write.ops.push(op);
                            session.compute().give_way();
                        }
                        Ok(PipelineVerdict::Drop) => {}
                        Err(error) if write.failures.len() >= MAX_WHOLE_ERRORS => {
                            write.failures.push(error.cut_short());
                        }
                        Err(error) => write.failures.push(error),
                    }
                }
                Ok(write)
            };
            Ok(compute.run(Priority::Ingest, work).await?)
        }
        .boxed()
    }
}

/// Outcome of pipelines for an operation of an output.
#[derive(Debug)]
pub enum TransformOutcome {
    /// It is to be written so.
    Write(WriteOp),
    /// A pipeline dropped it.
    Dropped,
    /// A pipeline failed, for this reason.
    Failed(String),
}

impl IngestService {
    /// Returns whether an index, or the templates that would make it, names a pipeline.
    pub fn concerns(&self, index: &str) -> bool {
        names_pipelines(&Session::system(self.engine()), index)
    }

    /// Takes operations of outputs through the pipelines that they name, else through those of their indices. Answers one outcome
    /// an operation. Whoever writes them has the rights for it checked by the write.
    ///
    /// # Errors
    /// The pipelines cannot be read for now.
    pub async fn transform(
        &self,
        requests: Vec<(WriteOp, Option<Arc<str>>)>,
    ) -> Result<Vec<TransformOutcome>, Error> {
        let stored = self.stored().await?;
        let (service, session) = (self.clone(), Session::system(self.engine()));
        let compute = session.compute().clone();
        let work = move || {
            let mut pipelines =
                DocumentPipelines::new(&session, &stored, service.total()).without_time_bound();
            let outcomes = requests.into_iter().map(|(mut op, requested)| {
                let allowance = MemoryAllowance::with_limit(MAX_DOCUMENT_BYTES);
                match pipelines.apply(&mut op, requested.as_deref(), &allowance) {
                    Ok(PipelineVerdict::Untouched) => TransformOutcome::Write(op),
                    Ok(PipelineVerdict::Write) => {
                        session.compute().give_way();
                        TransformOutcome::Write(op)
                    }
                    Ok(PipelineVerdict::Drop) => TransformOutcome::Dropped,
                    Err(error) => TransformOutcome::Failed(error.reason().to_owned()),
                }
            });
            Ok(outcomes.collect())
        };
        Ok(compute.run(Priority::Ingest, work).await?)
    }
}
