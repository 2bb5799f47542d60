//! `bool`: clauses combined; `must` and `should` score, `filter` and `must_not` do not.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role};
use crate::json;
use crate::minimum_should_match::MinimumShouldMatch;

/// A `bool` clause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoolQuery {
    /// Must match, and score.
    pub must: Vec<Query>,
    /// Must match, without a score.
    pub filter: Vec<Query>,
    /// May match, and then score.
    pub should: Vec<Query>,
    /// Must not match.
    pub must_not: Vec<Query>,
    /// Number of `should` clauses that must match; by default one where nothing else must.
    pub minimum_should_match: Option<MinimumShouldMatch>,
    /// `true` if exclusions alone match nothing (`adjust_pure_negative: false`), instead of all that they do not exclude.
    pub unadjusted: bool,
    /// Boost and name.
    pub common: Common,
}

impl BoolQuery {
    /// Returns whether there is nothing but exclusions.
    pub fn is_negative(&self) -> bool {
        self.must.is_empty() && self.filter.is_empty() && self.should.is_empty() && !self.must_not.is_empty()
    }

    /// Iterates over all clauses.
    pub fn clauses(&self) -> impl Iterator<Item = &Query> {
        self.must.iter().chain(&self.filter).chain(&self.should).chain(&self.must_not)
    }

    /// Computes how many of `should` must match.
    pub fn required_should(&self) -> usize {
        if self.is_negative() {
            return 0;
        }
        let alone = !self.should.is_empty() && self.must.is_empty() && self.filter.is_empty();
        let asked = self.minimum_should_match.as_ref().map_or(0, |spec| spec.required(self.should.len()));
        asked.max(usize::from(alone))
    }
}

impl Clause for BoolQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut query = Self::default();
        for (key, value) in fields {
            match key.as_str() {
                "must" => query.must.extend(clauses(parser, key, value)?),
                "filter" => query.filter.extend(clauses(parser, key, value)?),
                "should" => query.should.extend(clauses(parser, key, value)?),
                "must_not" | "mustNot" => query.must_not.extend(clauses(parser, key, value)?),
                "minimum_should_match" | "minimumNumberShouldMatch" => {
                    let spec = json::text(value).ok_or_else(|| malformed(key, value))?;
                    query.minimum_should_match = Some(MinimumShouldMatch::parse(&spec)?);
                }
                "adjust_pure_negative" => {
                    query.unadjusted = !json::boolean(value).map_err(|error| within(key, error))?;
                }
                _ if value.is_object() || value.is_array() => return Err(unknown(key)),
                _ if query.common.take("bool", key, value)? => {}
                _ => return Err(unknown(key)),
            }
        }
        Ok(query)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_compound(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        let matching = self.must.iter().chain(&self.filter).chain(&self.should);
        let excluded = self.must_not.iter().map(|clause| (Role::Apart, clause));
        matching.map(|clause| (Role::Matching, clause)).chain(excluded).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        let lists = [&mut self.must, &mut self.filter, &mut self.should, &mut self.must_not];
        lists.into_iter().flatten().collect()
    }
}

fn clauses(parser: &mut Parser, key: &str, value: &Value) -> Result<Vec<Query>> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(_) => Ok(vec![parser.query(value).map_err(|error| within(key, error))?]),
        Value::Array(items) => {
            // Dashboards send null for a filter that is not set. As in OpenSearch, one that a clause follows is passed over.
            let is_unset =
                |at: usize| items[at].is_null() && items.get(at + 1).is_some_and(|next| next.is_object());
            let set = items.iter().enumerate().filter(|(at, _)| !is_unset(*at));
            set.map(|(_, item)| parser.query(item).map_err(|error| within(key, error))).collect()
        }
        other => Err(malformed(key, other)),
    }
}

/// Says in which member an error was met. The bound on clauses is about all of them together.
fn within(key: &str, error: Error) -> Error {
    match error {
        Error::TooManyClauses(_) => error,
        cause => Error::Content {
            reason: format!("[bool] failed to parse field [{key}]"),
            cause: Some(Box::new(cause)),
        },
    }
}

fn malformed(key: &str, value: &Value) -> Error {
    let reason = format!("[bool] {key} doesn't support values of type: {}", json::token(value));
    Error::Content { reason, cause: None }
}

fn unknown(key: &str) -> Error {
    Error::Content { reason: format!("[bool] unknown field [{key}]"), cause: None }
}
