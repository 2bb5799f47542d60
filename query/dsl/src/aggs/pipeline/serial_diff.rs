//! `serial_diff`: by how much a value differs from that of some buckets before.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::super::members::ErrorLabel;
use super::GapPolicy;
use super::members::{Members, unknown_key};

/// `serial_diff`.
#[derive(Clone, Debug, PartialEq)]
pub struct SerialDiff {
    /// The values.
    pub path: String,
    /// Substitute for missing values.
    pub gap_policy: GapPolicy,
    /// Format of results.
    pub format: Option<String>,
    /// Buckets back to the value that is subtracted, at least 1.
    pub lag: usize,
}

impl SerialDiff {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let (mut shared, mut lag) = (Members::default(), 1);
        for (key, value) in members {
            match (key.as_str(), value) {
                ("lag", Value::Number(_)) => {
                    let number = part.int(key, value)?;
                    lag = usize::try_from(number).ok().filter(|lag| *lag > 0).ok_or_else(|| {
                        Error::Parsing(format!(
                            "Lag must be a positive, non-zero integer.  Value supplied was{number} in [{}]: [lag].",
                            part.name
                        ))
                    })?;
                }
                _ if shared.take(part, key, value)? => {}
                _ => return Err(unknown_key(part, key, value)),
            }
        }
        Ok(Self { path: shared.path(part)?, gap_policy: shared.gap_policy, format: shared.format, lag })
    }
}
