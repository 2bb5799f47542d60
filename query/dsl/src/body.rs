//! The body of a search.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::aggs::Aggregations;
use super::collapse::Collapse;
use super::fields::{self, FieldAndFormat};
use super::highlight::Highlight;
use super::query::{self, Query};
use super::rescore::{self, Rescore};
use super::source_filter::SourceFilter;
use super::suggest::{self, Suggestion};
use super::{json, sort};

/// A parsed `_search` body; absent members are `None`.
#[derive(Clone, Debug, Default)]
pub struct SearchBody {
    /// Query of the hits; everything where absent.
    pub query: Option<Query>,
    /// Hits to skip.
    pub from: Option<usize>,
    /// Hits to return.
    pub size: Option<usize>,
    /// The order; by score where empty.
    pub sort: Vec<sort::SortKey>,
    /// Parts of the source that hits show.
    pub source: Option<SourceFilter>,
    /// Stored fields that hits show.
    pub stored_fields: Option<StoredFields>,
    /// Fields that hits show by their values in the source.
    pub fields: Vec<FieldAndFormat>,
    /// Fields that hits show by their columns.
    pub docvalue_fields: Vec<FieldAndFormat>,
    /// Number of computed fields asked for.
    pub script_fields: usize,
    /// Highlights that hits show.
    pub highlight: Option<Highlight>,
    /// Aggregations over all matches.
    pub aggregations: Option<Aggregations>,
    /// Groups of hits.
    pub collapse: Option<Collapse>,
    /// Bound up to which hits are counted.
    pub track_total_hits: Option<TrackHits>,
    /// `true` if scores are computed though they do not order.
    pub track_scores: bool,
    /// Sort values to go on after.
    pub search_after: Option<Vec<Value>>,
    /// `true` if hits show their version.
    pub version: bool,
    /// `true` if hits show sequence number and primary term.
    pub seq_no_primary_term: bool,
    /// Time after which the hits so far are returned, in milliseconds; the greatest number is never.
    pub timeout_ms: Option<u64>,
    /// Matches of a shard after which it stops; 0 is without bound.
    pub terminate_after: u64,
    /// Part of a sliced scroll.
    pub slice: Option<Slice>,
    /// Query that hits must match too.
    pub post_filter: Option<Query>,
    /// Least score of hits.
    pub min_score: Option<f32>,
    /// Second scores of the best hits, one after the other.
    pub rescore: Vec<Rescore>,
    /// Factors of scores by index expression; the first that fits an index counts.
    pub indices_boost: Vec<(String, f32)>,
    /// `true` if hits say how they got their score.
    pub explain: bool,
    /// `true` if the answer says where the time went.
    pub profile: bool,
    /// `true` if hits show the scores of named clauses.
    pub matched_scores: bool,
    /// The point in time that is searched.
    pub point_in_time: Option<PointInTime>,
    /// Suggestions; absent where the request has no such member.
    pub suggestions: Option<Vec<Suggestion>>,
}

/// `pit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointInTime {
    /// Its id.
    pub id: String,
    /// Extension of its life.
    pub keep_alive: Option<String>,
}

/// Bound up to which hits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackHits {
    /// Exactly.
    All,
    /// Not at all.
    None,
    /// Exactly up to a number; beyond it only that there are more.
    UpTo(u64),
}

/// `stored_fields`.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredFields {
    /// `_none_`: neither ids nor source.
    None,
    /// Named fields; the source only where `_source` is among them.
    Named(Vec<String>),
}

/// Part `id` of `max` of a scroll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Number of this part, from 0.
    pub id: u64,
    /// Number of parts.
    pub max: u64,
}

