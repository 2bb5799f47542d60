//! `_ingest/pipeline/_simulate`: documents go through a pipeline and are answered, not stored.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use millrace_processors::{IngestDocument, IngestPipeline, METADATA, PipelineRun, PipelineSet};
use millrace_runtime::{Instant, Priority};
use serde_json::{Map, Value, json};

use super::apply::too_slow;
use super::failure;
use crate::Api;
use crate::error::Error;
use crate::http::{MemoryAllowance, Request, Response};
use crate::route::DataApi;

/// Most documents of a simulation.
const MAX_DOCUMENTS: usize = 1_000;
/// Time after which no further document of a simulation goes through its pipeline.
const MAX_TIME: Duration = Duration::from_secs(30);
/// Id of a pipeline that stands in the request.
const INLINE_ID: &str = "_simulate_pipeline";

fn missing(name: &str) -> Error {
    Error::new(400, "parse_exception", format!("[{name}] required property is missing"))
        .with("property_name", name)
}

/// Answers a simulation of a stored pipeline, or of one in the request.
pub(crate) async fn run(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    id: Option<&str>,
) -> Result<Response, Error> {
    let is_verbose = request.params.take_bool("verbose")?.unwrap_or(false);
    request.finish()?;
    let required = || Error::new(400, "parse_exception", "request body or source parameter is required");
    let Value::Object(mut body) = request.json()?.ok_or_else(required)? else {
        return Err(Error::new(400, "parse_exception", "the body of a simulation must be an object"));
    };
    let stored = served.ingest()?.stored().await?;
    let documents = match body.remove("docs") {
        None => None,
        Some(Value::Array(documents)) => Some(documents),
        Some(_) => return Err(Error::new(400, "parse_exception", "[docs] property isn't a list")),
    };
    let known = match id {
        Some(id) => Some(Arc::clone(
            stored
                .compiled()
                .get(id)
                .ok_or_else(|| Error::illegal_argument(format!("pipeline [{id}] does not exist")))?,
        )),
        None => None,
    };
    let definition = match (&known, body.remove("pipeline")) {
        (Some(_), _) => Map::new(),
        (None, Some(Value::Object(definition))) => definition,
        (None, Some(_)) => return Err(Error::new(400, "parse_exception", "[pipeline] property isn't a map")),
        (None, None) => return Err(missing("pipeline")),
    };
    let documents = documents.ok_or_else(|| missing("docs"))?;
    if documents.is_empty() {
        return Err(Error::illegal_argument("must specify at least one document in [docs]"));
    }
    if documents.len() > MAX_DOCUMENTS {
        return Err(Error::illegal_argument(format!(
            "[docs] has more than {MAX_DOCUMENTS} documents; send them in parts"
        )));
    }
    let now = DateTime::from_timestamp_millis(api.session.clock().now_ms()).unwrap_or_default();
    let answer = request.answer.clone();
    let work = move || {
        let pipeline = match known {
            Some(pipeline) => Ok(pipeline),
            None => IngestPipeline::parse(INLINE_ID, &definition).map(Arc::new),
        };
        Ok(pipeline
            .map_err(|error| failure(&error))
            .and_then(|pipeline| simulate(stored.compiled(), &pipeline, documents, is_verbose, now, &answer)))
    };
    let text = api.session.compute().run(Priority::Ingest, work).await??;
    Ok(Response::held_json(200, text, &request.answer))
}

fn simulate(
    pipelines: &PipelineSet,
    pipeline: &IngestPipeline,
    documents: Vec<Value>,
    is_verbose: bool,
    now: DateTime<Utc>,
    answer: &MemoryAllowance,
) -> Result<Vec<u8>, Error> {
    let documents = documents.into_iter().map(|document| read_document(document, now));
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let mut out = b"{\"docs\":[".to_vec();
    for (number, mut document) in documents.into_iter().enumerate() {
        if began.elapsed() > MAX_TIME {
            return Err(too_slow());
        }
        if number > 0 {
            out.push(b',');
        }
        let mut run = PipelineRun::new(pipelines, now);
        if is_verbose {
            run = run.with_reports();
        }
        let result = run.execute(pipeline, &mut document);
        let shown = match (is_verbose, result) {
            (true, _) => {
                let reports: Vec<Value> =
                    run.into_reports().into_iter().map(|report| report.render()).collect();
                json!({ "processor_results": reports })
            }
            (false, Ok(true)) => json!({ "doc": document.render() }),
            (false, Ok(false)) => Value::Null,
            (false, Err(error)) => json!({ "error": error.exception_with_root_cause() }),
        };
        let before = out.len();
        out.extend_from_slice(shown.to_string().as_bytes());
        answer.take(out.len() - before)?;
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

fn read_document(document: Value, now: DateTime<Utc>) -> Result<IngestDocument, Error> {
    let Value::Object(mut members) = document else {
        return Err(Error::new(400, "parse_exception", "a document of [docs] must be an object"));
    };
    let source = match members.remove("_source") {
        Some(Value::Object(source)) => source,
        Some(_) => {
            return Err(Error::new(400, "parse_exception", "[_source] property isn't a map")
                .with("property_name", "_source"));
        }
        None => return Err(missing("_source")),
    };
    let mut metadata = Vec::new();
    for name in METADATA {
        let default = matches!(name, "_index" | "_id").then(|| Value::from(name));
        if let Some(value) = members.remove(name).or(default) {
            metadata.push((name, value));
        }
    }
    let timestamp = now.to_rfc3339_opts(SecondsFormat::Millis, true);
    Ok(IngestDocument::new(source, metadata, timestamp))
}
