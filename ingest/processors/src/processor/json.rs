//! `json`: parses a text.

use serde_json::{Deserializer, Value};

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, VALUE_BYTES, not_castable};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

#[derive(Debug)]
struct Json {
    field: FieldPath,
    target: Option<FieldPath>,
    add_to_root: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let target = config.text("target_field")?;
    let add_to_root = config.flag("add_to_root", false)?;
    if add_to_root && target.is_some() {
        let reason = "Cannot set a target field while also setting `add_to_root` to true";
        return Err(config.refusal("target_field", reason));
    }
    let target = target.map(|target| FieldPath::parse(&target)).transpose()?;
    Ok(Box::new(Json { field, target, add_to_root }))
}

/// Returns at least the bytes of the values that a text in JSON has, beside their texts.
pub(crate) fn estimate_json(text: &str) -> usize {
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    values.saturating_mul(VALUE_BYTES)
}

/// Parses the value that a text begins with.
pub(crate) fn parse_json(text: &str) -> Result<Value> {
    match Deserializer::from_str(text).into_iter::<Value>().next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => {
            Err(ProcessorError::illegal_argument(format!("cannot parse the field as JSON: {error}"))
                .caused_by("json_parse_exception", error.to_string()))
        }
        None => Ok(Value::Null),
    }
}

impl Processor for Json {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        if let Value::String(text) = document.get(&self.field)? {
            document.budget.check_bytes(estimate_json(text))?;
        }
        let parsed = match document.get(&self.field)? {
            Value::String(text) => parse_json(text)?,
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other.clone(),
            other => return Err(not_castable(&self.field, other, "java.lang.String")),
        };
        if !self.add_to_root {
            document.set(self.target.as_ref().unwrap_or(&self.field), parsed)?;
            return Ok(Flow::Continue);
        }
        document.budget.charge_value(&parsed, 0)?;
        let Value::Object(members) = parsed else {
            return Err(ProcessorError::illegal_argument("cannot add non-map fields to root of document"));
        };
        document.fields.extend(members);
        Ok(Flow::Continue)
    }
}
