//! `grok`: matches a text with patterns and puts what they capture into fields.

use std::collections::BTreeMap;

use millrace_ingest::pattern::{Captures, Deadline, Library, Pattern};
use serde_json::{Number, Value};

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, null_value};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

/// Most patterns of a processor.
const MAX_PATTERNS: usize = 1_000;

/// A pattern that OpenSearch has and Logstash dropped.
const ISO8601_HOUR: (&str, &str) = ("ISO8601_HOUR", "(?:2[0123]|[01][0-9])");
/// Patterns that Logstash has added since. They work in pipelines, and the list of OpenSearch's patterns leaves them out.
const ADDED_BY_LOGSTASH: [&str; 6] = [
    "EXIM",
    "EXIM_MESSAGE_ARRIVAL",
    "EXIM_NAMED_FIELDS",
    "EXIM_UNKNOWN_FIELD",
    "HTTPD_COMBINEDLOG",
    "HTTPD_COMMONLOG",
];

/// Makes the library that every processor begins with.
fn library() -> Result<Library> {
    let mut library = Library::new();
    library.define(ISO8601_HOUR.0, ISO8601_HOUR.1).map_err(ProcessorError::illegal_state)?;
    Ok(library)
}

/// Returns the patterns of OpenSearch, which every pipeline knows, by name.
///
/// # Errors
/// A pattern has no valid name, which is a defect.
pub fn grok_patterns() -> Result<BTreeMap<String, String>> {
    let library = library()?;
    let listed = library.definitions().filter(|(name, _)| !ADDED_BY_LOGSTASH.contains(name));
    Ok(listed.map(|(name, text)| (name.to_owned(), text.to_owned())).collect())
}

/// Type of a captured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaptureType {
    Text,
    Whole,
    Float,
    Bool,
}

impl CaptureType {
    /// Reads the name of a type; unknown ones are texts, as in OpenSearch.
    fn parse(name: Option<&str>) -> Self {
        match name {
            Some("int" | "long") => Self::Whole,
            Some("float" | "double") => Self::Float,
            Some("boolean") => Self::Bool,
            _ => Self::Text,
        }
    }

    fn convert(self, text: &str) -> Result<Value> {
        let refused =
            || ProcessorError::new(400, "number_format_exception", format!("For input string: \"{text}\""));
        Ok(match self {
            Self::Text => text.into(),
            Self::Whole => text.trim_start_matches('+').parse::<i64>().map_err(|_| refused())?.into(),
            Self::Float => {
                let number = text.parse::<f64>().ok().and_then(Number::from_f64);
                Value::Number(number.ok_or_else(refused)?)
            }
            Self::Bool => text.eq_ignore_ascii_case("true").into(),
        })
    }
}

#[derive(Debug)]
struct GrokExpression {
    pattern: Pattern,
    captures: Vec<(FieldPath, CaptureType)>,
}

#[derive(Debug)]
struct Grok {
    field: FieldPath,
    expressions: Vec<GrokExpression>,
    trace_match: bool,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, context: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let patterns = config.required_texts("patterns")?;
    let trace_match = config.flag("trace_match", false)?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    if patterns.is_empty() {
        return Err(config.refusal("patterns", "List of patterns must not be empty"));
    }
    if patterns.len() > MAX_PATTERNS {
        return Err(config.refusal("patterns", &format!("there are more than {MAX_PATTERNS} patterns")));
    }
    context.claim_patterns(patterns.len())?;
    let mut library = library()?;
    for (name, definition) in config.object("pattern_definitions")?.unwrap_or_default() {
        let Some(definition) = definition.as_str() else {
            return Err(
                config.refusal("pattern_definitions", &format!("the pattern [{name}] must be a string"))
            );
        };
        library.define(&name, definition).map_err(|reason| config.refusal("pattern_definitions", &reason))?;
    }
    let mut expressions = Vec::with_capacity(patterns.len());
    for text in patterns {
        let pattern = Pattern::compile(&text, &library, true).map_err(|reason| {
            config.refusal("patterns", &format!("Invalid regex pattern found in: [{text}]. {reason}"))
        })?;
        let captures = pattern.captures().iter().map(|capture| {
            Ok((FieldPath::parse(&capture.name)?, CaptureType::parse(capture.type_name.as_deref())))
        });
        let captures = captures.collect::<Result<_>>()?;
        expressions.push(GrokExpression { pattern, captures });
    }
    Ok(Box::new(Grok { field, expressions, trace_match, ignore_missing }))
}

impl Processor for Grok {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let text = match document.get(&self.field) {
            Ok(Value::Null) if !self.ignore_missing => return Err(null_value(&self.field, "process it")),
            _ => document.text(&self.field, self.ignore_missing)?,
        };
        let Some(text) = text.map(str::to_owned) else { return Ok(Flow::Continue) };
        let deadline = Deadline::default();
        // As with one expression of all alternatives, the leftmost match counts, then the order.
        let mut first: Option<(usize, &GrokExpression, Captures<'_>)> = None;
        for (number, expression) in self.expressions.iter().enumerate() {
            let found = expression.pattern.find(&text, &deadline).map_err(|_| {
                ProcessorError::new(
                    500,
                    "runtime_exception",
                    "grok pattern matching was interrupted after [1000] ms",
                )
            })?;
            let Some(found) = found else { continue };
            let start = found.whole().start;
            if first.as_ref().is_none_or(|(.., first)| start < first.whole().start) {
                first = Some((number, expression, found));
            }
            if start == 0 {
                break;
            }
        }
        if let Some((number, expression, found)) = first {
            // Of captures with one name the first that took part counts.
            let mut seen: Vec<&FieldPath> = Vec::new();
            for (at, (field, of)) in expression.captures.iter().enumerate() {
                let captured = found.range(at).and_then(|range| text.get(range));
                if let Some(captured) = captured
                    && !seen.contains(&field)
                {
                    document.set(field, of.convert(captured)?)?;
                    seen.push(field);
                }
            }
            if self.trace_match {
                document.ingest.insert("_grok_match_index".to_owned(), number.to_string().into());
            }
            return Ok(Flow::Continue);
        }
        Err(ProcessorError::illegal_argument(format!(
            "Provided Grok expressions do not match field value: [{text}]"
        )))
    }
}
