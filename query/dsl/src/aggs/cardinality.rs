//! `cardinality`: the number of distinct values.

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::source::{AcceptedMembers, ValuesSource};

/// Values that are counted exactly at least where the request does not say.
const DEFAULT_THRESHOLD: u64 = 3_000;
/// Greatest threshold, as OpenSearch has it.
const MAX_THRESHOLD: u64 = 40_000;

/// A `cardinality` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Cardinality {
    /// Source of values.
    pub source: ValuesSource,
    /// Number of values up to which the count is exact at least.
    pub precision_threshold: u64,
}

impl Cardinality {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut cardinality =
            Self { source: ValuesSource::default(), precision_threshold: DEFAULT_THRESHOLD };
        for (key, value) in members {
            match key.as_str() {
                "precision_threshold" => {
                    let number = part.long(key, value)?;
                    let threshold = u64::try_from(number).map_err(|_| {
                        let reason = format!(
                            "[precisionThreshold] must be greater than or equal to 0. Found [{number}] in [{}]",
                            part.name
                        );
                        part.refused(key, reason)
                    })?;
                    cardinality.precision_threshold = threshold.min(MAX_THRESHOLD);
                }
                // Neither changes the answer.
                "execution_hint" => {
                    part.text(key, value)?;
                }
                "rehash" if value.is_string() => {}
                "rehash" => return Err(part.wrong_type(key, value)),
                _ if cardinality.source.take(part, AcceptedMembers::Plain, key, value)? => {}
                _ => {
                    let known = &[
                        "execution_hint",
                        "field",
                        "missing",
                        "precision_threshold",
                        "script",
                        "value_type",
                    ];
                    return Err(part.unknown(key, known));
                }
            }
        }
        cardinality.source = cardinality.source.required(part)?;
        Ok(cardinality)
    }
}