impl SearchBody {
    /// Parses a body; unknown keys are refused.
    pub fn parse(value: &Value) -> Result<Self> {
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
                "aggs" | "aggregations" => body.aggregations = Some(Aggregations::parse(key, value)?),
                "collapse" => body.collapse = Some(Collapse::parse(value)?),
                "track_total_hits" => body.track_total_hits = Some(TrackHits::parse(value)?),
                "track_scores" => body.track_scores = json::boolean(value)?,
                "search_after" => body.search_after = Some(search_after(value)?),
                "version" => body.version = json::boolean(value)?,
                "seq_no_primary_term" => body.seq_no_primary_term = json::boolean(value)?,
                "timeout" => {
                    let text = json::text(value).ok_or_else(|| unknown_key(key, value))?;
                    body.timeout_ms = Some(json::parse_time("timeout", &text)?.unwrap_or(u64::MAX));
                }
                "terminate_after" => body.terminate_after = terminate_after(json::integer(value)?)?,
                "slice" => body.slice = Some(Slice::parse(value)?),
                "post_filter" => body.post_filter = Some(query::parse(value)?),
                "min_score" => body.min_score = Some(json::float(value)?),
                "rescore" => body.rescore = rescore::parse(value)?,
                "indices_boost" => body.indices_boost = indices_boost(value)?,
                "explain" => body.explain = json::boolean(value)?,
                "profile" => body.profile = json::boolean(value)?,
                // OpenSearch reads this member and goes by the parameter of the same name.
                "include_named_queries_score" => {
                    json::boolean(value)?;
                }
                "search_pipeline" => match value {
                    Value::Object(pipeline) if pipeline.is_empty() => {}
                    named => no_pipeline(&json::text(named).unwrap_or_else(|| "_inline".to_owned()))?,
                },
                "verbose_pipeline" => no_verbose_pipeline(json::boolean(value)?)?,
                "derived" if value.as_object().is_some_and(Map::is_empty) => {}
                "pit" => body.point_in_time = Some(PointInTime::parse(value)?),
                // Groups of `_stats`, which are not kept.
                "stats" if json::strings(value).is_some() => {}
                "suggest" => body.suggestions = Some(suggest::parse(value)?),
                "ext" => no_extensions(value)?,
                _ => return Err(unknown_key(key, value)),
            }
        }
        Ok(body)
    }

    /// Returns whether the request asks for suggestions and nothing else.
    pub fn only_suggests(&self) -> bool {
        self.suggestions.is_some() && self.query.is_none() && self.aggregations.is_none()
    }

    /// Returns all queries of the request, to be changed.
    pub fn queries_mut(&mut self) -> impl Iterator<Item = &mut Query> {
        let rescored = self.rescore.iter_mut().map(|rescore| &mut rescore.query);
        let filters = self.aggregations.iter_mut().flat_map(Aggregations::queries_mut);
        self.query.iter_mut().chain(&mut self.post_filter).chain(rescored).chain(filters)
    }

    /// Parses the body of a count: a query and nothing else.
    pub fn parse_query_only(value: &Value) -> Result<Option<Query>> {
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
pub fn from(value: i64) -> Result<usize> {
    usize::try_from(value)
        .map_err(|_| Error::IllegalArgument(format!("[from] parameter cannot be negative, found [{value}]")))
}

/// Checks `size`.
pub fn size(value: i64) -> Result<usize> {
    usize::try_from(value)
        .map_err(|_| Error::IllegalArgument(format!("[size] parameter cannot be negative, found [{value}]")))
}

/// Checks `terminate_after`.
pub fn terminate_after(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| Error::IllegalArgument("terminateAfter must be > 0".to_owned()))
}

/// Refuses a search pipeline: there are none.
pub fn no_pipeline(name: &str) -> Result<()> {
    match name {
        "_none" => Ok(()),
        _ => Err(Error::IllegalArgument(format!("Pipeline {name} is not defined"))),
    }
}

/// Refuses to tell of the steps of a search pipeline.
pub fn no_verbose_pipeline(asked: bool) -> Result<()> {
    match asked {
        false => Ok(()),
        true => Err(Error::IllegalArgument(
            "The 'verbose pipeline' option requires a search pipeline to be defined.".to_owned(),
        )),
    }
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
    let items = value.as_array().ok_or_else(|| unknown_key("search_after", value))?;
    if items.is_empty() {
        return Err(Error::IllegalArgument("Values must contains at least one value.".to_owned()));
    }
    if let Some(bad) = items.iter().find(|item| item.is_array() || item.is_object()) {
        return Err(Error::Parsing(format!(
            "Expected [VALUE_STRING] or [VALUE_NUMBER] or [VALUE_BOOLEAN] or [VALUE_NULL] but found [{}] inside search_after.",
            json::token(bad)
        )));
    }
    Ok(items.clone())
}

