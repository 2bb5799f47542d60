//! `convert`: changes the type of a value, or of each value of a list.

use std::net::IpAddr;

use serde_json::{Number, Value};

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument};
use crate::error::{ProcessorError, Result};
use crate::java;
use crate::pipeline::{BuildContext, PipelineRun};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetType {
    Integer,
    Long,
    Double,
    Float,
    Bool,
    Ip,
    Text,
    Auto,
}

#[derive(Debug)]
struct Convert {
    field: FieldPath,
    target: FieldPath,
    to: TargetType,
    ignore_missing: bool,
}

impl TargetType {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "integer" => Self::Integer,
            "long" => Self::Long,
            "double" => Self::Double,
            "float" => Self::Float,
            "boolean" => Self::Bool,
            "ip" => Self::Ip,
            "string" => Self::Text,
            "auto" => Self::Auto,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Long => "long",
            Self::Double => "double",
            Self::Float => "float",
            Self::Bool => "boolean",
            Self::Ip => "ip",
            Self::Text => "string",
            Self::Auto => "auto",
        }
    }
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let name = config.required_text("type")?.to_lowercase();
    let to = TargetType::parse(&name).ok_or_else(|| {
        config.refusal("type", &format!("type [{name}] not supported, cannot convert field."))
    })?;
    let target = config.path_or("target_field", &field)?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    Ok(Box::new(Convert { field, target, to, ignore_missing }))
}

/// Reads a whole number, also in hexadecimal notation.
fn whole(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?.checked_mul(sign),
        None => text.parse().ok(),
    }
}

/// Reads a floating point number as the shortest text of its type.
fn float(text: &str, is_single: bool) -> Option<Number> {
    let text = text.trim();
    let number: f64 = match is_single {
        true => text.parse::<f32>().ok().filter(|number| number.is_finite())?.to_string().parse().ok()?,
        false => text.parse().ok()?,
    };
    Number::from_f64(number)
}

fn convert(value: &Value, to: TargetType) -> Result<Value> {
    let text = java::text_of(value);
    let failed = || {
        ProcessorError::illegal_argument(format!("unable to convert [{text}] to {}", to.name()))
            .caused_by("number_format_exception", format!("For input string: \"{text}\""))
    };
    Ok(match to {
        TargetType::Integer => {
            let number = whole(&text).filter(|number| i32::try_from(*number).is_ok());
            number.ok_or_else(failed)?.into()
        }
        TargetType::Long => whole(&text).ok_or_else(failed)?.into(),
        TargetType::Double => Value::Number(float(&text, false).ok_or_else(failed)?),
        TargetType::Float => Value::Number(float(&text, true).ok_or_else(failed)?),
        TargetType::Bool if text.eq_ignore_ascii_case("true") => true.into(),
        TargetType::Bool if text.eq_ignore_ascii_case("false") => false.into(),
        TargetType::Bool => {
            let reason = format!("[{text}] is not a boolean value, cannot convert to boolean");
            return Err(ProcessorError::illegal_argument(reason));
        }
        TargetType::Ip => match text.parse::<IpAddr>() {
            Ok(_) => text.into(),
            Err(_) => {
                let reason = format!("[{text}] is not a valid ipv4/ipv6 address");
                return Err(ProcessorError::illegal_argument(reason));
            }
        },
        TargetType::Text => text.into(),
        TargetType::Auto if !value.is_string() => value.clone(),
        TargetType::Auto => match (text.as_str(), whole(&text), float(&text, true)) {
            ("true", ..) => true.into(),
            ("false", ..) => false.into(),
            (_, Some(number), _) => number.into(),
            (_, None, Some(number)) => Value::Number(number),
            _ => value.clone(),
        },
    })
}

impl Processor for Convert {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let value = match document.get(&self.field) {
            Ok(Value::Null) | Err(_) if self.ignore_missing => return Ok(Flow::Continue),
            value => value?,
        };
        let converted = match value {
            Value::Null => {
                return Err(ProcessorError::illegal_argument(format!(
                    "Field [{}] is null, cannot be converted to type [{}]",
                    self.field.as_str(),
                    self.to.name()
                )));
            }
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| convert(item, self.to)).collect::<Result<_>>()?)
            }
            single => convert(single, self.to)?,
        };
        document.set(&self.target, converted)?;
        Ok(Flow::Continue)
    }
}
