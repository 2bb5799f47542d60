//! `bucket_script` and `bucket_selector`: an expression over values of a bucket.

use std::sync::Arc;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::super::members::ErrorLabel;
use super::GapPolicy;
use super::members::{Members, unknown_key};
use super::script::script;
use crate::expression::Expression;

/// `bucket_script` or `bucket_selector`.
#[derive(Clone, Debug)]
pub struct BucketExpression {
    /// Names of variables and the values that they stand for, ordered by name.
    pub paths: Vec<(String, String)>,
    /// The expression.
    pub expression: Arc<Expression>,
    /// Substitute for missing values.
    pub gap_policy: GapPolicy,
    /// Format of results.
    pub format: Option<String>,
}

impl BucketExpression {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let (mut shared, mut source) = (Members::default(), None);
        for (key, value) in members {
            match (key.as_str(), part.kind) {
                ("script", _) => source = Some(script(part, value)?),
                ("format", "bucket_selector") => return Err(unknown_key(part, key, value)),
                _ if shared.take(part, key, value)? => {}
                _ => return Err(unknown_key(part, key, value)),
            }
        }
        let paths = shared.paths(part)?;
        let expression = source.ok_or_else(|| {
            Error::Parsing(format!(
                "Missing required field [script] for {} aggregation [{}]",
                part.kind, part.name
            ))
        })?;
        Ok(Self {
            paths: paths.named(),
            expression: Arc::new(expression),
            gap_policy: shared.gap_policy,
            format: shared.format,
        })
    }
}
