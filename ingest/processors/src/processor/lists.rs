//! Processors of lists: `join`, `sort` and `split`.

use std::cmp::Ordering;

use millrace_ingest::pattern::{Deadline, Expression};
use serde_json::Value;

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, not_castable, null_value};
use crate::error::{ProcessorError, Result};
use crate::java;
use crate::pipeline::{BuildContext, PipelineRun};

/// Most parts of a split text. The values of more parts would exceed the bytes of a document.
const MAX_PARTS: usize = 2 << 20;

fn list<'v>(document: &'v IngestDocument, field: &FieldPath, action: &str) -> Result<&'v Vec<Value>> {
    match document.get(field)? {
        Value::Array(items) => Ok(items),
        Value::Null => Err(null_value(field, action)),
        other => Err(not_castable(field, other, "java.util.List")),
    }
}

#[derive(Debug)]
struct Join {
    field: FieldPath,
    separator: String,
    target: FieldPath,
}

pub(super) fn build_join(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let separator = config.required_text("separator")?;
    let target = config.path_or("target_field", &field)?;
    Ok(Box::new(Join { field, separator, target }))
}

impl Processor for Join {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let separators = list(document, &self.field, "join")?.len().saturating_mul(self.separator.len());
        document.budget.check_bytes(separators)?;
        let items = list(document, &self.field, "join")?;
        let texts: Vec<String> = items.iter().map(java::text_of).collect();
        let joined = texts.join(&self.separator);
        document.set(&self.target, joined.into())?;
        Ok(Flow::Continue)
    }
}

#[derive(Debug)]
struct Sort {
    field: FieldPath,
    target: FieldPath,
    is_descending: bool,
}

pub(super) fn build_sort(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let target = config.path_or("target_field", &field)?;
    let is_descending = match config.text("order")?.as_deref() {
        None | Some("asc") => false,
        Some("desc") => true,
        Some(other) => {
            let reason = format!("Sort direction [{other}] not recognized. Valid values are: [asc, desc]");
            return Err(config.refusal("order", &reason));
        }
    };
    Ok(Box::new(Sort { field, target, is_descending }))
}

/// Compares two items of a list; `None` where they are not comparable.
fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => Some(x.cmp(&y)),
            _ => x.as_f64()?.partial_cmp(&y.as_f64()?),
        },
        _ => None,
    }
}

impl Processor for Sort {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let mut items = list(document, &self.field, "sort")?.clone();
        let first = items.first().cloned().unwrap_or_default();
        if items.len() > 1
            && let Some(other) = items.iter().find(|item| compare(&first, item).is_none())
        {
            return Err(ProcessorError::new(
                500,
                "class_cast_exception",
                format!(
                    "class {} cannot be cast to class {}",
                    java::type_name(&first),
                    java::type_name(other)
                ),
            ));
        }
        items.sort_by(|left, right| compare(left, right).unwrap_or(Ordering::Equal));
        if self.is_descending {
            items.reverse();
        }
        document.set(&self.target, Value::Array(items))?;
        Ok(Flow::Continue)
    }
}

#[derive(Debug)]
struct Split {
    field: FieldPath,
    target: FieldPath,
    separator: Expression,
    ignore_missing: bool,
    preserve_trailing: bool,
}

pub(super) fn build_split(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let separator = config.required_text("separator")?;
    let separator = Expression::compile(&separator).map_err(|reason| config.refusal("separator", &reason))?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    let preserve_trailing = config.flag("preserve_trailing", false)?;
    let target = config.path_or("target_field", &field)?;
    Ok(Box::new(Split { field, target, separator, ignore_missing, preserve_trailing }))
}

/// Removes empty parts at the end, as Java does. A text without a separator stays.
pub(crate) fn drop_trailing(parts: &mut Vec<&str>) {
    if parts.len() > 1 {
        let length = parts.iter().rposition(|part| !part.is_empty()).map_or(0, |last| last + 1);
        parts.truncate(length);
    }
}

/// Splits a text at the matches of an expression, as Java's `String.split` does with a limit (0: none).
pub(crate) fn split<'t>(
    text: &'t str,
    separator: &Expression,
    limit: usize,
    deadline: &Deadline,
) -> Result<Vec<&'t str>> {
    let stopped = |_| {
        let reason = format!("the pattern [{}] was stopped after a second", separator.as_str());
        ProcessorError::illegal_argument(reason)
    };
    let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
    while limit == 0 || parts.len() + 1 < limit {
        let Some(found) = separator.find_at(text, at, deadline).map_err(stopped)? else { break };
        if found.is_empty() {
            // An empty match separates characters; there is none before the first.
            let Some(letter) = text.get(found.start..).and_then(|rest| rest.chars().next()) else { break };
            at = found.start + letter.len_utf8();
            if found.start == 0 {
                continue;
            }
        } else {
            at = found.end;
        }
        if parts.len() == MAX_PARTS {
            return Err(ProcessorError::exceeded(format!("a text has more than {MAX_PARTS} parts")));
        }
        parts.push(text.get(from..found.start).unwrap_or_default());
        from = found.end;
    }
    parts.push(text.get(from..).unwrap_or_default());
    Ok(parts)
}

impl Processor for Split {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let text = match document.get(&self.field) {
            Ok(Value::Null) | Err(_) if self.ignore_missing => return Ok(Flow::Continue),
            value => value?,
        };
        let text = match text {
            Value::String(text) => text,
            Value::Null => return Err(null_value(&self.field, "split")),
            other => return Err(not_castable(&self.field, other, "java.lang.String")),
        };
        let mut parts = split(text, &self.separator, 0, &Deadline::default())?;
        if !self.preserve_trailing {
            drop_trailing(&mut parts);
        }
        let parts = Value::Array(parts.into_iter().map(Value::from).collect());
        document.set(&self.target, parts)?;
        Ok(Flow::Continue)
    }
}
