//! Ingest pipelines.

use super::{DataApi, Route, routes};
use crate::ingest::{pipelines, simulate};

pub(super) fn routes() -> Vec<Route<DataApi>> {
    routes! { |served: DataApi, api, request|
        read GET, "/_ingest/pipeline", () GetIngestPipelines => pipelines::get(served, api, request, None).await;
        read GET POST, "/_ingest/pipeline/_simulate", () SimulateIngestPipelines => simulate::run(served, api, request, None).await;
        read GET, "/_ingest/pipeline/{pipeline}", (pipeline) GetIngestPipelines => pipelines::get(served, api, request, Some(pipeline)).await;
        change PUT, "/_ingest/pipeline/{pipeline}", (pipeline) PutIngestPipelines => pipelines::put(served, api, request, pipeline).await;
        change DELETE, "/_ingest/pipeline/{pipeline}", (pipeline) DeleteIngestPipelines => pipelines::delete(served, request, pipeline).await;
        read GET POST, "/_ingest/pipeline/{pipeline}/_simulate", (pipeline) SimulateIngestPipelines => simulate::run(served, api, request, Some(pipeline)).await;
        read GET, "/_ingest/processor/grok", () GetGrokPatterns => pipelines::patterns(request);
    }
}
