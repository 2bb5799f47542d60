//! `composite`: pages over all combinations of values of several sources.

use millrace_time::Interval;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::date_histogram::offset;
use super::histogram;
use super::interval::GivenInterval;
use super::members::ErrorLabel;
use super::source::{AcceptedMembers, ValueType, ValuesSource};
use crate::json::{content, token};

/// Most sources.
const MAX_SOURCES: usize = 64;

/// A `composite` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Composite {
    /// The sources, outermost of the order first.
    pub sources: Vec<CompositeSource>,
    /// Most buckets, 10 by default.
    pub size: usize,
    /// Key after which buckets begin: a value for each source in their order, scalars as the `after_key` showed them.
    pub after: Option<Vec<Value>>,
}

/// One source.
#[derive(Clone, Debug, PartialEq)]
pub struct CompositeSource {
    /// Name in keys.
    pub name: String,
    /// Source of values.
    pub source: ValuesSource,
    /// Conversion from values to keys.
    pub kind: CompositeKind,
    /// `true` if less comes first.
    pub ascending: bool,
    /// `true` if documents without a value have the key null.
    pub missing_bucket: bool,
    /// Position of null.
    pub missing_order: MissingOrder,
}

/// Conversion from values to keys.
#[derive(Clone, Debug, PartialEq)]
pub enum CompositeKind {
    /// As they are.
    Terms,
    /// Rounded down to multiples of a width.
    Histogram {
        /// The width, greater than 0.
        interval: f64,
    },
    /// Rounded down to an interval of time in the source's zone.
    DateHistogram {
        /// The interval.
        interval: Interval,
        /// Milliseconds added to every boundary.
        offset_ms: i64,
    },
}

/// Position of null among keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingOrder {
    /// First when ascending, last when descending.
    #[default]
    Default,
    /// Before all others.
    First,
    /// Behind all others.
    Last,
}

impl Composite {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let (mut sources, mut size, mut after) = (None, 10, None);
        for (key, value) in members {
            match key.as_str() {
                "sources" => {
                    let Value::Array(items) = value else { return Err(part.wrong_type(key, value)) };
                    sources = Some(list(items).map_err(|error| part.unread(key, error))?);
                }
                "size" => size = part.int(key, value)?,
                "after" => match value {
                    Value::Object(members) => after = Some(members),
                    _ => return Err(part.wrong_type(key, value)),
                },
                _ => return Err(part.unknown(key, &["after", "size", "sources"])),
            }
        }
        let sources: Vec<CompositeSource> =
            sources.ok_or_else(|| Error::IllegalArgument("Required [sources]".to_owned()))?;
        let size = usize::try_from(size).ok().filter(|size| *size > 0).ok_or_else(|| {
            Error::IllegalArgument(format!(
                "[size] must be greater than 0. Found [{size}] in [{}]",
                part.name
            ))
        })?;
        let after = after.map(|members| after_key(&sources, members)).transpose()?;
        Ok(Self { sources, size, after })
    }
}

fn after_key(sources: &[CompositeSource], members: &Map<String, Value>) -> Result<Vec<Value>> {
    if members.len() != sources.len() {
        return Err(Error::IllegalArgument(format!(
            "[after] has {} value(s) but [sources] has {}",
            members.len(),
            sources.len()
        )));
    }
    let value = |source: &CompositeSource| {
        let name = &source.name;
        let expected = |got: &str| {
            Error::IllegalArgument(format!(
                "Invalid value for [after.{name}], expected comparable, got [{got}]"
            ))
        };
        match members.get(name) {
            None => Err(Error::IllegalArgument(format!("Missing value for [after.{name}]"))),
            Some(Value::Null) if !source.missing_bucket => Err(expected("null")),
            Some(Value::Object(_)) => Err(expected("HashMap")),
            Some(Value::Array(_)) => Err(expected("ArrayList")),
            Some(scalar) => Ok(scalar.clone()),
        }
    };
    sources.iter().map(value).collect()
}

/// Parses the list of sources.
fn list(items: &[Value]) -> Result<Vec<CompositeSource>> {
    let failed = |reason: String| Error::Content {
        reason: "Failed to build [composite] after last required field arrived".to_owned(),
        cause: Some(Box::new(Error::IllegalArgument(reason))),
    };
    let sources: Vec<CompositeSource> =
        items.iter().take(MAX_SOURCES + 1).map(CompositeSource::parse).collect::<Result<_>>()?;
    if sources.is_empty() {
        return Err(failed("Composite [sources] cannot be null or empty".to_owned()));
    }
    if sources.len() > MAX_SOURCES {
        return Err(failed(format!("Composite [sources] has more than {MAX_SOURCES} elements")));
    }
    let mut names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    names.sort_unstable();
    let mut twice: Vec<&str> =
        names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    twice.dedup();
    if !twice.is_empty() {
        return Err(failed(format!(
            "Composite source names must be unique, found duplicates: [{}]",
            twice.join(",")
        )));
    }
    Ok(sources)
}

