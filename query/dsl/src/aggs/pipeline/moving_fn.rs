//! `moving_fn`: a function of a window of values that moves over the buckets.

use std::sync::Arc;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::super::members::ErrorLabel;
use super::GapPolicy;
use super::members::Members;
use super::script::script;
use crate::expression::Expression;

/// `moving_fn`.
#[derive(Clone, Debug)]
pub struct MovingFn {
    /// The values.
    pub path: String,
    /// Substitute for missing values.
    pub gap_policy: GapPolicy,
    /// Format of results.
    pub format: Option<String>,
    /// Buckets of the window, at least 1.
    pub window: usize,
    /// Buckets by which the window is moved to the right.
    pub shift: i64,
    /// The function.
    pub script: Arc<Expression>,
}

impl MovingFn {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut shared = Members::default();
        let (mut window, mut shift, mut source) = (None, 0, None);
        for (key, value) in members {
            match key.as_str() {
                "window" => window = Some(part.int(key, value)?),
                "shift" => shift = part.int(key, value)?,
                "script" => source = Some(value),
                _ if shared.take(part, key, value)? => {}
                _ => {
                    let known = &["buckets_path", "format", "gap_policy", "script", "shift", "window"];
                    return Err(part.unknown(key, known));
                }
            }
        }
        let missing: Vec<&str> = [
            ("buckets_path", shared.paths.is_none()),
            ("script", source.is_none()),
            ("window", window.is_none()),
        ]
        .into_iter()
        .filter_map(|(name, missing)| missing.then_some(name))
        .collect();
        let (Some(window), Some(source), true) = (window, source, missing.is_empty()) else {
            return Err(Error::IllegalArgument(format!("Required [{}]", missing.join(", "))));
        };
        let window = usize::try_from(window).ok().filter(|window| *window > 0).ok_or_else(|| {
            let failed = Error::Content {
                reason: "Failed to build [moving_fn] after last required field arrived".to_owned(),
                cause: Some(Box::new(Error::IllegalArgument(
                    "[window] must be a positive, non-zero integer.".to_owned(),
                ))),
            };
            part.unread("script", failed)
        })?;
        Ok(Self {
            path: shared.path(part)?,
            gap_policy: shared.gap_policy,
            format: shared.format,
            window,
            shift,
            script: Arc::new(script(part, source)?),
        })
    }
}
