//! `nested` and `reverse_nested`: to elements of a nested path, and back.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use crate::json::token;

/// A `nested` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Nested {
    /// The path whose elements are aggregated.
    pub path: String,
}

/// A `reverse_nested` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct ReverseNested {
    /// The path to go back to; the documents themselves where absent.
    pub path: Option<String>,
}

impl Nested {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let path = path(part, members)?;
        let path = path.ok_or_else(|| {
            Error::Parsing(format!("Missing [path] field for nested aggregation [{}]", part.name))
        })?;
        Ok(Self { path })
    }
}

impl ReverseNested {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        Ok(Self { path: path(part, members)? })
    }
}

fn path(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Option<String>> {
    let mut path = None;
    for (key, value) in members {
        path = match (key.as_str(), value) {
            ("path", Value::String(text)) => Some(text.clone()),
            (_, Value::String(_)) => {
                return Err(Error::Parsing(format!(
                    "Unknown key for a VALUE_STRING in [{}]: [{key}].",
                    part.name
                )));
            }
            _ => {
                return Err(Error::Parsing(format!("Unexpected token {} in [{}].", token(value), part.name)));
            }
        };
    }
    Ok(path)
}