/// Takes the one member of an object whose value is an object.
fn only_member(value: &Value) -> Result<(&str, &Value)> {
    let expecting = |expected: &str, found: &str| {
        Error::Parsing(format!(
            "Failed to parse object: expecting token of type [{expected}] but found [{found}]"
        ))
    };
    let Value::Object(members) = value else { return Err(expecting("START_OBJECT", token(value))) };
    let mut members = members.iter();
    match (members.next(), members.next()) {
        (None, _) => Err(expecting("FIELD_NAME", "END_OBJECT")),
        (Some((name, body)), None) => Ok((name, body)),
        _ => Err(expecting("END_OBJECT", "FIELD_NAME")),
    }
}

impl CompositeSource {
    fn parse(value: &Value) -> Result<Self> {
        let (name, definition) = only_member(value)?;
        let (kind, body) = only_member(definition)?;
        let Value::Object(members) = body else {
            return Err(content(format!("[{kind}] Expected START_OBJECT but was: {}", token(body))));
        };
        let (kind, takes) = match kind {
            "terms" => ("terms", AcceptedMembers::Plain),
            "histogram" => ("histogram", AcceptedMembers::Plain),
            "date_histogram" => ("date_histogram", AcceptedMembers::FormatAndZone),
            other => return Err(Error::Parsing(format!("invalid source type: {other}"))),
        };
        let part = ErrorLabel { kind, name: "" };
        let mut source = ValuesSource::default();
        let (mut interval, mut width, mut offset_ms) = (GivenInterval::default(), None, 0);
        let (mut ascending, mut missing_bucket, mut missing_order) = (true, false, MissingOrder::default());
        let refuse = |key: &str| {
            let mut known = vec!["field", "missing_bucket", "missing_order", "order", "script", "value_type"];
            match kind {
                "histogram" => known.push("interval"),
                "date_histogram" => known.extend([
                    "calendar_interval",
                    "fixed_interval",
                    "format",
                    "interval",
                    "offset",
                    "time_zone",
                ]),
                _ => {}
            }
            part.unknown(key, &known)
        };
        for (key, value) in members {
            match (kind, key.as_str()) {
                (_, "missing") => return Err(refuse(key)),
                (_, "order") => ascending = direction(part, key, value)?,
                (_, "missing_bucket") => missing_bucket = part.boolean(key, value)?,
                (_, "missing_order") => missing_order = MissingOrder::parse(part, key, value)?,
                ("histogram", "interval") => width = Some(histogram::interval(part, key, value)?),
                ("date_histogram", "offset") => offset_ms = offset(part, key, value)?,
                ("date_histogram", _) if interval.take(part, key, value)? => {}
                _ if source.take(part, takes, key, value)? => {}
                _ => return Err(refuse(key)),
            }
        }
        if source.field.is_none() {
            return Err(Error::Exception {
                kind: "illegal_state_exception",
                status: 500,
                reason: "value source config is invalid; must have either a field or a script".to_owned(),
            });
        }
        if missing_order != MissingOrder::Default && !missing_bucket {
            return Err(Error::IllegalArgument("missing_order require missing_bucket is true".to_owned()));
        }
        let kind = match kind {
            "terms" => CompositeKind::Terms,
            "histogram" => {
                let interval =
                    width.ok_or_else(|| Error::IllegalArgument("Required [interval]".to_owned()))?;
                CompositeKind::Histogram { interval }
            }
            _ => {
                source.value_type.get_or_insert(ValueType::Date);
                CompositeKind::DateHistogram { interval: interval.required()?, offset_ms }
            }
        };
        Ok(Self { name: name.to_owned(), source, kind, ascending, missing_bucket, missing_order })
    }
}

fn direction(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<bool> {
    let text = part.text(key, value)?;
    match text.to_ascii_lowercase().as_str() {
        "asc" => Ok(true),
        "desc" => Ok(false),
        _ => Err(part.refused(
            key,
            format!("No enum constant org.opensearch.search.sort.SortOrder.{}", text.to_uppercase()),
        )),
    }
}

impl MissingOrder {
    fn parse(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Self> {
        let text = part.text(key, value)?;
        match text.to_ascii_lowercase().as_str() {
            "default" => Ok(Self::Default),
            "first" => Ok(Self::First),
            "last" => Ok(Self::Last),
            _ => Err(part.refused(
                key,
                format!(
                    "No enum constant org.opensearch.search.aggregations.bucket.missing.MissingOrder.{}",
                    text.to_uppercase()
                ),
            )),
        }
    }
}
