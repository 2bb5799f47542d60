//! `bool`: clauses combined; `must` and `should` score, `filter` and `must_not` do not.

use serde_json::{Map, Value};

use super::{Common, Parser, Query};
use crate::dsl::json;
use crate::dsl::minimum_should_match::MinimumShouldMatch;
use crate::error::{Error, Result};

/// A `bool` clause.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BoolQuery {
    /// Must match, and score.
    pub must: Vec<Query>,
    /// Must match, without a score.
    pub filter: Vec<Query>,
    /// May match, and then score.
    pub should: Vec<Query>,
    /// Must not match.
    pub must_not: Vec<Query>,
    /// How many of `should` must match; by default one where nothing else must.
    pub minimum_should_match: Option<MinimumShouldMatch>,
    /// Boost and name.
    pub common: Common,
}

impl BoolQuery {
    pub(super) fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut query = Self::default();
        for (key, value) in fields {
            match key.as_str() {
                "must" => query.must = clauses(parser, key, value)?,
                "filter" => query.filter = clauses(parser, key, value)?,
                "should" => query.should = clauses(parser, key, value)?,
                "must_not" | "mustNot" => query.must_not = clauses(parser, key, value)?,
                "minimum_should_match" | "minimumNumberShouldMatch" => {
                    let spec = json::text(value).ok_or_else(|| unknown_token(key, value))?;
                    query.minimum_should_match = Some(MinimumShouldMatch::parse(&spec)?);
                }
                // The default; `false` makes a query of `must_not` alone match nothing.
                "adjust_pure_negative" if json::boolean(value)? => {}
                _ if !value.is_object() && !value.is_array() => {
                    if !query.common.take("bool", key, value)? {
                        return Err(Error::Parsing(format!("[bool] query does not support [{key}]")));
                    }
                }
                _ => return Err(unknown_token(key, value)),
            }
        }
        Ok(query)
    }

    /// Iterates over all clauses.
    pub(crate) fn clauses(&self) -> impl Iterator<Item = &Query> {
        self.must.iter().chain(&self.filter).chain(&self.should).chain(&self.must_not)
    }

    /// Computes how many of `should` must match.
    pub(crate) fn required_should(&self) -> usize {
        match &self.minimum_should_match {
            Some(spec) => spec.required(self.should.len()),
            None => usize::from(!self.should.is_empty() && self.must.is_empty() && self.filter.is_empty()),
        }
    }
}

fn clauses(parser: &mut Parser, key: &str, value: &Value) -> Result<Vec<Query>> {
    match value {
        Value::Object(_) => Ok(vec![parser.query(value)?]),
        Value::Array(items) => items.iter().map(|item| parser.query(item)).collect(),
        other => Err(unknown_token(key, other)),
    }
}

fn unknown_token(key: &str, value: &Value) -> Error {
    Error::Parsing(format!("[bool] unknown token [{}] after [{key}]", json::token(value)))
}
