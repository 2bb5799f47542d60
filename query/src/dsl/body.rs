//! The body of a search.

use serde_json::{Map, Value};

use super::collapse::Collapse;
use super::fields::{self, FieldAndFormat};
use super::highlight::Highlight;
use super::query::{self, Query};
use super::source_filter::SourceFilter;
use super::{json, sort};
use crate::error::{Error, Result};

/// A parsed `_search` body; absent members are `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchBody {
    /// What matches; everything where absent.
    pub query: Option<Query>,
    /// Hits to skip.
    pub from: Option<usize>,
    /// Hits to return.
    pub size: Option<usize>,
    /// The order; by score where empty.
    pub sort: Vec<sort::SortKey>,
    /// Which part of the source hits show.
    pub source: Option<SourceFilter>,
    /// Which stored fields hits show.
    pub stored_fields: Option<StoredFields>,
    /// Fields that hits show by their values in the source.
    pub fields: Vec<FieldAndFormat>,
    /// Fields that hits show by their columns.
    pub docvalue_fields: Vec<FieldAndFormat>,
    /// Number of computed fields asked for.
    pub script_fields: usize,
    /// What hits show marked up.
    pub highlight: Option<Highlight>,
    /// Groups of hits.
    pub collapse: Option<Collapse>,
    /// How far hits are counted.
    pub track_total_hits: Option<TrackHits>,
    /// Whether scores are computed though they do not order.
    pub track_scores: bool,
    /// Sort values to go on after.
    pub search_after: Option<Vec<Value>>,
    /// Whether hits show their version.
    pub version: bool,
    /// Whether hits show sequence number and primary term.
    pub seq_no_primary_term: bool,
    /// Time after which the hits so far are returned, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Matches of a shard after which it stops; 0 is without bound.
    pub terminate_after: u64,
    /// Part of a sliced scroll.
    pub slice: Option<Slice>,
}

/// How far hits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrackHits {
    /// Exactly.
    All,
    /// Not at all.
    None,
    /// Exactly up to a number; beyond it only that there are more.
    UpTo(u64),
}

/// `stored_fields`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoredFields {
    /// `_none_`: neither ids nor source.
    None,
    /// Named fields; the source only where `_source` is among them.
    Named(Vec<String>),
}

/// Part `id` of `max` of a scroll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Number of this part, from 0.
    pub id: u64,
    /// Number of parts.
    pub max: u64,
}

impl SearchBody {
    /// Parses a body; unknown keys are refused.
    pub(crate) fn parse(value: &Value) -> Result<Self> {
        let mut body = Self::default();
        for (key, value) in top_level(value)? {
            match key.as_str() {
                "query" => body.query = Some(query::parse(value)?),
                "from" => body.from = Some(from(json::integer(value)?)?),
                "size" => body.size = Some(size(json::integer(value)?)?),
                "sort" => body.sort = sort::parse(value)?,
                "_source" => body.source = Some(SourceFilter::parse(value)?),
                "stored_fields" => body.stored_fields = Some(StoredFields::parse(value)?),
                "fields" => body.fields = fields::parse(key, value)?,
                "docvalue_fields" => body.docvalue_fields = fields::parse(key, value)?,
                "script_fields" => body.script_fields = script_fields(value)?,
                "highlight" => body.highlight = Some(Highlight::parse(value)?),
                "collapse" => body.collapse = Some(Collapse::parse(value)?),
                "track_total_hits" => body.track_total_hits = Some(TrackHits::parse(value)?),
                "track_scores" => body.track_scores = json::boolean(value)?,
                "search_after" => body.search_after = Some(search_after(value)?),
                "version" => body.version = json::boolean(value)?,
                "seq_no_primary_term" => body.seq_no_primary_term = json::boolean(value)?,
                "timeout" => {
                    let text = json::text(value).ok_or_else(|| unknown_key(key, value))?;
                    body.timeout_ms = json::parse_time("timeout", &text)?;
                }
                "terminate_after" => body.terminate_after = terminate_after(json::integer(value)?)?,
                "slice" => body.slice = Some(Slice::parse(value)?),
                _ => return Err(unknown_key(key, value)),
            }
        }
        Ok(body)
    }

    /// Parses the body of a count: a query and nothing else.
    pub(crate) fn parse_query_only(value: &Value) -> Result<Option<Query>> {
        let mut query = None;
        for (key, value) in top_level(value)? {
            match key.as_str() {
                "query" => query = Some(query::parse(value)?),
                other => {
                    return Err(Error::Parsing(format!("request does not support [{other}]")));
                }
            }
        }
        Ok(query)
    }
}

fn top_level(value: &Value) -> Result<&Map<String, Value>> {
    value
        .as_object()
        .ok_or_else(|| Error::Parsing(format!("Expected [START_OBJECT] but found [{}]", json::token(value))))
}

fn unknown_key(key: &str, value: &Value) -> Error {
    Error::Parsing(format!("Unknown key for a {} in [{key}].", json::token(value)))
}

/// Checks `from`.
pub(crate) fn from(value: i64) -> Result<usize> {
    usize::try_from(value)
        .map_err(|_| Error::IllegalArgument(format!("[from] parameter cannot be negative but was [{value}]")))
}

/// Checks `size`.
pub(crate) fn size(value: i64) -> Result<usize> {
    usize::try_from(value)
        .map_err(|_| Error::IllegalArgument(format!("[size] parameter cannot be negative, found [{value}]")))
}

