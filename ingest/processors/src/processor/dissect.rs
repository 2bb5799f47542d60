//! `dissect`: takes a text apart at fixed delimiters.

use millrace_ingest::dissect::{DissectDialect, DissectModifier, DissectPattern};
use serde_json::Value;

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, null_value};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

#[derive(Debug)]
struct Dissect {
    field: FieldPath,
    text: String,
    pattern: DissectPattern,
    /// Fields with the positions of their parts in the pattern, in the order of the parts.
    values: Vec<(FieldPath, Vec<usize>)>,
    /// Positions of a name and of its value.
    references: Vec<(usize, usize)>,
    append_separator: String,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let text = config.required_text("pattern")?;
    let append_separator = config.text("append_separator")?.unwrap_or_default();
    let ignore_missing = config.flag("ignore_missing", false)?;
    let refused = |reason: &str| {
        ProcessorError::new(400, "pattern_parse", format!("Unable to parse pattern: {text} Reason: {reason}"))
    };
    let pattern = DissectPattern::parse(&text, DissectDialect::OpenSearch).map_err(|why| refused(&why))?;
    let mut parts: Vec<(&str, Vec<(usize, usize)>)> = Vec::new();
    let mut references = Vec::new();
    for (at, part) in pattern.fields().iter().enumerate() {
        match part.modifier {
            DissectModifier::Skip | DissectModifier::ReferenceValue => {}
            DissectModifier::ReferenceKey => {
                let is_value =
                    |modifier, name: &str| modifier == DissectModifier::ReferenceValue && name == part.name;
                let value = pattern.fields().iter().position(|other| is_value(other.modifier, &other.name));
                let Some(value) = value else { return Err(refused(&unpaired(&part.name))) };
                references.push((at, value));
            }
            DissectModifier::Plain | DissectModifier::Append => {
                let place = (part.order.unwrap_or(0), at);
                match parts.iter_mut().find(|(name, _)| *name == part.name) {
                    Some((_, places)) if part.modifier == DissectModifier::Append => places.push(place),
                    Some((_, places)) => *places = vec![place],
                    None => parts.push((&part.name, vec![place])),
                }
            }
        }
    }
    let values_named = |name: &str| {
        let keys = pattern.fields().iter().filter(|field| field.modifier == DissectModifier::ReferenceKey);
        keys.into_iter().any(|field| field.name == name)
    };
    let unmatched = pattern
        .fields()
        .iter()
        .find(|field| field.modifier == DissectModifier::ReferenceValue && !values_named(&field.name));
    if let Some(field) = unmatched {
        return Err(refused(&unpaired(&field.name)));
    }
    let values = parts.into_iter().map(|(name, mut places)| {
        places.sort_unstable();
        Ok((FieldPath::parse(name)?, places.into_iter().map(|(_, at)| at).collect()))
    });
    let values = values.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(Dissect { field, text, values, references, append_separator, ignore_missing, pattern }))
}

fn unpaired(name: &str) -> String {
    format!(
        "Found invalid key/reference associations: '{name}' Please ensure each '*<key>' is matched with a matching '&<key>"
    )
}

impl Processor for Dissect {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let source = match document.get(&self.field) {
            Ok(Value::Null) if !self.ignore_missing => return Err(null_value(&self.field, "process it")),
            _ => document.text(&self.field, self.ignore_missing)?,
        };
        let Some(source) = source.map(str::to_owned) else { return Ok(Flow::Continue) };
        let Some(parts) = self.pattern.cut(&source) else {
            return Err(ProcessorError::new(
                500,
                "find_match",
                format!("Unable to find match for dissect pattern: {} against source: {source}", self.text),
            ));
        };
        let part = |at: &usize| parts.get(*at).copied().unwrap_or_default();
        for (field, places) in &self.values {
            document.budget.check_bytes(places.len().saturating_mul(self.append_separator.len()))?;
            let texts: Vec<&str> = places.iter().map(part).collect();
            document.set(field, texts.join(&self.append_separator).into())?;
        }
        for (name, value) in &self.references {
            document.set(&FieldPath::parse(part(name))?, part(value).into())?;
        }
        Ok(Flow::Continue)
    }
}
