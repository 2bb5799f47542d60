//! `simple_query_string`: a language of few signs, in which no text is an error.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::query_string::at_least_none;
use super::{Clause, Common, FieldBoosts, FuzzyOptions, Operator, Parser, unsupported};
use crate::json;
use crate::query_string::simple::Flags;

const CLAUSE: &str = "simple_query_string";

/// A `simple_query_string` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct SimpleQueryStringQuery {
    /// The text.
    pub query: String,
    /// The fields; the default fields of the index where none is named.
    pub fields: FieldBoosts,
    /// Flags for the enabled signs.
    pub flags: Flags,
    /// Operator between words that no sign joins.
    pub operator: Operator,
    /// Analyzer instead of those of the fields.
    pub analyzer: Option<String>,
    /// `true` if the start of a term is cut into terms itself.
    pub analyze_wildcard: bool,
    /// Suffix of the names of fields for quoted texts, where such fields exist.
    pub quote_field_suffix: Option<String>,
    /// Set where a value that does not fit a field matches nothing instead of being refused.
    pub lenient: Option<bool>,
    /// Number of optional clauses that must match.
    pub minimum_should_match: Option<String>,
    /// Options for near terms.
    pub fuzzy: FuzzyOptions,
    /// `true` if synonyms of several words are phrases.
    pub synonym_phrases: bool,
    /// Boost and name.
    pub common: Common,
}

impl SimpleQueryStringQuery {
    fn option(&mut self, key: &str, value: &Value) -> Result<()> {
        let text = json::text(value);
        match key {
            "flags" => {
                self.flags = match value {
                    // A negative number stands for all.
                    Value::Number(_) => {
                        Flags(i32::try_from(json::integer(value)?).unwrap_or(Flags::ALL.0).max(Flags::ALL.0))
                    }
                    _ => Flags::parse(&text.unwrap_or_default())?,
                };
            }
            "default_operator" => self.operator = Operator::parse(&text.unwrap_or_default())?,
            "analyzer" => self.analyzer = text,
            "analyze_wildcard" => self.analyze_wildcard = json::boolean(value)?,
            "quote_field_suffix" => self.quote_field_suffix = text,
            "lenient" => self.lenient = Some(json::boolean(value)?),
            "minimum_should_match" => self.minimum_should_match = text,
            "fuzzy_prefix_length" => self.fuzzy.prefix_length = at_least_none(value)?,
            "fuzzy_max_expansions" => self.fuzzy.max_expansions = at_least_none(value)?,
            "fuzzy_transpositions" => self.fuzzy.transpositions = json::boolean(value)?,
            "auto_generate_synonyms_phrase_query" => self.synonym_phrases = json::boolean(value)?,
            // Retired in OpenSearch, where they are read and say nothing.
            "all_fields" | "locale" | "lowercase_expanded_terms" => {}
            _ if self.common.take(CLAUSE, key, value)? => {}
            _ => return Err(Error::Parsing(format!("[{CLAUSE}] unsupported field [{key}]"))),
        }
        Ok(())
    }
}

impl Clause for SimpleQueryStringQuery {
    fn parse(_: &mut Parser, options: &Map<String, Value>) -> Result<Self> {
        let mut query = None;
        let mut clause = Self {
            query: String::new(),
            fields: FieldBoosts::default(),
            flags: Flags::ALL,
            operator: Operator::Or,
            analyzer: None,
            analyze_wildcard: false,
            quote_field_suffix: None,
            lenient: None,
            minimum_should_match: None,
            fuzzy: FuzzyOptions::default(),
            synonym_phrases: true,
            common: Common::default(),
        };
        for (key, value) in options {
            match (key.as_str(), value) {
                ("fields", Value::Array(_)) => clause.fields = FieldBoosts::parse(CLAUSE, value)?,
                (_, Value::Array(_)) => return Err(unsupported(CLAUSE, key)),
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
        clause.query = query.ok_or_else(|| Error::Parsing(format!("[{CLAUSE}] query text missing")))?;
        Ok(clause)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.query)
    }
}
