//! Entry points of fuzzers.

use chrono::DateTime;
use serde_json::{Map, Value, json};

use crate::{IngestDocument, IngestPipeline, PipelineRun, PipelineSet};

/// A script, and a template. What is accepted runs to its end.
pub fn script(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for processor in [
        json!({ "script": { "source": text } }),
        json!({ "set": { "if": text, "field": "x", "value": text } }),
    ] {
        let definition = Map::from_iter([("processors".to_owned(), json!([processor]))]);
        let Ok(pipeline) = IngestPipeline::parse("fuzz", &definition) else { continue };
        let Value::Object(source) = json!({ "a": { "b": [1, "x", null] }, "n": 1.5, "t": "text" }) else {
            return;
        };
        let mut document = IngestDocument::new(source, [("_index", "i".into())], String::new());
        let pipelines = PipelineSet::default();
        // A failure is an answer.
        let _ = PipelineRun::new(&pipelines, DateTime::UNIX_EPOCH).execute(&pipeline, &mut document);
    }
}
