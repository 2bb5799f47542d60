//! Query clauses: one file each, one struct each.
//!
//! [`parse`] turns JSON into a [`Query`]; it knows names and shapes only. A kind of clause is a [`Clause`], which
//! the list in `registry.rs` names; the rest of the language follows from these. What a clause means for a field of
//! some type is decided by `table::resolve`, index by index. Clause count and nesting are bounded here, before
//! anything recurses over the tree again.

mod bool_;
mod boosting;
mod clause;
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
mod lookup;
mod match_;
mod match_all;
mod match_bool_prefix;
mod match_phrase;
mod more_like_this;
mod multi_match;
mod nested;
mod prefix;
mod query_string;
mod range;
mod rank_feature;
mod regexp;
mod registry;
mod rewrite;
mod simple_query_string;
mod single;
mod size;
mod span;
mod span_enclosure;
mod span_field_masking;
mod span_first;
mod span_multi;
mod span_near;
mod span_not;
mod span_or;
mod span_term;
mod term;
mod terms;
mod wildcard;
mod wrapper;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use self::registry::PARSERS;
use super::json;

pub use self::clause::{Clause, Common, Role};
pub use self::field_boosts::FieldBoosts;
pub use self::function_score::{
    BoostMode, Combination, Decay, DecayShape, FieldValueFactor, Function, Modifier, MultiValueMode,
    RandomScore, ScoreMode, double, java_hash,
};
pub use self::fuzziness::{Fuzziness, FuzzyOptions};
pub use self::intervals::{IntervalFilter, IntervalMode, IntervalRule, Relation, TermSource};
pub use self::lookup::Lookup;
pub use self::match_::{Operator, ZeroTerms};
pub use self::more_like_this::{Example, Examples, Sources, TermSelection};
pub use self::multi_match::MatchType;
pub use self::nested::NestedScore;
pub use self::query_string::from_uri;
pub use self::range::{Bound, RangeRelation};
pub use self::rank_feature::FeatureFunction;
pub use self::regexp::{RegexpFlags, flags as regexp_flags};
pub use self::registry::*;
pub use self::rewrite::Rewrite;
pub use self::single::Normalize;
pub use self::span_enclosure::SpanEnclosureQuery;

/// Most clauses of one `bool`, and about as many leaves of one query, as `indices.query.bool.max_clause_count` has it by default.
pub const MAX_CLAUSES: usize = 1_024;
/// Most clauses that are parsed at all. What they may be in one `bool`, and how many leaves there may
/// be in all, is decided where they meet a mapping, as in OpenSearch.
const MAX_PARSED: usize = 4 * MAX_CLAUSES;
/// Deepest nesting of clauses: about what a body may hold, whose values nest 128 deep. The threads that plan
/// and evaluate have stacks for it.
pub(crate) const MAX_DEPTH: usize = 64;

/// Names of the queries of OpenSearch that this server does not have.
const UNSUPPORTED: &[&str] = &[
    "geo_shape",
    "has_child",
    "has_parent",
    "hybrid",
    "knn",
    "neural",
    "parent_id",
    "percolate",
    "script",
    "script_score",
    "terms_set",
    "xy_shape",
];

/// Bounds of one query tree while it is parsed.
#[derive(Debug, Default)]
pub struct Parser {
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
        let Some((_, parse)) = PARSERS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = PARSERS.iter().map(|(known, _)| *known).collect();
            return Err(Error::UnknownQuery {
                reason: format!("unknown query [{name}]{}", json::did_you_mean(name, &known)),
                name: name.to_owned(),
            });
        };
        parse(self, json::object(name, body)?)
    }
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
