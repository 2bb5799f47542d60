//! `derivative`: by how much a value differs from that of the bucket before.

use millrace_time::CalendarUnit;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::super::interval::time_value;
use super::super::members::ErrorLabel;
use super::GapPolicy;
use super::members::{Members, unexpected, unknown_key};

/// `derivative`.
#[derive(Clone, Debug, PartialEq)]
pub struct Derivative {
    /// The values.
    pub path: String,
    /// Substitute for missing values.
    pub gap_policy: GapPolicy,
    /// Format of results.
    pub format: Option<String>,
    /// Milliseconds by which `normalized_value` is per.
    pub unit_ms: Option<f64>,
}

impl Derivative {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let (mut shared, mut unit) = (Members::default(), None);
        for (key, value) in members {
            match (key.as_str(), value) {
                ("unit", Value::String(text)) => unit = Some(text),
                _ if shared.take(part, key, value)? => {}
                (_, Value::String(_)) => return Err(unknown_key(part, key, value)),
                _ => return Err(unexpected(part, value)),
            }
        }
        let unit_ms = unit.map(|unit| unit_millis(unit)).transpose()?;
        Ok(Self { path: shared.path(part)?, gap_policy: shared.gap_policy, format: shared.format, unit_ms })
    }
}

/// Milliseconds of a unit of time; of calendar units the estimate that Java has.
fn unit_millis(text: &str) -> Result<f64> {
    let millis = match CalendarUnit::parse(text) {
        Some(CalendarUnit::Second) => 1_000,
        Some(CalendarUnit::Minute) => 60_000,
        Some(CalendarUnit::Hour) => 3_600_000,
        Some(CalendarUnit::Day) => 86_400_000,
        Some(CalendarUnit::Week) => 604_800_000,
        Some(CalendarUnit::Month) => 2_629_746_000,
        Some(CalendarUnit::Quarter) => 7_889_238_000,
        Some(CalendarUnit::Year) => 31_556_952_000,
        None => time_value("DerivativePipelineAggregationBuilder.unit", text)?,
    };
    if millis < 1 {
        return Err(Error::IllegalArgument("Zero or negative time interval not supported".to_owned()));
    }
    Ok(millis as f64)
}
