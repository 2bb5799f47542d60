//! `date_histogram`: buckets of equal spans of time, or of calendar units.

use millrace_time::Interval;
use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::interval::{GivenInterval, time_value};
use super::members::ErrorLabel;
use super::order::BucketOrder;
use super::source::{AcceptedMembers, ValuesSource};
use super::terms::not_negative;

/// Members of the aggregation.
const KNOWN: &[&str] = &[
    "calendar_interval",
    "extended_bounds",
    "field",
    "fixed_interval",
    "format",
    "hard_bounds",
    "interval",
    "keyed",
    "min_doc_count",
    "missing",
    "offset",
    "order",
    "script",
    "time_zone",
    "value_type",
];

/// A `date_histogram` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct DateHistogram {
    /// Source of values; its `time_zone` is that of rounding and keys.
    pub source: ValuesSource,
    /// The interval.
    pub interval: Interval,
    /// Milliseconds added to every boundary.
    pub offset_ms: i64,
    /// `true` if buckets are members of an object.
    pub keyed: bool,
    /// Least documents of a bucket; with 0 (the default) gaps are filled with empty buckets.
    pub min_doc_count: u64,
    /// Order of buckets; by key where the request does not say.
    pub order: BucketOrder,
    /// Span that empty buckets fill at least.
    pub extended_bounds: Option<DateBounds>,
    /// Span outside of which there are no buckets.
    pub hard_bounds: Option<DateBounds>,
}

/// Bounds: numbers (milliseconds) or texts in the field's or the aggregation's format, date math included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DateBounds {
    /// Lower bound; open where absent.
    pub min: Option<Value>,
    /// Upper bound; open where absent.
    pub max: Option<Value>,
}

impl DateHistogram {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut source = ValuesSource::default();
        let mut interval = GivenInterval::default();
        let (mut offset_ms, mut keyed, mut min_doc_count) = (0, false, 0);
        let mut order = BucketOrder::key_ascending();
        let (mut extended_bounds, mut hard_bounds) = (None, None);
        for (key, value) in members {
            match key.as_str() {
                "offset" => offset_ms = offset(part, key, value)?,
                "keyed" => keyed = part.boolean(key, value)?,
                "min_doc_count" => min_doc_count = not_negative(part, key, "minDocCount", value)?,
                "order" => order = BucketOrder::parse(part, key, value)?,
                "extended_bounds" => extended_bounds = Some(DateBounds::parse(part, key, value)?),
                "hard_bounds" => hard_bounds = Some(DateBounds::parse(part, key, value)?),
                _ if interval.take(part, key, value)? => {}
                _ if source.take(part, AcceptedMembers::FormatAndZone, key, value)? => {}
                _ => return Err(part.unknown(key, KNOWN)),
            }
        }
        Ok(Self {
            source: source.required(part)?,
            interval: interval.required()?,
            offset_ms,
            keyed,
            min_doc_count,
            order,
            extended_bounds,
            hard_bounds,
        })
    }
}

impl DateBounds {
    fn parse(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Self> {
        let Value::Object(members) = value else { return Err(part.wrong_type(key, value)) };
        let own = ErrorLabel { kind: "bounds", name: part.name };
        let mut bounds = Self::default();
        for (bound, value) in members {
            let parsed = match value {
                Value::Null => None,
                Value::Number(_) | Value::String(_) => Some(value.clone()),
                _ => return Err(part.unread(key, own.wrong_type(bound, value))),
            };
            match bound.as_str() {
                "min" => bounds.min = parsed,
                "max" => bounds.max = parsed,
                _ => return Err(part.unread(key, own.unknown(bound, &["max", "min"]))),
            }
        }
        Ok(bounds)
    }
}

/// Reads an offset: milliseconds, or a span of time with a sign.
pub(super) fn offset(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<i64> {
    match value {
        Value::Number(_) => part.long(key, value),
        Value::String(text) => {
            let (sign, span) = match text.strip_prefix('-') {
                Some(rest) => (-1, rest),
                None => (1, text.strip_prefix('+').unwrap_or(text)),
            };
            let millis = time_value("DateHistogramAggregationBuilder.parseOffset", span);
            millis.map(|millis| sign * millis).map_err(|error| part.unread(key, error))
        }
        _ => Err(part.wrong_type(key, value)),
    }
}
