//! `remove` and `remove_by_pattern`.

use millrace_mapping::pattern;
use serde_json::Value;

use super::fields::absent;
use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, METADATA};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};
use crate::template::PathTemplate;

#[derive(Debug)]
struct Remove {
    fields: Vec<PathTemplate>,
    /// Fields that stay while all others go.
    excluded: Option<Vec<String>>,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let fields = config.text_or_texts("field")?;
    let excluded = config.text_or_texts("exclude_field")?;
    if fields.is_some() == excluded.is_some() {
        return Err(config.refusal("field", "either field or exclude_field must be set"));
    }
    let fields = fields.unwrap_or_default();
    let fields = fields.iter().map(|field| PathTemplate::parse(field)).collect::<Result<_>>();
    let fields = fields.map_err(|error| config.describe(error))?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    Ok(Box::new(Remove { fields, excluded, ignore_missing }))
}

impl Remove {
    fn remove(&self, document: &mut IngestDocument, field: &FieldPath) -> Result<()> {
        if let Some(name @ ("_index" | "_version" | "_version_type")) = field.metadata() {
            let reason = format!("cannot remove metadata field [{name}]");
            return Err(ProcessorError::illegal_argument(reason));
        }
        if field.metadata() == Some("_id") && has_external_version(document) {
            let kind = document.fields.get("_version_type").and_then(Value::as_str).unwrap_or_default();
            let version = document.fields.get("_version").map(Value::to_string).unwrap_or_default();
            return Err(ProcessorError::illegal_argument(format!(
                "cannot remove metadata field [_id] when specifying external version for the document, version: \
                 {version}, version_type: {kind}"
            )));
        }
        match document.has(field) {
            true => document.remove(field).map(drop),
            false if self.ignore_missing => Ok(()),
            false => Err(absent(field)),
        }
    }
}

fn has_external_version(document: &IngestDocument) -> bool {
    let kind = document.fields.get("_version_type").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.starts_with("external"))
}

impl Processor for Remove {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        if let Some(excluded) = &self.excluded {
            document.fields.retain(|name, _| {
                METADATA.contains(&name.as_str()) || excluded.iter().any(|kept| kept == name)
            });
        }
        for field in &self.fields {
            let field = field.resolve(document)?;
            self.remove(document, &field)?;
        }
        Ok(Flow::Continue)
    }
}

#[derive(Debug)]
struct RemoveByPattern {
    patterns: Vec<String>,
    /// `true` if fields that match a pattern stay, and others go.
    is_exclusion: bool,
}

pub(super) fn build_by_pattern(
    config: &mut ProcessorConfig,
    _: &mut BuildContext,
) -> Result<Box<dyn Processor>> {
    let included = config.text_or_texts("field_pattern")?;
    let excluded = config.text_or_texts("exclude_field_pattern")?;
    if included.is_some() == excluded.is_some() {
        return Err(
            config.refusal("field_pattern", "either field_pattern or exclude_field_pattern must be set")
        );
    }
    let is_exclusion = excluded.is_some();
    let name = if is_exclusion { "exclude_field_pattern" } else { "field_pattern" };
    let patterns = included.or(excluded).unwrap_or_default();
    for pattern in &patterns {
        let problem = [
            (pattern.is_empty(), "must not be empty"),
            (pattern.contains('#'), "must not contain a '#'"),
            (pattern.contains(':'), "must not contain a ':'"),
            (pattern.starts_with('_'), "must not start with '_'"),
        ];
        if let Some((_, problem)) = problem.into_iter().find(|(is_wrong, _)| *is_wrong) {
            let reason = format!("Validation Failed: 1: {name} [{pattern}] {problem};");
            return Err(config.refusal(name, &reason));
        }
    }
    Ok(Box::new(RemoveByPattern { patterns, is_exclusion }))
}

impl Processor for RemoveByPattern {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        document.fields.retain(|name, _| {
            let matches = self.patterns.iter().any(|pattern| pattern::matches(pattern, name));
            METADATA.contains(&name.as_str()) || matches == self.is_exclusion
        });
        Ok(Flow::Continue)
    }
}
