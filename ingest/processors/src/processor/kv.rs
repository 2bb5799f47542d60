//! `kv`: takes keys and values apart.

use millrace_ingest::pattern::{Deadline, Expression};
use serde_json::Value;

use super::lists::split;
use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

/// Most pairs of a text.
const MAX_PAIRS: usize = 10_000;

#[derive(Debug)]
struct Kv {
    field: FieldPath,
    target: Option<FieldPath>,
    field_split: Expression,
    value_split: Expression,
    include: Option<Vec<String>>,
    exclude: Vec<String>,
    prefix: String,
    trim_key: Vec<char>,
    trim_value: Vec<char>,
    strip_brackets: bool,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let target = config.text("target_field")?.map(|target| FieldPath::parse(&target)).transpose()?;
    let mut expression = |name: &str| {
        let text = config.required_text(name)?;
        Expression::compile(&text).map_err(|reason| config.refusal(name, &reason))
    };
    let (field_split, value_split) = (expression("field_split")?, expression("value_split")?);
    let include = config.texts("include_keys")?;
    let exclude = config.texts("exclude_keys")?.unwrap_or_default();
    let prefix = config.text("prefix")?.unwrap_or_default();
    let letters = |text: Option<String>| text.unwrap_or_default().chars().collect();
    let trim_key = letters(config.text("trim_key")?);
    let trim_value = letters(config.text("trim_value")?);
    let strip_brackets = config.flag("strip_brackets", false)?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    Ok(Box::new(Kv {
        field,
        target,
        field_split,
        value_split,
        include,
        exclude,
        prefix,
        trim_key,
        trim_value,
        strip_brackets,
        ignore_missing,
    }))
}

/// Takes off one bracket at each end.
fn without_brackets(text: &str) -> &str {
    let text = text.strip_prefix(['(', '[', '<', '"', '\'']).unwrap_or(text);
    text.strip_suffix([')', ']', '>', '"', '\'']).unwrap_or(text)
}

impl Processor for Kv {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let text = match document.get(&self.field) {
            Ok(Value::Null) if !self.ignore_missing => {
                let reason =
                    format!("field [{}] is null, cannot extract key-value pairs.", self.field.as_str());
                return Err(ProcessorError::illegal_argument(reason));
            }
            _ => document.text(&self.field, self.ignore_missing)?,
        };
        let Some(text) = text.map(str::to_owned) else { return Ok(Flow::Continue) };
        let deadline = Deadline::default();
        let mut parts = split(&text, &self.field_split, 0, &deadline)?;
        while parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty()) {
            parts.pop();
        }
        if parts.len() > MAX_PAIRS {
            return Err(ProcessorError::exceeded(format!(
                "field [{}] has more than {MAX_PAIRS} pairs",
                self.field.as_str()
            )));
        }
        for part in parts {
            let pair = split(part, &self.value_split, 2, &deadline)?;
            let [key, value] = pair.as_slice() else {
                return Err(ProcessorError::illegal_argument(format!(
                    "field [{}] does not contain value_split [{}]",
                    self.field.as_str(),
                    self.value_split.as_str()
                )));
            };
            let key = key.trim_matches(self.trim_key.as_slice());
            let is_wanted = self.include.as_ref().is_none_or(|names| names.iter().any(|name| name == key));
            if !is_wanted || self.exclude.iter().any(|name| name == key) {
                continue;
            }
            let value = if self.strip_brackets { without_brackets(value) } else { value };
            let value = value.trim_matches(self.trim_value.as_slice());
            let key = format!("{}{key}", self.prefix);
            let path = match &self.target {
                Some(target) => format!("{}.{key}", target.as_str()),
                None => key,
            };
            let path = FieldPath::parse(&path)?;
            match document.has(&path) {
                true => document.append(&path, vec![value.into()], true)?,
                false => document.set(&path, value.into())?,
            }
        }
        Ok(Flow::Continue)
    }
}
