//! `foreach`: runs a processor for each value of a list.

use serde_json::Value;

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, not_castable, null_value};
use crate::error::Result;
use crate::pipeline::{BuildContext, PipelineRun, ProcessorStep};

#[derive(Debug)]
struct Foreach {
    field: FieldPath,
    step: ProcessorStep,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, context: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    let processor = config.object("processor")?;
    let Some(processor) = processor else {
        return Err(config.refusal("processor", "required property is missing"));
    };
    if processor.len() != 1 {
        return Err(config.refusal("processor", "Must specify exactly one processor type"));
    }
    let mut steps = context.steps(vec![Value::Object(processor)])?;
    match steps.pop() {
        Some(step) => Ok(Box::new(Foreach { field, step, ignore_missing })),
        None => Err(config.refusal("processor", "Must specify exactly one processor type")),
    }
}

impl Processor for Foreach {
    fn apply(&self, document: &mut IngestDocument, run: &mut PipelineRun<'_>) -> Result<Flow> {
        let items = match document.get(&self.field) {
            Ok(Value::Null) | Err(_) if self.ignore_missing => return Ok(Flow::Continue),
            value => value?,
        };
        let items = match items {
            Value::Array(items) => items.clone(),
            Value::Null => return Err(null_value(&self.field, "loop over its elements")),
            other => return Err(not_castable(&self.field, other, "java.util.List")),
        };
        let mut changed = Vec::with_capacity(items.len());
        for item in items {
            let outer = document.ingest.insert("_value".to_owned(), item);
            let result = run.quietly(&self.step, document);
            let value = document.ingest.insert("_value".to_owned(), outer.unwrap_or_default());
            changed.push(value.unwrap_or_default());
            if result? == Flow::Drop {
                return Ok(Flow::Drop);
            }
        }
        document.set(&self.field, Value::Array(changed))?;
        Ok(Flow::Continue)
    }
}
