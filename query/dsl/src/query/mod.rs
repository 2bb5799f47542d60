//! Query clauses: one file each, one struct each.
//!
//! [`parse`] turns JSON into a [`Query`]; it knows names and shapes only. What a clause means for
//! a field of some type is decided by `table::resolve`, index by index. Clause count and nesting
//! are bounded here, before anything recurses over the tree again.

mod bool_;
mod boosting;
mod constant_score;
mod dis_max;
mod distance_feature;
mod exists;
mod field_boosts;
mod function_score;
mod fuzziness;
mod fuzzy;
pub mod geo;
mod geo_bounding_box;
mod geo_distance;
mod geo_polygon;
mod ids;
mod intervals;
mod match_;
mod match_all;
mod match_bool_prefix;
mod match_phrase;
mod multi_match;
mod nested;
mod prefix;
mod query_string;
mod range;
mod rank_feature;
mod regexp;
mod rewrite;
mod simple_query_string;
mod single;
mod size;
mod term;
mod terms;
mod wildcard;
mod wrapper;

use std::sync::Arc;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::json::{self, token};

pub use bool_::BoolQuery;
pub(crate) use boosting::BoostingQuery;
pub(crate) use constant_score::ConstantScoreQuery;
pub(crate) use dis_max::DisMaxQuery;
pub use distance_feature::DistanceFeatureQuery;
pub use exists::ExistsQuery;
pub use field_boosts::FieldBoosts;
pub use function_score::{
    BoostMode, Combination, Decay, DecayShape, FieldValueFactor, Function, FunctionScoreQuery, Modifier,
    MultiValueMode, RandomScore, ScoreMode, double, java_hash,
};
pub use fuzziness::{Fuzziness, FuzzyOptions};
pub use fuzzy::FuzzyQuery;
pub use geo_bounding_box::GeoBoundingBoxQuery;
pub use geo_distance::GeoDistanceQuery;
pub use geo_polygon::GeoPolygonQuery;
pub(crate) use ids::IdsQuery;
pub use intervals::{IntervalFilter, IntervalMode, IntervalRule, IntervalsQuery, Relation, TermSource};
pub use match_::{MatchQuery, Operator, ZeroTerms};
pub(crate) use match_all::MatchAllQuery;
pub use match_bool_prefix::MatchBoolPrefixQuery;
pub use match_phrase::{MatchPhrasePrefixQuery, MatchPhraseQuery};
pub use multi_match::{MatchType, MultiMatchQuery};
pub use nested::{NestedQuery, NestedScore};
pub use prefix::PrefixQuery;
pub use query_string::{QueryStringQuery, from_uri};
pub use range::{Bound, RangeQuery};
pub use rank_feature::{FeatureFunction, RankFeatureQuery};
pub use regexp::{RegexpFlags, RegexpQuery, flags as regexp_flags};
pub use rewrite::Rewrite;
pub use simple_query_string::SimpleQueryStringQuery;
pub use single::Normalize;
pub use term::TermQuery;
pub use terms::{TermsLookup, TermsQuery};
pub use wildcard::WildcardQuery;

/// Most clauses of one `bool`, and about as many leaves of one query, as `indices.query.bool.max_clause_count` has it by default.
pub const MAX_CLAUSES: usize = 1_024;
/// Most clauses that are parsed at all. What they may be in one `bool`, and how many leaves there may
/// be in all, is decided where they meet a mapping, as in OpenSearch.
const MAX_PARSED: usize = 4 * MAX_CLAUSES;
/// Deepest nesting of clauses: about what a body may hold, whose values nest 128 deep. The threads that plan
/// and evaluate have stacks for it.
pub(crate) const MAX_DEPTH: usize = 64;

/// Names of the queries that exist.
const KNOWN: &[&str] = &[
    "bool",
    "boosting",
    "constant_score",
    "dis_max",
    "distance_feature",
    "exists",
    "function_score",
    "fuzzy",
    "geo_bounding_box",
    "geo_distance",
    "geo_polygon",
    "ids",
    "intervals",
    "match",
    "match_all",
    "match_bool_prefix",
    "match_none",
    "match_phrase",
    "match_phrase_prefix",
    "multi_match",
    "nested",
    "prefix",
    "query_string",
    "range",
    "rank_feature",
    "regexp",
    "simple_query_string",
    "term",
    "terms",
    "wildcard",
    "wrapper",
];

