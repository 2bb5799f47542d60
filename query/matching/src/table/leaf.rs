//! Leaf clauses: what a predicate is made of.

use std::fmt;

use millrace_dsl::query::Query;
use millrace_dsl::query::geo::GeoPoint;
use serde_json::Value;

/// A leaf clause with what it adds to the score.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The clause; never one that is made of others, such as `bool`.
    pub query: Query,
    /// Product of the boosts from the root down to here.
    pub boost: f32,
    /// Whether it scores; filters and exclusions do not.
    pub scored: bool,
}

impl Leaf {
    /// Makes a leaf.
    pub fn new(query: Query, boost: f32, scored: bool) -> Self {
        Self { query, boost, scored }
    }

    /// Names the kind of clause.
    pub fn kind(&self) -> &'static str {
        match &self.query {
            Query::MatchAll(_) => "match_all",
            Query::MatchNone(_) => "match_none",
            Query::Match(_) => "match",
            Query::MatchPhrase(_) => "match_phrase",
            Query::MatchPhrasePrefix(_) => "match_phrase_prefix",
            Query::MatchBoolPrefix(_) => "match_bool_prefix",
            Query::MultiMatch(_) => "multi_match",
            Query::QueryString(_) => "query_string",
            Query::SimpleQueryString(_) => "simple_query_string",
            Query::Term(_) => "term",
            Query::Terms(_) => "terms",
            Query::Range(_) => "range",
            Query::Exists(_) => "exists",
            Query::Ids(_) => "ids",
            Query::Intervals(_) => "intervals",
            Query::Prefix(_) => "prefix",
            Query::Wildcard(_) => "wildcard",
            Query::Regexp(_) => "regexp",
            Query::Fuzzy(_) => "fuzzy",
            Query::Bool(_) => "bool",
            Query::ConstantScore(_) => "constant_score",
            Query::Boosting(_) => "boosting",
            Query::DisMax(_) => "dis_max",
            Query::DistanceFeature(_) => "distance_feature",
            Query::FunctionScore(_) => "function_score",
            Query::GeoBoundingBox(_) => "geo_bounding_box",
            Query::GeoDistance(_) => "geo_distance",
            Query::GeoPolygon(_) => "geo_polygon",
            Query::Nested(_) => "nested",
            Query::RankFeature(_) => "rank_feature",
        }
    }
}

impl fmt::Display for Leaf {
    /// Writes what is asked; `~` marks a leaf that does not score.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scored {
            f.write_str("~")?;
        }
        match &self.query {
            Query::MatchAll(_) => f.write_str("*")?,
            Query::MatchNone(_)
            | Query::Bool(_)
            | Query::Boosting(_)
            | Query::ConstantScore(_)
            | Query::DisMax(_)
            | Query::FunctionScore(_)
            | Query::Nested(_) => {}
            Query::DistanceFeature(query) => {
                write!(f, "{} near {} by {}", query.field, query.origin, query.pivot)?;
            }
            Query::GeoBoundingBox(query) => {
                let bounds = &query.bounds;
                write!(
                    f,
                    "{} in [{}, {}] to [{}, {}]",
                    query.field, bounds.top, bounds.left, bounds.bottom, bounds.right
                )?;
            }
            Query::GeoDistance(query) => {
                let GeoPoint { lat, lon } = query.center;
                write!(f, "{} within {} m of [{lat}, {lon}]", query.field, query.distance)?;
            }
            Query::GeoPolygon(query) => {
                write!(f, "{} in a polygon of {} points", query.field, query.corners.len())?;
            }
            Query::Match(query) => write!(f, "{} = {}", query.field, query.query)?,
            Query::MatchPhrase(query) => write!(f, "{} = {}", query.field, query.query)?,
            Query::MatchPhrasePrefix(query) => write!(f, "{} = {}*", query.phrase.field, query.phrase.query)?,
            Query::MatchBoolPrefix(query) => write!(f, "{} = {}*", query.field, query.query)?,
            Query::MultiMatch(query) => f.write_str(&query.query)?,
            Query::QueryString(query) => f.write_str(&query.query)?,
            Query::SimpleQueryString(query) => f.write_str(&query.query)?,
            Query::Term(query) => write!(f, "{} = {}", query.field, query.value)?,
            Query::Terms(query) => {
                write!(f, "{} in ", query.field)?;
                listed(f, query.values.iter())?;
            }
            Query::Range(query) => {
                let sign = |included: bool| if included { "<=" } else { "<" };
                if let Some(from) = &query.from {
                    write!(f, "{} {} ", from.value, sign(from.included))?;
                }
                f.write_str(&query.field)?;
                if let Some(to) = &query.to {
                    write!(f, " {} {}", sign(to.included), to.value)?;
                }
            }
            Query::Exists(query) => f.write_str(&query.field)?,
            Query::RankFeature(query) => f.write_str(&query.field)?,
            Query::Ids(query) => {
                f.write_str("_id in ")?;
                listed(f, query.values.iter())?;
            }
            Query::Intervals(query) => f.write_str(&query.field)?,
            Query::Prefix(query) => {
                write!(f, "{} = {}*", query.field, Value::String(query.value.clone()))?;
            }
            Query::Wildcard(query) => write!(f, "{} like {}", query.field, query.value)?,
            Query::Regexp(query) => write!(f, "{} = /{}/", query.field, query.value)?,
            Query::Fuzzy(query) => write!(f, "{} = {}~", query.field, query.value)?,
        }
        if self.scored && self.boost != 1.0 {
            write!(f, " ^{}", self.boost)?;
        }
        Ok(())
    }
}

/// Writes the first values of a list and how many more there are.
fn listed<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    values: impl ExactSizeIterator<Item = T>,
) -> fmt::Result {
    const SHOWN: usize = 4;
    let count = values.len();
    f.write_str("[")?;
    for (at, value) in values.take(SHOWN).enumerate() {
        write!(f, "{}{value}", if at > 0 { ", " } else { "" })?;
    }
    if count > SHOWN {
        write!(f, ", … {} more", count - SHOWN)?;
    }
    f.write_str("]")
}
