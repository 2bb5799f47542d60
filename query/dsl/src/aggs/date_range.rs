//! `date_range`: buckets between dates.

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::range::{Members, range_key};
use super::source::{AcceptedMembers, ValuesSource};

/// Members of the aggregation.
const KNOWN: &[&str] =
    &["field", "format", "keyed", "missing", "ranges", "script", "time_zone", "value_type"];

/// A `date_range` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct DateRange {
    /// Source of values; its `format` and `time_zone` read bounds and write keys.
    pub source: ValuesSource,
    /// `true` if buckets are members of an object.
    pub keyed: bool,
    /// The ranges, in the order of the request. Buckets come ordered by `from`, then `to`.
    pub ranges: Vec<DateRangeItem>,
}

/// One range: `from` belongs to it, `to` does not.
#[derive(Clone, Debug, PartialEq)]
pub struct DateRangeItem {
    /// Key; made of the bounds where absent.
    pub key: Option<String>,
    /// Lower bound; open where absent.
    pub from: Option<DateBound>,
    /// Upper bound; open where absent.
    pub to: Option<DateBound>,
}

/// A bound.
#[derive(Clone, Debug, PartialEq)]
pub enum DateBound {
    /// A number, which the format reads as its text (milliseconds by default).
    Number(f64),
    /// A text in the format, date math included.
    Text(String),
}

impl DateRange {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let Members { source, keyed, ranges } =
            Members::parse(part, AcceptedMembers::FormatAndZone, KNOWN, members, DateRangeItem::parse)?;
        Ok(Self { source, keyed, ranges })
    }
}

impl DateRangeItem {
    fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut range = Self { key: None, from: None, to: None };
        for (key, value) in members {
            match key.as_str() {
                "key" => range.key = range_key(part, key, value)?,
                "from" => range.from = bound(part, key, value)?,
                "to" => range.to = bound(part, key, value)?,
                _ => return Err(part.unknown(key, &["from", "key", "to"])),
            }
        }
        Ok(range)
    }
}

fn bound(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Option<DateBound>> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) => Ok(number.as_f64().map(DateBound::Number)),
        Value::String(text) => Ok(Some(DateBound::Text(text.clone()))),
        _ => Err(part.wrong_type(key, value)),
    }
}
