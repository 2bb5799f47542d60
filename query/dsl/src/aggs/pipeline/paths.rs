//! `buckets_path`: the values that a pipeline aggregation reads.

use std::collections::BTreeMap;

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::super::members::ErrorLabel;
use crate::json::token;

/// Most paths of one aggregation.
pub(super) const MAX_PATHS: usize = 256;

/// The value of `buckets_path`.
#[derive(Debug)]
pub(super) enum Paths {
    One(String),
    Several(Vec<String>),
    Named(BTreeMap<String, String>),
}

impl Paths {
    /// Reads the value.
    pub(super) fn parse(part: ErrorLabel<'_>, value: &Value) -> Result<Self> {
        let unexpected = || Error::Parsing(format!("Unexpected token {} in [{}].", token(value), part.name));
        let path = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(unexpected);
        let paths = match value {
            Value::String(path) => Self::One(path.clone()),
            Value::Array(items) => Self::Several(items.iter().map(path).collect::<Result<_>>()?),
            Value::Object(named) => {
                // Only expressions have names for what they read.
                if !matches!(part.kind, "bucket_script" | "bucket_selector") {
                    return Err(unexpected());
                }
                let named = named.iter().map(|(name, value)| Ok((name.clone(), path(value)?)));
                Self::Named(named.collect::<Result<_>>()?)
            }
            _ => return Err(unexpected()),
        };
        let number = match &paths {
            Self::One(_) => 1,
            Self::Several(paths) => paths.len(),
            Self::Named(paths) => paths.len(),
        };
        match number {
            1..=MAX_PATHS => Ok(paths),
            _ => Err(Error::IllegalArgument(format!(
                "[buckets_path] of aggregation [{}] must have 1 to {MAX_PATHS} paths, found {number}",
                part.name
            ))),
        }
    }

    /// The one path of an aggregation that has one.
    pub(super) fn single(self, part: ErrorLabel<'_>) -> Result<String> {
        match self {
            Self::One(path) => Ok(path),
            Self::Several(paths) => match <[String; 1]>::try_from(paths) {
                Ok([path]) => Ok(path),
                Err(_) => Err(Error::validation(&[format!(
                    "must contain a single entry for aggregation [{}]",
                    part.name
                )])),
            },
            Self::Named(_) => {
                Err(Error::Parsing(format!("Unexpected token START_OBJECT in [{}].", part.name)))
            }
        }
    }

    /// Paths with the names that expressions know them by.
    pub(super) fn named(self) -> Vec<(String, String)> {
        match self {
            Self::One(path) => vec![("_value".to_owned(), path)],
            Self::Several(paths) => {
                paths.into_iter().enumerate().map(|(at, path)| (format!("_value{at}"), path)).collect()
            }
            Self::Named(paths) => paths.into_iter().collect(),
        }
    }
}