/// Reads factors of scores: an object, or a list of objects with one member each.
fn indices_boost(value: &Value) -> Result<Vec<(String, f32)>> {
    let factor = |(name, value): (&String, &Value)| Ok((name.clone(), json::float(value)?));
    match value {
        Value::Object(fields) => fields.iter().map(factor).collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let fields = item.as_object().ok_or_else(|| {
                    Error::Parsing(format!(
                        "Expected [START_OBJECT] in [indices_boost] but found [{}]",
                        json::token(item)
                    ))
                })?;
                let mut fields = fields.iter();
                match (fields.next(), fields.next()) {
                    (Some(only), None) => factor(only),
                    (None, _) => Err(Error::Parsing(
                        "Expected [FIELD_NAME] in [indices_boost] but found [END_OBJECT]".to_owned(),
                    )),
                    _ => Err(Error::Parsing(
                        "Expected [END_OBJECT] in [indices_boost] but found [FIELD_NAME]".to_owned(),
                    )),
                }
            })
            .collect(),
        other => Err(unknown_key("indices_boost", other)),
    }
}

/// Refuses all members of `ext`: there are no extensions.
fn no_extensions(value: &Value) -> Result<()> {
    match value.as_object() {
        None => Err(unknown_key("ext", value)),
        Some(members) => match members.keys().next() {
            None => Ok(()),
            Some(name) => Err(Error::unknown_member("ext", name)),
        },
    }
}

impl TrackHits {
    /// Parses the value of `track_total_hits`.
    pub fn parse(value: &Value) -> Result<Self> {
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
    pub fn parse(value: &Value) -> Result<Self> {
        let names = json::strings(value).ok_or_else(|| unknown_key("stored_fields", value))?;
        Self::new(names)
    }

    /// Makes the selection from names.
    pub fn new(names: Vec<String>) -> Result<Self> {
        if names.iter().any(|name| name == "_none_") {
            if names.len() > 1 {
                return Err(Error::IllegalArgument("cannot combine _none_ with other fields".to_owned()));
            }
            return Ok(Self::None);
        }
        Ok(Self::Named(names))
    }
}

impl PointInTime {
    fn parse(value: &Value) -> Result<Self> {
        let fields = value.as_object().ok_or_else(|| unknown_key("pit", value))?;
        let (mut id, mut keep_alive) = (None, None);
        for (key, value) in fields {
            match key.as_str() {
                "id" => id = json::text(value),
                "keep_alive" => keep_alive = json::text(value),
                _ => return Err(Error::unknown_member("pit", key)),
            }
        }
        let id = id.ok_or_else(|| Error::IllegalArgument("point int time id is not provided".to_owned()))?;
        Ok(Self { id, keep_alive })
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
                _ => return Err(Error::unknown_member("slice", key)),
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
            SearchBody::parse(&json!({"knn": {"a": {}}})).unwrap_err(),
            @"Unknown key for a START_OBJECT in [knn]."
        );
        insta::assert_snapshot!(
            SearchBody::parse(&json!({"explained": true})).unwrap_err(),
            @"Unknown key for a VALUE_BOOLEAN in [explained]."
        );
        insta::assert_snapshot!(
            SearchBody::parse(&json!({"ext": {"a": {}}})).unwrap_err(),
            @"[ext] unknown field [a]"
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
    fn factors_of_indices_come_in_two_forms() {
        let factors = vec![("a".to_owned(), 2.0), ("b*".to_owned(), 1.5)];
        assert_eq!(indices_boost(&json!({"a": 2, "b*": 1.5})).unwrap(), factors);
        assert_eq!(indices_boost(&json!([{"a": 2}, {"b*": 1.5}])).unwrap(), factors);
        insta::assert_snapshot!(
            indices_boost(&json!([{"a": 2, "b": 1}])).unwrap_err(),
            @"Expected [END_OBJECT] in [indices_boost] but found [FIELD_NAME]"
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
