//! Processors of texts: `bytes`, `gsub`, `html_strip`, `lowercase`, `trim`, `uppercase` and `urldecode`. Each takes a text, or
//! a list of texts.

use millrace_ingest::pattern::{Deadline, Expression, Replacement};
use millrace_mapping::analysis::strip_html;
use serde_json::Value;

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, not_castable, null_value};
use crate::error::{ProcessorError, Result};
use crate::java;
use crate::pipeline::{BuildContext, PipelineRun};

/// Change of a text.
#[derive(Debug)]
enum TextChange {
    Bytes,
    Substitute(Box<Expression>, Replacement),
    StripHtml,
    Lowercase,
    Trim,
    Uppercase,
    DecodeUrl,
}

#[derive(Debug)]
struct TextProcessor {
    field: FieldPath,
    target: FieldPath,
    ignore_missing: bool,
    change: TextChange,
}

fn build(config: &mut ProcessorConfig, change: TextChange) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    let target = config.path_or("target_field", &field)?;
    Ok(Box::new(TextProcessor { field, target, ignore_missing, change }))
}

macro_rules! text_builders {
    ($($name:ident $change:ident,)*) => {
        $(pub(super) fn $name(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
            build(config, TextChange::$change)
        })*
    };
}

text_builders! {
    build_bytes Bytes,
    build_html_strip StripHtml,
    build_lowercase Lowercase,
    build_trim Trim,
    build_uppercase Uppercase,
    build_urldecode DecodeUrl,
}

pub(super) fn build_gsub(
    config: &mut ProcessorConfig,
    context: &mut BuildContext,
) -> Result<Box<dyn Processor>> {
    let pattern = config.required_text("pattern")?;
    let replacement = config.required_text("replacement")?;
    context.claim_patterns(1)?;
    let expression = Expression::compile(&pattern)
        .map_err(|reason| config.refusal("pattern", &format!("Invalid regex pattern. {reason}")))?;
    let replacement = Replacement::parse(&java_replacement(&replacement), &expression);
    build(config, TextChange::Substitute(Box::new(expression), replacement))
}

/// Turns a replacement in Java's notation (`$1`, `${name}`, `\$`) into that of [`Replacement`].
pub(crate) fn java_replacement(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '$' => match rest.peek().copied() {
                Some(digit) if digit.is_ascii_digit() => {
                    rest.next();
                    out.extend(['\\', digit]);
                }
                Some('{') => {
                    rest.next();
                    let name: String = rest.by_ref().take_while(|letter| *letter != '}').collect();
                    out.push_str(&format!("\\k<{name}>"));
                }
                _ => out.push('$'),
            },
            '\\' => match rest.next() {
                Some('\\') | None => out.push_str("\\\\"),
                Some(other) => out.push(other),
            },
            other => out.push(other),
        }
    }
    out
}

impl TextChange {
    fn apply(&self, text: &str, deadline: &Deadline) -> Result<Value> {
        Ok(match self {
            Self::Bytes => parse_bytes(text)?.into(),
            Self::Substitute(expression, replacement) => {
                let replaced = expression.replace_all(text, replacement, deadline);
                let replaced = replaced.map_err(|_| {
                    ProcessorError::illegal_argument(format!(
                        "the pattern [{}] was stopped after a second",
                        expression.as_str()
                    ))
                })?;
                replaced.unwrap_or_else(|| text.to_owned()).into()
            }
            Self::StripHtml => strip_html(text).into(),
            Self::Lowercase => text.to_lowercase().into(),
            Self::Trim => text.trim_matches(|letter: char| letter <= ' ').into(),
            Self::Uppercase => text.to_uppercase().into(),
            Self::DecodeUrl => decode_url(text)?.into(),
        })
    }
}

impl Processor for TextProcessor {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let value = match document.get(&self.field) {
            Ok(Value::Null) | Err(_) if self.ignore_missing => return Ok(Flow::Continue),
            value => value?,
        };
        let deadline = Deadline::default();
        let changed = match value {
            Value::String(text) => self.change.apply(text, &deadline)?,
            Value::Null => return Err(null_value(&self.field, "process it")),
            Value::Array(items) => {
                let changed = items.iter().map(|item| match item {
                    Value::String(text) => self.change.apply(text, &deadline),
                    other => Err(ProcessorError::illegal_argument(format!(
                        "value [{}] of type [{}] in list field [{}] cannot be cast to [java.lang.String]",
                        java::text_of(other),
                        java::type_name(other),
                        self.field.as_str()
                    ))),
                });
                Value::Array(changed.collect::<Result<_>>()?)
            }
            other => return Err(not_castable(&self.field, other, "java.lang.String")),
        };
        document.set(&self.target, changed)?;
        Ok(Flow::Continue)
    }
}

/// Reads a size such as `1kb`.
pub(crate) fn parse_bytes(text: &str) -> Result<i64> {
    const UNITS: [(&str, i64); 11] = [
        ("kb", 1 << 10),
        ("mb", 1 << 20),
        ("gb", 1 << 30),
        ("tb", 1 << 40),
        ("pb", 1 << 50),
        ("k", 1 << 10),
        ("m", 1 << 20),
        ("g", 1 << 30),
        ("t", 1 << 40),
        ("p", 1 << 50),
        ("b", 1),
    ];
    let lower = text.trim().to_lowercase();
    if lower == "-1" || lower == "0" {
        return Ok(if lower == "0" { 0 } else { -1 });
    }
    let failed = |reason: &str| {
        ProcessorError::parse(format!(
            "failed to parse setting [Ingest Field] with value [{text}] as a size in bytes: {reason}"
        ))
    };
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((lower.strip_suffix(unit)?.trim(), *bytes)));
    let Some((digits, unit)) = unit else { return Err(failed("unit is missing or unrecognized")) };
    if digits.parse::<i64>().is_err() && digits.parse::<f64>().is_ok() {
        return Err(ProcessorError::parse(format!(
            "Failed to parse bytes value [{text}]. Fractional bytes values have been deprecated since Legacy 6.2. Use \
             non-fractional bytes values instead: found for setting [Ingest Field]"
        )));
    }
    let number = digits.parse::<i64>().ok().filter(|number| *number >= 0);
    number.and_then(|number| number.checked_mul(unit)).ok_or_else(|| {
        ProcessorError::parse(format!("failed to parse [{text}]"))
            .caused_by("number_format_exception", format!("For input string: \"{digits}\""))
    })
}

/// Decodes percent signs and plus signs, as Java's `URLDecoder` does.
pub(crate) fn decode_url(text: &str) -> Result<String> {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = text.get(at..at + 2).ok_or_else(|| {
                    ProcessorError::illegal_argument("URLDecoder: Incomplete trailing escape (%) pattern")
                })?;
                let decoded = u8::from_str_radix(digits, 16).map_err(|_| {
                    ProcessorError::illegal_argument(format!(
                        "URLDecoder: Illegal hex characters in escape (%) pattern - [{digits}]"
                    ))
                })?;
                out.push(decoded);
                at += 2;
            }
            other => out.push(*other),
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}
