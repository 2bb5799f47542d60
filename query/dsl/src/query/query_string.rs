//! `query_string`, and the parameter `q`: Lucene's classic query language.
//!
//! The text stays a text here: what it means depends on the mapping of each index.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{
    Clause, Common, FieldBoosts, Fuzziness, FuzzyOptions, MatchType, Operator, Parser, Query, RegexpQuery,
    Rewrite, unsupported,
};
use crate::json;
use crate::params::Params;

const CLAUSE: &str = "query_string";

/// A `query_string` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryStringQuery {
    /// The text.
    pub query: String,
    /// Field or pattern of conditions that name none.
    pub default_field: Option<String>,
    /// Fields of conditions that name none.
    pub fields: FieldBoosts,
    /// Operator between clauses that nothing joins.
    pub operator: Operator,
    /// Analyzer instead of those of the fields.
    pub analyzer: Option<String>,
    /// Analyzer of quoted texts instead of those of the fields.
    pub quote_analyzer: Option<String>,
    /// Suffix of the names of fields for quoted texts, where such fields exist.
    pub quote_field_suffix: Option<String>,
    /// `true` if a word may begin with `*` or `?`.
    pub allow_leading_wildcard: bool,
    /// `true` if the start of a term is cut into terms itself.
    pub analyze_wildcard: bool,
    /// `true` if the positions of removed words count in phrases.
    pub position_increments: bool,
    /// Edits of words followed by `~` alone.
    pub fuzziness: Fuzziness,
    /// Options for near terms.
    pub fuzzy: FuzzyOptions,
    /// Scores of the terms of a pattern.
    pub rewrite: Option<Rewrite>,
    /// Scores of near terms; it is read only, as in OpenSearch.
    pub fuzzy_rewrite: Option<Rewrite>,
    /// `true` if nothing in the text has a meaning beyond its words.
    pub escape: bool,
    /// Distance by which terms of phrases may be moved where the phrase does not say.
    pub phrase_slop: i32,
    /// Combination of the fields.
    pub match_type: MatchType,
    /// Share of the score of fields that are not the best.
    pub tie_breaker: Option<f32>,
    /// Number of optional clauses that must match.
    pub minimum_should_match: Option<String>,
    /// Set where a value that does not fit a field matches nothing instead of being refused.
    pub lenient: Option<bool>,
    /// Time zone of dates without one.
    pub time_zone: Option<String>,
    /// Bound of the work of making the automaton of a regular expression.
    pub max_determinized_states: usize,
    /// `true` if synonyms of several words are phrases.
    pub synonym_phrases: bool,
    /// Boost and name.
    pub common: Common,
}

impl QueryStringQuery {
    /// Makes a clause with the defaults.
    pub fn new(query: String) -> Self {
        Self {
            query,
            default_field: None,
            fields: FieldBoosts::default(),
            operator: Operator::Or,
            analyzer: None,
            quote_analyzer: None,
            quote_field_suffix: None,
            allow_leading_wildcard: true,
            analyze_wildcard: false,
            position_increments: true,
            fuzziness: Fuzziness::AUTO,
            fuzzy: FuzzyOptions::default(),
            rewrite: None,
            fuzzy_rewrite: None,
            escape: false,
            phrase_slop: 0,
            match_type: MatchType::BestFields,
            tie_breaker: None,
            minimum_should_match: None,
            lenient: None,
            time_zone: None,
            max_determinized_states: RegexpQuery::MAX_DETERMINIZED_STATES,
            synonym_phrases: true,
            common: Common::default(),
        }
    }

    fn option(&mut self, key: &str, value: &Value) -> Result<()> {
        let text = json::text(value);
        match key {
            "default_field" => self.default_field = text,
            "default_operator" => self.operator = Operator::parse(&text.unwrap_or_default())?,
            "analyzer" => self.analyzer = text,
            "quote_analyzer" => self.quote_analyzer = text,
            "quote_field_suffix" => self.quote_field_suffix = text,
            "allow_leading_wildcard" => self.allow_leading_wildcard = json::boolean(value)?,
            "analyze_wildcard" => self.analyze_wildcard = json::boolean(value)?,
            "enable_position_increments" => self.position_increments = json::boolean(value)?,
            "escape" => self.escape = json::boolean(value)?,
            "fuzziness" => self.fuzziness = Fuzziness::parse(value)?,
            "fuzzy_prefix_length" => self.fuzzy.prefix_length = at_least_none(value)?,
            "fuzzy_max_expansions" => self.fuzzy.max_expansions = at_least_none(value)?,
            "fuzzy_transpositions" => self.fuzzy.transpositions = json::boolean(value)?,
            "fuzzy_rewrite" => self.fuzzy_rewrite = Rewrite::option(value),
            "rewrite" => self.rewrite = Rewrite::option(value),
            "phrase_slop" => self.phrase_slop = i32::try_from(json::integer(value)?).unwrap_or(i32::MAX),
            "type" => self.match_type = MatchType::parse(&text.unwrap_or_default())?,
            "tie_breaker" => self.tie_breaker = Some(json::float(value)?),
            "minimum_should_match" => self.minimum_should_match = text,
            "lenient" => self.lenient = Some(json::boolean(value)?),
            "time_zone" => self.time_zone = text,
            "max_determinized_states" => self.max_determinized_states = at_least_none(value)?,
            "auto_generate_synonyms_phrase_query" => self.synonym_phrases = json::boolean(value)?,
            _ if self.common.take(CLAUSE, key, value)? => {}
            _ => return Err(unsupported(CLAUSE, key)),
        }
        Ok(())
    }
}

impl Clause for QueryStringQuery {
    fn parse(_: &mut Parser, options: &Map<String, Value>) -> Result<Self> {
        let mut query = None;
        let mut clause = Self::new(String::new());
        for (key, value) in options {
            match (key.as_str(), value) {
                ("fields", Value::Array(_)) => clause.fields = FieldBoosts::parse(CLAUSE, value)?,
                ("fields", _) | (_, Value::Array(_)) => return Err(unsupported(CLAUSE, key)),
                (_, Value::Object(_)) => {
                    return Err(Error::Parsing(format!(
                        "[{CLAUSE}] unknown token [{}] after [{key}]",
                        json::token(value)
                    )));
                }
                ("query", value) => query = json::text(value),
                _ => clause.option(key, value)?,
            }
        }
        clause.query =
            query.ok_or_else(|| Error::Parsing(format!("[{CLAUSE}] must be provided with a [query]")))?;
        Ok(clause)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.query)
    }
}

/// Reads the query that a request gives by its parameters: `q`, and what belongs to it.
pub fn from_uri(params: &mut Params) -> Result<Option<Query>> {
    let Some(text) = params.take("q") else { return Ok(None) };
    let mut clause = QueryStringQuery::new(text);
    clause.default_field = params.take("df");
    clause.analyzer = params.take("analyzer");
    clause.analyze_wildcard = params.boolean("analyze_wildcard")?.unwrap_or(false);
    clause.lenient = params.boolean("lenient")?;
    if let Some(operator) = params.take("default_operator") {
        clause.operator = Operator::parse(&operator)?;
    }
    Ok(Some(clause.into()))
}

/// Reads a number of which a negative one stands for none.
pub(super) fn at_least_none(value: &Value) -> Result<usize> {
    Ok(usize::try_from(json::integer(value)?).unwrap_or(0))
}
