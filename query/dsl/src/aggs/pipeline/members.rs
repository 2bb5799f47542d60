//! Members that most pipeline aggregations have, and how those are refused that one does not have.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::super::members::ErrorLabel;
use super::GapPolicy;
use super::paths::Paths;
use crate::json::token;

/// The members of a pipeline aggregation, as far as they are read.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) paths: Option<Paths>,
    pub(super) format: Option<String>,
    pub(super) gap_policy: GapPolicy,
}

impl Members {
    /// Takes one of the members that most have; returns whether it is one.
    pub(super) fn take(&mut self, part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<bool> {
        match (key, value) {
            ("buckets_path", _) => self.paths = Some(Paths::parse(part, value)?),
            ("format", Value::String(format)) => self.format = Some(format.clone()),
            ("gap_policy", Value::String(policy)) => {
                self.gap_policy = match policy.to_ascii_lowercase().as_str() {
                    "skip" => GapPolicy::Skip,
                    "insert_zeros" => GapPolicy::InsertZeros,
                    _ => {
                        return Err(Error::Parsing(format!(
                            "Invalid gap policy: [{policy}], accepted values: [insert_zeros, skip]"
                        )));
                    }
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the paths, which are required.
    pub(super) fn paths(&mut self, part: ErrorLabel<'_>) -> Result<Paths> {
        self.paths.take().ok_or_else(|| {
            let kind = match part.kind.ends_with("_bucket") {
                true => String::new(),
                false => format!("{} ", part.kind),
            };
            Error::Parsing(format!(
                "Missing required field [buckets_path] for {kind}aggregation [{}]",
                part.name
            ))
        })
    }

    /// Returns the one path, which is required.
    pub(super) fn path(&mut self, part: ErrorLabel<'_>) -> Result<String> {
        self.paths(part)?.single(part)
    }
}

/// Makes the error of a value of a type that no member takes.
pub(super) fn unexpected(part: ErrorLabel<'_>, value: &Value) -> Error {
    Error::Parsing(format!("Unexpected token {} in [{}].", token(value), part.name))
}

/// Makes the error of a member that does not exist.
pub(super) fn unknown_key(part: ErrorLabel<'_>, key: &str, value: &Value) -> Error {
    match value {
        Value::String(_) | Value::Number(_) => {
            Error::Parsing(format!("Unknown key for a {} in [{}]: [{key}].", token(value), part.name))
        }
        other => unexpected(part, other),
    }
}
