//! `histogram`: buckets of equal width.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::order::BucketOrder;
use super::source::{AcceptedMembers, ValuesSource};
use super::terms::not_negative;

/// Members of the aggregation.
const KNOWN: &[&str] = &[
    "extended_bounds",
    "field",
    "format",
    "hard_bounds",
    "interval",
    "keyed",
    "min_doc_count",
    "missing",
    "offset",
    "order",
    "script",
    "value_type",
];

/// A `histogram` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Source of values.
    pub source: ValuesSource,
    /// Width of a bucket, greater than 0.
    pub interval: f64,
    /// Offset of boundaries, between 0 and `interval`.
    pub offset: f64,
    /// `true` if buckets are members of an object.
    pub keyed: bool,
    /// Least documents of a bucket; with 0 (the default) gaps are filled with empty buckets.
    pub min_doc_count: u64,
    /// Order of buckets; by key where the request does not say.
    pub order: BucketOrder,
    /// Span that empty buckets fill at least.
    pub extended_bounds: Option<Bounds>,
    /// Span outside of which there are no buckets.
    pub hard_bounds: Option<Bounds>,
}

/// Bounds of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Lower bound; open where absent.
    pub min: Option<f64>,
    /// Upper bound; open where absent.
    pub max: Option<f64>,
}

impl Histogram {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut histogram = Self {
            source: ValuesSource::default(),
            interval: 0.0,
            offset: 0.0,
            keyed: false,
            min_doc_count: 0,
            order: BucketOrder::key_ascending(),
            extended_bounds: None,
            hard_bounds: None,
        };
        for (key, value) in members {
            match key.as_str() {
                "interval" => histogram.interval = interval(part, key, value)?,
                "offset" => histogram.offset = part.double(key, value)?,
                "keyed" => histogram.keyed = part.boolean(key, value)?,
                "min_doc_count" => {
                    histogram.min_doc_count = not_negative(part, key, "minDocCount", value)?;
                }
                "order" => histogram.order = BucketOrder::parse(part, key, value)?,
                "extended_bounds" => histogram.extended_bounds = Some(Bounds::parse(part, key, value)?),
                "hard_bounds" => histogram.hard_bounds = Some(Bounds::parse(part, key, value)?),
                _ if histogram.source.take(part, AcceptedMembers::Format, key, value)? => {}
                _ => return Err(part.unknown(key, KNOWN)),
            }
        }
        histogram.source = histogram.source.required(part)?;
        if histogram.interval == 0.0 {
            return Err(Error::IllegalArgument("interval must be positive, got: 0.0".to_owned()));
        }
        if let (Some(hard), Some(extended)) = (histogram.hard_bounds, histogram.extended_bounds) {
            let below = |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| a < b);
            if below(extended.min, hard.min) || below(hard.max, extended.max) {
                return Err(Error::IllegalArgument(format!(
                    "Extended bounds have to be inside hard bounds, hard bounds: [{}], extended bounds: [{}]",
                    hard.text(),
                    extended.text()
                )));
            }
        }
        Ok(histogram)
    }
}

/// Reads the width of buckets.
pub(super) fn interval(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<f64> {
    let number = part.double(key, value)?;
    if number.is_finite() && number > 0.0 {
        return Ok(number);
    }
    let reason = match part.name {
        "" => "[interval] must be greater than 0 for [histogram] source".to_owned(),
        name => format!("[interval] must be >0 for histogram aggregation [{name}]"),
    };
    Err(part.refused(key, reason))
}

impl Bounds {
    fn parse(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Self> {
        let Value::Object(members) = value else { return Err(part.wrong_type(key, value)) };
        let own = ErrorLabel { kind: "double_bounds", name: part.name };
        let mut bounds = Self::default();
        for (bound, value) in members {
            let slot = match bound.as_str() {
                "min" => &mut bounds.min,
                "max" => &mut bounds.max,
                _ => return Err(part.unread(key, own.unknown(bound, &["max", "min"]))),
            };
            if !value.is_null() {
                *slot = Some(own.double(bound, value).map_err(|error| part.unread(key, error))?);
            }
        }
        match (bounds.min, bounds.max) {
            (Some(min), Some(max)) if min > max => {
                Err(part
                    .refused(key, format!("max bound [{max:?}] must be greater than min bound [{min:?}]")))
            }
            _ => Ok(bounds),
        }
    }

    fn text(self) -> String {
        let bound = |bound: Option<f64>| bound.map(|bound| format!("{bound:?}")).unwrap_or_default();
        format!("{}--{}", bound(self.min), bound(self.max))
    }
}