/// Checks `terminate_after`.
pub(crate) fn terminate_after(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| Error::IllegalArgument("terminateAfter must be > 0".to_owned()))
}

/// Counts computed fields, having checked what can be without their scripts.
fn script_fields(value: &Value) -> Result<usize> {
    let fields = value.as_object().ok_or_else(|| unknown_key("script_fields", value))?;
    for (name, field) in fields {
        let members = field.as_object().ok_or_else(|| {
            Error::Parsing(format!("Expected [START_OBJECT] in [{name}] but found [{}]", json::token(field)))
        })?;
        for (key, value) in members {
            if !matches!(key.as_str(), "script" | "ignore_failure") {
                return Err(unknown_key(key, value));
            }
        }
    }
    Ok(fields.len())
}

fn search_after(value: &Value) -> Result<Vec<Value>> {
    let items = value.as_array().ok_or_else(|| {
        Error::Parsing(format!(
            "Expected [START_ARRAY] or [VALUE_NULL] in [search_after] but found [{}]",
            json::token(value)
        ))
    })?;
    if items.is_empty() {
        return Err(Error::IllegalArgument("Values must contains at least one value.".to_owned()));
    }
    if let Some(bad) = items.iter().find(|item| item.is_array() || item.is_object()) {
        return Err(Error::IllegalArgument(format!(
            "Can't handle search_after field value of type [{}]",
            json::token(bad)
        )));
    }
    Ok(items.clone())
}

impl TrackHits {
    /// Parses the value of `track_total_hits`.
    pub(crate) fn parse(value: &Value) -> Result<Self> {
        match value {
            Value::Bool(true) => Ok(Self::All),
            Value::Bool(false) => Ok(Self::None),
            Value::String(text) if text == "true" => Ok(Self::All),
            Value::String(text) if text == "false" => Ok(Self::None),
            other => match json::integer(other)? {
                -1 => Ok(Self::None),
                number => match u64::try_from(number) {
                    Ok(number) => Ok(Self::UpTo(number)),
                    Err(_) => Err(Error::IllegalArgument(format!(
                        "[track_total_hits] parameter must be positive or equals to -1, got {number}"
                    ))),
                },
            },
        }
    }
}

impl StoredFields {
    /// Parses the value of `stored_fields`.
    pub(crate) fn parse(value: &Value) -> Result<Self> {
        let names = json::strings(value).ok_or_else(|| unknown_key("stored_fields", value))?;
        Self::new(names)
    }

    /// Makes the selection from names.
    pub(crate) fn new(names: Vec<String>) -> Result<Self> {
        if names.iter().any(|name| name == "_none_") {
            if names.len() > 1 {
                return Err(Error::IllegalArgument("cannot combine _none_ with other fields".to_owned()));
            }
            return Ok(Self::None);
        }
        Ok(Self::Named(names))
    }
}

impl Slice {
    fn parse(value: &Value) -> Result<Self> {
        let (mut id, mut max) = (None, None);
        let fields = value.as_object().ok_or_else(|| unknown_key("slice", value))?;
        for (key, value) in fields {
            match key.as_str() {
                "id" => id = Some(json::integer(value)?),
                "max" => max = Some(json::integer(value)?),
                // Slices are cut by document id, whatever field would cut them.
                "field" => {}
                _ => return Err(Error::Parsing(format!("[slice] unknown field [{key}]"))),
            }
        }
        let max = max.unwrap_or(0);
        let id = id.unwrap_or(-1);
        if max <= 1 {
            return Err(Error::IllegalArgument("max must be greater than 1".to_owned()));
        }
        if id < 0 {
            return Err(Error::IllegalArgument("id must be greater than or equal to 0".to_owned()));
        }
        if id >= max {
            return Err(Error::IllegalArgument("max must be greater than id".to_owned()));
        }
        Ok(Self { id: id as u64, max: max as u64 })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unbuilt_and_unknown_keys_are_refused_alike() {
        insta::assert_snapshot!(
            SearchBody::parse(&json!({"aggs": {"a": {}}})).unwrap_err(),
            @"Unknown key for a START_OBJECT in [aggs]."
        );
        insta::assert_snapshot!(
            SearchBody::parse(&json!({"explain": true})).unwrap_err(),
            @"Unknown key for a VALUE_BOOLEAN in [explain]."
        );
        insta::assert_snapshot!(
            SearchBody::parse_query_only(&json!({"match": {"foo": "bar"}})).unwrap_err(),
            @"request does not support [match]"
        );
    }

    #[test]
    fn totals_are_tracked_as_asked() {
        assert_eq!(TrackHits::parse(&json!(4)).unwrap(), TrackHits::UpTo(4));
        assert_eq!(TrackHits::parse(&json!("false")).unwrap(), TrackHits::None);
        insta::assert_snapshot!(
            TrackHits::parse(&json!(-2)).unwrap_err(),
            @"[track_total_hits] parameter must be positive or equals to -1, got -2"
        );
    }

    #[test]
    fn slices_are_validated() {
        assert_eq!(Slice::parse(&json!({"id": 0, "max": 2})).unwrap(), Slice { id: 0, max: 2 });
        insta::assert_snapshot!(
            Slice::parse(&json!({"id": 2, "max": 2})).unwrap_err(),
            @"max must be greater than id"
        );
    }
}
