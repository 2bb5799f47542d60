//! `match_phrase`: the terms of an analyzed text, in order and side by side.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::fuzziness::count;
use super::match_::text_query;
use super::{Clause, Common, Parser, ZeroTerms, unsupported};
use crate::json;

/// A `match_phrase` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchPhraseQuery {
    /// Field path.
    pub field: String,
    /// The text or value, a JSON scalar.
    pub query: Value,
    /// Analyzer instead of the field's analyzer for phrases.
    pub analyzer: Option<String>,
    /// Number of positions by which terms may be moved in all.
    pub slop: u32,
    /// Result for a text without terms.
    pub zero_terms: ZeroTerms,
    /// `true` if a value that does not fit the field matches nothing instead of being refused.
    pub lenient: bool,
    /// Boost and name.
    pub common: Common,
}

impl MatchPhraseQuery {
    /// Makes a clause with the defaults.
    pub fn new(field: &str, query: Value) -> Self {
        Self {
            field: field.to_owned(),
            query,
            analyzer: None,
            slop: 0,
            zero_terms: ZeroTerms::None,
            lenient: false,
            common: Common::default(),
        }
    }
}

impl Clause for MatchPhraseQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "match_phrase";
        let (field, query, options) = text_query(CLAUSE, fields)?;
        let mut clause = Self::new(field, query);
        for (key, value) in options {
            let text = json::text(value).unwrap_or_default();
            match key {
                "analyzer" => clause.analyzer = Some(text),
                "slop" => clause.slop = slop(value)?,
                "zero_terms_query" => clause.zero_terms = ZeroTerms::parse(&text)?,
                _ if clause.common.take(CLAUSE, key, value)? => {}
                _ => return Err(unsupported(CLAUSE, key)),
            }
        }
        Ok(clause)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.field, self.query)
    }
}

/// A `match_phrase_prefix` clause: the last term is the start of one.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchPhrasePrefixQuery {
    /// The phrase; its last term is expanded.
    pub phrase: MatchPhraseQuery,
    /// Most terms that the last one stands for.
    pub max_expansions: usize,
}

impl MatchPhrasePrefixQuery {
    /// Makes a clause with the defaults.
    pub fn new(field: &str, query: Value) -> Self {
        Self { phrase: MatchPhraseQuery::new(field, query), max_expansions: 50 }
    }
}

impl Clause for MatchPhrasePrefixQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "match_phrase_prefix";
        let (field, query, options) = text_query(CLAUSE, fields)?;
        let mut clause = Self::new(field, query);
        for (key, value) in options {
            let text = json::text(value).unwrap_or_default();
            match key {
                "analyzer" => clause.phrase.analyzer = Some(text),
                "slop" => clause.phrase.slop = slop(value)?,
                "max_expansions" => {
                    clause.max_expansions = count(value, 0, "No negative maxExpansions allowed.")?
                }
                "zero_terms_query" => clause.phrase.zero_terms = ZeroTerms::parse(&text)?,
                _ if clause.phrase.common.take(CLAUSE, key, value)? => {}
                _ => return Err(unsupported(CLAUSE, key)),
            }
        }
        Ok(clause)
    }

    fn common(&self) -> &Common {
        &self.phrase.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}*", self.phrase.field, self.phrase.query)
    }
}

fn slop(value: &Value) -> Result<u32> {
    u32::try_from(json::integer(value)?)
        .ok()
        .filter(|slop| *slop <= i32::MAX as u32)
        .ok_or_else(|| Error::IllegalArgument("No negative slop allowed.".to_owned()))
}
