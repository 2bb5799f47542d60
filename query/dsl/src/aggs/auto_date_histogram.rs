//! `auto_date_histogram`: about so many buckets, of the least interval that gives no more.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::source::{AcceptedMembers, ValuesSource};

/// Most buckets that may be asked for: `search.max_buckets` of 65,535 by the 30 of the widest step.
const MAX_BUCKETS: i64 = 2_184;

/// An `auto_date_histogram` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoDateHistogram {
    /// Source of values.
    pub source: ValuesSource,
    /// Most buckets, 10 by default.
    pub buckets: usize,
    /// Least interval.
    pub minimum_interval: Option<MinimumInterval>,
}

/// Values of `minimum_interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum MinimumInterval {
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Year,
}

impl AutoDateHistogram {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut auto = Self { source: ValuesSource::default(), buckets: 10, minimum_interval: None };
        for (key, value) in members {
            match key.as_str() {
                "buckets" => {
                    let number = part.int(key, value)?;
                    if number < 1 {
                        let reason = format!("buckets must be greater than 0 for [{}]", part.name);
                        return Err(part.refused(key, reason));
                    }
                    if number > MAX_BUCKETS {
                        return Err(Error::IllegalArgument(format!(
                            "buckets must be less than {MAX_BUCKETS}"
                        )));
                    }
                    auto.buckets = number as usize;
                }
                "minimum_interval" => {
                    auto.minimum_interval = Some(match part.text(key, value)?.as_str() {
                        "second" => MinimumInterval::Second,
                        "minute" => MinimumInterval::Minute,
                        "hour" => MinimumInterval::Hour,
                        "day" => MinimumInterval::Day,
                        "month" => MinimumInterval::Month,
                        "year" => MinimumInterval::Year,
                        _ => {
                            let reason =
                                "minimum_interval must be one of [[month, hour, year, day, minute, second]]";
                            return Err(part.refused(key, reason.to_owned()));
                        }
                    });
                }
                _ if auto.source.take(part, AcceptedMembers::FormatAndZone, key, value)? => {}
                _ => {
                    return Err(part.unknown(
                        key,
                        &[
                            "buckets",
                            "field",
                            "format",
                            "minimum_interval",
                            "missing",
                            "script",
                            "time_zone",
                            "value_type",
                        ],
                    ));
                }
            }
        }
        auto.source = auto.source.required(part)?;
        Ok(auto)
    }
}