/// Names of the queries of OpenSearch that this server does not have.
const UNSUPPORTED: &[&str] = &[
    "geo_shape",
    "has_child",
    "has_parent",
    "hybrid",
    "knn",
    "more_like_this",
    "neural",
    "parent_id",
    "percolate",
    "script",
    "script_score",
    "span_containing",
    "span_first",
    "span_multi",
    "span_near",
    "span_not",
    "span_or",
    "span_term",
    "span_within",
    "terms_set",
    "xy_shape",
];

/// What every clause may carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// Factor of the score.
    pub boost: f32,
    /// Name under which a hit reports that it matched this clause.
    pub name: Option<String>,
}

impl Default for Common {
    fn default() -> Self {
        Self { boost: 1.0, name: None }
    }
}

impl Common {
    /// Takes `boost` or `_name`; returns whether the key was one of them.
    fn take(&mut self, clause: &str, key: &str, value: &Value) -> Result<bool> {
        match key {
            "boost" => self.boost = json::boost(clause, value)?,
            "_name" => {
                self.name = Some(json::text(value).ok_or_else(|| {
                    Error::Parsing(format!("[{clause}] unknown token [{}] after [_name]", token(value)))
                })?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A parsed clause.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
#[allow(clippy::enum_variant_names, reason = "`query_string` is the clause's name")]
pub enum Query {
    MatchAll(MatchAllQuery),
    MatchNone(Common),
    Match(MatchQuery),
    MatchPhrase(MatchPhraseQuery),
    MatchPhrasePrefix(MatchPhrasePrefixQuery),
    MatchBoolPrefix(MatchBoolPrefixQuery),
    MultiMatch(Box<MultiMatchQuery>),
    QueryString(Box<QueryStringQuery>),
    SimpleQueryString(Box<SimpleQueryStringQuery>),
    Term(TermQuery),
    Terms(TermsQuery),
    Range(RangeQuery),
    Exists(ExistsQuery),
    Ids(IdsQuery),
    Intervals(Arc<IntervalsQuery>),
    Prefix(PrefixQuery),
    Wildcard(WildcardQuery),
    Regexp(RegexpQuery),
    Fuzzy(FuzzyQuery),
    Bool(BoolQuery),
    Boosting(Box<BoostingQuery>),
    ConstantScore(Box<ConstantScoreQuery>),
    DisMax(DisMaxQuery),
    DistanceFeature(DistanceFeatureQuery),
    FunctionScore(Arc<FunctionScoreQuery>),
    GeoBoundingBox(GeoBoundingBoxQuery),
    GeoDistance(GeoDistanceQuery),
    GeoPolygon(GeoPolygonQuery),
    Nested(Arc<NestedQuery>),
    RankFeature(RankFeatureQuery),
}

impl Query {
    /// Returns the query that matches everything.
    pub fn match_all() -> Self {
        Self::MatchAll(MatchAllQuery::default())
    }

    /// Returns boost and name.
    pub fn common(&self) -> &Common {
        match self {
            Self::MatchAll(query) => &query.common,
            Self::MatchNone(common) => common,
            Self::Match(query) => &query.common,
            Self::MatchPhrase(query) => &query.common,
            Self::MatchPhrasePrefix(query) => &query.phrase.common,
            Self::MatchBoolPrefix(query) => &query.common,
            Self::MultiMatch(query) => &query.common,
            Self::QueryString(query) => &query.common,
            Self::SimpleQueryString(query) => &query.common,
            Self::Term(query) => &query.common,
            Self::Terms(query) => &query.common,
            Self::Range(query) => &query.common,
            Self::Exists(query) => &query.common,
            Self::Ids(query) => &query.common,
            Self::Intervals(query) => &query.common,
            Self::Prefix(query) => &query.common,
            Self::Wildcard(query) => &query.common,
            Self::Regexp(query) => &query.common,
            Self::Fuzzy(query) => &query.common,
            Self::Bool(query) => &query.common,
            Self::Boosting(query) => &query.common,
            Self::ConstantScore(query) => &query.common,
            Self::DisMax(query) => &query.common,
            Self::DistanceFeature(query) => &query.common,
            Self::FunctionScore(query) => &query.common,
            Self::GeoBoundingBox(query) => &query.common,
            Self::GeoDistance(query) => &query.common,
            Self::GeoPolygon(query) => &query.common,
            Self::Nested(query) => &query.common,
            Self::RankFeature(query) => &query.common,
        }
    }

    /// Calls `visit` for this clause and all below it.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Query)) {
        visit(self);
        match self {
            Self::Bool(query) => query.clauses().for_each(|clause| clause.walk(visit)),
            Self::Boosting(query) => {
                query.positive.walk(visit);
                query.negative.walk(visit);
            }
            Self::ConstantScore(query) => query.filter.walk(visit),
            Self::DisMax(query) => query.queries.iter().for_each(|clause| clause.walk(visit)),
            Self::Nested(query) => query.query.walk(visit),
            Self::FunctionScore(query) => {
                query.query.walk(visit);
                let filters = query.functions.iter().filter_map(|function| function.filter.as_ref());
                filters.into_iter().for_each(|filter| filter.walk(visit));
            }
            _ => {}
        }
    }
}

impl Query {
    /// Calls `visit` for this clause and all below it, to change them.
    pub fn walk_mut(&mut self, visit: &mut dyn FnMut(&mut Query)) {
        visit(self);
        match self {
            Self::Bool(query) => {
                let lists = [&mut query.must, &mut query.filter, &mut query.should, &mut query.must_not];
                lists.into_iter().flatten().for_each(|clause| clause.walk_mut(visit));
            }
            Self::Boosting(query) => {
                query.positive.walk_mut(visit);
                query.negative.walk_mut(visit);
            }
            Self::ConstantScore(query) => query.filter.walk_mut(visit),
            Self::DisMax(query) => query.queries.iter_mut().for_each(|clause| clause.walk_mut(visit)),
            Self::Nested(query) => Arc::make_mut(query).query.walk_mut(visit),
            Self::FunctionScore(query) => {
                let query = Arc::make_mut(query);
                query.query.walk_mut(visit);
                let filters = query.functions.iter_mut().filter_map(|function| function.filter.as_mut());
                filters.into_iter().for_each(|filter| filter.walk_mut(visit));
            }
            _ => {}
        }
    }
}

/// Bounds of one query tree while it is parsed.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    clauses: usize,
    depth: usize,
    /// Bytes of the clauses that came as base64.
    wrapped: usize,
}

/// Parses the value of `query`.
pub fn parse(value: &Value) -> Result<Query> {
    Parser::default().query(value)
}

impl Parser {
    /// Counts a clause, or what costs as much as one.
    fn count(&mut self) -> Result<()> {
        self.clauses += 1;
        if self.clauses > MAX_PARSED {
            return Err(Error::TooManyClauses(MAX_CLAUSES));
        }
        Ok(())
    }

    /// Parses what counts as a clause below the ones that are being parsed.
    fn below<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.count()?;
        if self.depth >= MAX_DEPTH {
            return Err(Error::IllegalArgument(format!(
                "The nested depth of the query exceeds the maximum nested depth for queries set in [indices.query.max_nested_depth]: [{MAX_DEPTH}]"
            )));
        }
        self.depth += 1;
        let parsed = parse(self)?;
        self.depth -= 1;
        Ok(parsed)
    }

    /// Parses one clause: an object with one key, the query's name.
    pub(crate) fn query(&mut self, value: &Value) -> Result<Query> {
        let Value::Object(object) = value else {
            return Err(Error::Parsing("[_na] query malformed, must start with start_object".to_owned()));
        };
        let mut entries = object.iter();
        let Some((name, body)) = entries.next() else {
            return Err(Error::IllegalArgument("query malformed, empty clause found".to_owned()));
        };
        let query = self.below(|parser| parser.named(name, body))?;
        if let Some((second, _)) = entries.next() {
            return Err(Error::Parsing(format!(
                "[{name}] malformed query, expected [END_OBJECT] but found [FIELD_NAME] [{second}]"
            )));
        }
        Ok(query)
    }

    /// Parses a clause that may be in an array; of several the last counts, as in OpenSearch.
    fn last_query(&mut self, value: &Value) -> Result<Option<Query>> {
        match value {
            Value::Array(items) => {
                let mut last = None;
                for item in items {
                    last = Some(self.query(item)?);
                }
                Ok(last)
            }
            other => self.query(other).map(Some),
        }
    }

    fn named(&mut self, name: &str, body: &Value) -> Result<Query> {
        if UNSUPPORTED.contains(&name) {
            return Err(Error::Parsing(format!("[{name}] query is not supported by this server")));
        }
        if !KNOWN.contains(&name) {
            return Err(Error::UnknownQuery {
                reason: format!("unknown query [{name}]{}", json::did_you_mean(name, KNOWN)),
                name: name.to_owned(),
            });
        }
        let fields = json::object(name, body)?;
        Ok(match name {
            "match_all" => Query::MatchAll(MatchAllQuery::parse(fields)?),
            "match_none" => Query::MatchNone(only_common(name, fields)?),
            "match" => Query::Match(MatchQuery::parse(fields)?),
            "match_phrase" => Query::MatchPhrase(MatchPhraseQuery::parse(fields)?),
            "match_phrase_prefix" => Query::MatchPhrasePrefix(MatchPhrasePrefixQuery::parse(fields)?),
            "match_bool_prefix" => Query::MatchBoolPrefix(MatchBoolPrefixQuery::parse(fields)?),
            "multi_match" => Query::MultiMatch(Box::new(MultiMatchQuery::parse(fields)?)),
            "query_string" => Query::QueryString(Box::new(QueryStringQuery::parse(fields)?)),
            "simple_query_string" => {
                Query::SimpleQueryString(Box::new(SimpleQueryStringQuery::parse(fields)?))
            }
            "term" => Query::Term(TermQuery::parse(fields)?),
            "terms" => Query::Terms(TermsQuery::parse(fields)?),
            "range" => Query::Range(RangeQuery::parse(fields)?),
            "exists" => Query::Exists(ExistsQuery::parse(fields)?),
            "ids" => Query::Ids(IdsQuery::parse(fields)?),
            "intervals" => Query::Intervals(Arc::new(IntervalsQuery::parse(self, fields)?)),
            "prefix" => Query::Prefix(PrefixQuery::parse(fields)?),
            "wildcard" => Query::Wildcard(WildcardQuery::parse(fields)?),
            "regexp" => Query::Regexp(RegexpQuery::parse(fields)?),
            "fuzzy" => Query::Fuzzy(FuzzyQuery::parse(fields)?),
            "boosting" => Query::Boosting(Box::new(BoostingQuery::parse(self, fields)?)),
            "dis_max" => Query::DisMax(DisMaxQuery::parse(self, fields)?),
            "distance_feature" => Query::DistanceFeature(DistanceFeatureQuery::parse(fields)?),
            "function_score" => Query::FunctionScore(Arc::new(FunctionScoreQuery::parse(self, fields)?)),
            "geo_bounding_box" => Query::GeoBoundingBox(GeoBoundingBoxQuery::parse(fields)?),
            "geo_distance" => Query::GeoDistance(GeoDistanceQuery::parse(fields)?),
            "geo_polygon" => Query::GeoPolygon(GeoPolygonQuery::parse(fields)?),
            "nested" => Query::Nested(Arc::new(NestedQuery::parse(self, fields)?)),
            "rank_feature" => Query::RankFeature(RankFeatureQuery::parse(fields)?),
            "wrapper" => wrapper::parse(self, fields)?,
            "constant_score" => Query::ConstantScore(Box::new(ConstantScoreQuery::parse(self, fields)?)),
            _ => Query::Bool(BoolQuery::parse(self, fields)?),
        })
    }
}

fn only_common(clause: &str, fields: &Map<String, Value>) -> Result<Common> {
    let mut common = Common::default();
    for (key, value) in fields {
        if !common.take(clause, key, value)? {
            return Err(Error::Parsing(format!("[{clause}] unknown field [{key}]")));
        }
    }
    Ok(common)
}

fn unsupported(clause: &str, key: &str) -> Error {
    Error::Parsing(format!("[{clause}] query does not support [{key}]"))
}

/// The field of a clause of the form `{field: value}` or `{field: {options}}`; a second field is
/// refused as OpenSearch words it.
fn single_field<'a>(clause: &str, fields: &'a Map<String, Value>) -> Result<(&'a str, &'a Value)> {
    let mut entries = fields.iter();
    let Some((field, value)) = entries.next() else {
        return Err(Error::IllegalArgument("field name is null or empty".to_owned()));
    };
    if let Some((second, _)) = entries.next() {
        return Err(Error::Parsing(format!(
            "[{clause}] query doesn't support multiple fields, found [{field}] and [{second}]"
        )));
    }
    if field.is_empty() {
        return Err(Error::IllegalArgument("field name is null or empty".to_owned()));
    }
    Ok((field, value))
}

#[cfg(test)]
mod tests;
