//! Ingest pipelines for the outputs of Logstash pipelines.

use std::sync::Arc;

use async_trait::async_trait;
use millrace_catalog::operation::WriteOp;
use millrace_data_api::{IngestService, TransformOutcome};
use millrace_pipelines::store::{OutputPipelines, OutputVerdict};

/// The ingest pipelines of a node, as outputs see them.
#[derive(Debug)]
struct NodePipelines(IngestService);

/// Makes the ingest pipelines of a node available to outputs.
pub fn output_pipelines(service: IngestService) -> Arc<dyn OutputPipelines> {
    Arc::new(NodePipelines(service))
}

#[async_trait]
impl OutputPipelines for NodePipelines {
    fn concerns(&self, index: &str) -> bool {
        self.0.concerns(index)
    }

    async fn apply(&self, requests: Vec<(WriteOp, Option<Arc<str>>)>) -> Result<Vec<OutputVerdict>, String> {
        let outcomes = self.0.transform(requests).await.map_err(|error| error.reason().to_owned())?;
        let verdict = |outcome| match outcome {
            TransformOutcome::Write(op) => OutputVerdict::Write(op),
            TransformOutcome::Dropped => OutputVerdict::Dropped,
            TransformOutcome::Failed(reason) => OutputVerdict::Failed(reason),
        };
        Ok(outcomes.into_iter().map(verdict).collect())
    }
}
