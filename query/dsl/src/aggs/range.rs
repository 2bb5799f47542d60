//! `range`: buckets between numbers.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::source::{AcceptedMembers, ValuesSource};
use crate::json::{self, content, token};

/// Most ranges of one aggregation.
pub(super) const MAX_RANGES: usize = 10_000;

/// A `range` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// Source of values.
    pub source: ValuesSource,
    /// `true` if buckets are members of an object.
    pub keyed: bool,
    /// The ranges, in the order of the request. Buckets come ordered by `from`, then `to`.
    pub ranges: Vec<NumericRange>,
}

/// One range: `from` belongs to it, `to` does not.
#[derive(Clone, Debug, PartialEq)]
pub struct NumericRange {
    /// Key; made of the bounds where absent.
    pub key: Option<String>,
    /// Lower bound; open where absent.
    pub from: Option<f64>,
    /// Upper bound; open where absent.
    pub to: Option<f64>,
}

impl Range {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let Members { source, keyed, ranges } =
            Members::parse(part, AcceptedMembers::Format, KNOWN, members, NumericRange::parse)?;
        Ok(Self { source, keyed, ranges })
    }
}

/// Members of aggregations over ranges.
pub(super) const KNOWN: &[&str] = &["field", "format", "keyed", "missing", "ranges", "script", "value_type"];

/// Common members of aggregations over ranges; each has ranges of its own.
pub(super) struct Members<T> {
    pub(super) source: ValuesSource,
    pub(super) keyed: bool,
    pub(super) ranges: Vec<T>,
}

impl<T> Members<T> {
    /// Reads the members: shared ones as `takes` allows, a range by `parse`. An error lists those that are `known`.
    pub(super) fn parse(
        part: ErrorLabel<'_>,
        takes: AcceptedMembers,
        known: &[&str],
        members: &Map<String, Value>,
        parse: fn(ErrorLabel<'_>, &Map<String, Value>) -> Result<T>,
    ) -> Result<Self> {
        let (mut source, mut keyed, mut ranges) = (ValuesSource::default(), false, Vec::new());
        for (key, value) in members {
            match key.as_str() {
                "keyed" => keyed = part.boolean(key, value)?,
                "ranges" => ranges = list(part, key, value, parse)?,
                _ if source.take(part, takes, key, value)? => {}
                _ => return Err(part.unknown(key, known)),
            }
        }
        let source = source.required(part)?;
        specified(part, &ranges)?;
        Ok(Self { source, keyed, ranges })
    }
}

/// Parses the list of ranges.
fn list<T>(
    part: ErrorLabel<'_>,
    key: &str,
    value: &Value,
    parse: fn(ErrorLabel<'_>, &Map<String, Value>) -> Result<T>,
) -> Result<Vec<T>> {
    let Value::Array(items) = value else { return Err(part.wrong_type(key, value)) };
    if items.len() > MAX_RANGES {
        let reason = format!("too many ranges: {} given, at most {MAX_RANGES} allowed", items.len());
        return Err(part.refused(key, reason));
    }
    let own = ErrorLabel { kind: "range", name: part.name };
    let ranges: Result<Vec<T>> = items
        .iter()
        .map(|item| match item {
            Value::Object(members) => parse(own, members),
            other => Err(content(format!("[range] Expected START_OBJECT but was: {}", token(other)))),
        })
        .collect();
    ranges.map_err(|error| part.unread(key, error))
}

/// Checks that there are ranges.
fn specified<T>(part: ErrorLabel<'_>, ranges: &[T]) -> Result<()> {
    if ranges.is_empty() {
        return Err(Error::IllegalArgument(format!(
            "No [ranges] specified for the [{}] aggregation",
            part.name
        )));
    }
    Ok(())
}

impl NumericRange {
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

/// Reads the key of a range.
pub(super) fn range_key(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::String(_) | Value::Number(_) => Ok(json::text(value)),
        _ => Err(part.wrong_type(key, value)),
    }
}

fn bound(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Option<f64>> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) => Ok(number.as_f64()),
        Value::String(text) => text.trim().parse().map(Some).map_err(|_| json::not_a_number(text)),
        _ => Err(part.wrong_type(key, value)),
    }
}
