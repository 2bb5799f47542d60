//! Processors that move and set fields: `append`, `copy`, `dot_expander`, `rename` and `set`.

use serde_json::Value;

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};
use crate::template::{PathTemplate, ValueTemplate};

#[derive(Debug)]
struct Set {
    field: PathTemplate,
    value: SetValue,
    is_overriding: bool,
    ignore_empty_value: bool,
}

/// Origin of the value that `set` writes.
#[derive(Debug)]
enum SetValue {
    Template(ValueTemplate),
    /// A copy of another field.
    Field(FieldPath),
}

pub(super) fn build_set(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path_template("field")?;
    let copied = config.text("copy_from")?;
    let value = match copied {
        None => SetValue::Template(config.value_template("value")?),
        Some(_) if config.value("value").is_some() => {
            let reason = "cannot set both `copy_from` and `value` in the same processor";
            return Err(config.refusal("copy_from", reason));
        }
        Some(path) => SetValue::Field(FieldPath::parse(&path).map_err(|error| config.describe(error))?),
    };
    let is_overriding = config.flag("override", true)?;
    let ignore_empty_value = config.flag("ignore_empty_value", false)?;
    Ok(Box::new(Set { field, value, is_overriding, ignore_empty_value }))
}

impl Processor for Set {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let field = self.field.resolve(document)?;
        if !self.is_overriding && document.find(&field).is_some_and(|value| !value.is_null()) {
            return Ok(Flow::Continue);
        }
        let value = match &self.value {
            SetValue::Template(template) => template.render(document)?,
            SetValue::Field(source) => match document.find(source) {
                Some(value) => value.clone(),
                None if self.ignore_empty_value => return Ok(Flow::Continue),
                None => document.get(source)?.clone(),
            },
        };
        if self.ignore_empty_value && (value.is_null() || value == "") {
            return Ok(Flow::Continue);
        }
        document.set(&field, value)?;
        Ok(Flow::Continue)
    }
}

#[derive(Debug)]
struct Append {
    field: PathTemplate,
    value: ValueTemplate,
    allow_duplicates: bool,
}

pub(super) fn build_append(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path_template("field")?;
    let value = config.value_template("value")?;
    let allow_duplicates = config.flag("allow_duplicates", true)?;
    Ok(Box::new(Append { field, value, allow_duplicates }))
}

impl Processor for Append {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let field = self.field.resolve(document)?;
        let values = match self.value.render(document)? {
            Value::Array(values) => values,
            single => vec![single],
        };
        document.append(&field, values, self.allow_duplicates)?;
        Ok(Flow::Continue)
    }
}

#[derive(Debug)]
struct Rename {
    field: PathTemplate,
    target: PathTemplate,
    ignore_missing: bool,
    override_target: bool,
}

pub(super) fn build_rename(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path_template("field")?;
    let target = config.path_template("target_field")?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    let override_target = config.flag("override_target", false)?;
    Ok(Box::new(Rename { field, target, ignore_missing, override_target }))
}

impl Processor for Rename {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let field = self.field.resolve(document)?;
        if !document.has(&field) {
            return match self.ignore_missing {
                true => Ok(Flow::Continue),
                false => Err(absent(&field)),
            };
        }
        let target = self.target.resolve(document)?;
        if !self.override_target && document.has(&target) {
            let reason = format!("field [{}] already exists", target.as_str());
            return Err(ProcessorError::illegal_argument(reason));
        }
        let value = document.get(&field)?.clone();
        document.remove(&field)?;
        if let Err(error) = document.set(&target, value.clone()) {
            document.set(&field, value)?;
            return Err(error);
        }
        Ok(Flow::Continue)
    }
}

/// Makes the failure of a field that is not there.
pub(super) fn absent(field: &FieldPath) -> ProcessorError {
    ProcessorError::illegal_argument(format!("field [{}] doesn't exist", field.as_str()))
}

#[derive(Debug)]
struct CopyField {
    source: PathTemplate,
    target: PathTemplate,
    ignore_missing: bool,
    override_target: bool,
    remove_source: bool,
}

pub(super) fn build_copy(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let source = config.path_template("source_field")?;
    let target = config.path_template("target_field")?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    let override_target = config.flag("override_target", false)?;
    let remove_source = config.flag("remove_source", false)?;
    Ok(Box::new(CopyField { source, target, ignore_missing, override_target, remove_source }))
}

impl Processor for CopyField {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let source = self.source.resolve(document)?;
        let Some(value) = document.find(&source).cloned() else {
            return match self.ignore_missing {
                true => Ok(Flow::Continue),
                false => Err(ProcessorError::illegal_argument(format!(
                    "source field [{}] doesn't exist",
                    source.as_str()
                ))),
            };
        };
        let target = self.target.resolve(document)?;
        if !self.override_target && document.find(&target).is_some_and(|value| !value.is_null()) {
            let reason = format!("target field [{}] already exists", target.as_str());
            return Err(ProcessorError::illegal_argument(reason));
        }
        document.set(&target, value)?;
        if self.remove_source {
            document.remove(&source)?;
        }
        Ok(Flow::Continue)
    }
}

#[derive(Debug)]
struct DotExpander {
    /// Object with the field; `None` for the document itself.
    path: Option<FieldPath>,
    field: String,
    /// The field as a path from the document on.
    expanded: FieldPath,
}

pub(super) fn build_dot_expander(
    config: &mut ProcessorConfig,
    _: &mut BuildContext,
) -> Result<Box<dyn Processor>> {
    let field = config.required_text("field")?;
    if !field.contains('.') {
        return Err(config.refusal("field", "field does not contain a dot"));
    }
    for (is_wrong, reason) in [
        (field.starts_with('.') || field.ends_with('.'), "Field can't start or end with a dot"),
        (field.contains(".."), "No space between dots"),
    ] {
        if is_wrong {
            return Err(config.refusal("field", reason));
        }
    }
    let path = config.text("path")?;
    let expanded = match &path {
        Some(path) => format!("{path}.{field}"),
        None => field.clone(),
    };
    let path = path.map(|path| FieldPath::parse(&path)).transpose()?;
    Ok(Box::new(DotExpander { path, field, expanded: FieldPath::parse(&expanded)? }))
}

impl Processor for DotExpander {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let members = match &self.path {
            None => Some(&mut document.fields),
            Some(path) => match document.get_mut(path) {
                Ok(Value::Object(members)) => Some(members),
                _ => None,
            },
        };
        let Some(members) = members else { return Ok(Flow::Continue) };
        let Some(value) = members.get(&self.field).cloned() else { return Ok(Flow::Continue) };
        if let Some(parent) = document.value_parent(&self.expanded) {
            return Err(ProcessorError::illegal_argument(format!(
                "cannot expend [{}], because [{parent}] is not an object field, but a value field",
                self.expanded.as_str()
            )));
        }
        if document.has(&self.expanded) {
            document.append(&self.expanded, vec![value], true)?;
        } else {
            document.set(&self.expanded, value)?;
        }
        let members = match &self.path {
            None => Some(&mut document.fields),
            Some(path) => document.get_mut(path)?.as_object_mut(),
        };
        if let Some(members) = members {
            members.shift_remove(&self.field);
        }
        Ok(Flow::Continue)
    }
}
