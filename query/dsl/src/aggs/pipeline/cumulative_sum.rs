//! `cumulative_sum`: the sum of a value over the buckets up to each.

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::super::members::ErrorLabel;
use super::Pipeline;
use super::members::Members;

/// Parses the aggregation.
pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Pipeline> {
    let mut shared = Members::default();
    for (key, value) in members {
        if key == "gap_policy" || !shared.take(part, key, value)? {
            return Err(part.unknown(key, &["buckets_path", "format"]));
        }
    }
    Ok(Pipeline::CumulativeSum { path: shared.path(part)?, format: shared.format })
}
