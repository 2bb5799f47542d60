//! `match`: the terms of an analyzed text; on other fields one exact value.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::fuzziness::count;
use super::{Clause, Common, Fuzziness, FuzzyOptions, Parser, Rewrite, single_field, unsupported};
use crate::json;
use crate::minimum_should_match::MinimumShouldMatch;

/// Operator between terms: any or all must match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operator {
    /// Any.
    #[default]
    Or,
    /// All.
    And,
}

impl Operator {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "or" => Ok(Self::Or),
            "and" => Ok(Self::And),
            _ => Err(Error::IllegalArgument(format!(
                "No enum constant org.opensearch.index.query.Operator.{}",
                text.to_uppercase()
            ))),
        }
    }
}

/// Result for a text without terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroTerms {
    /// Nothing.
    #[default]
    None,
    /// Everything.
    All,
}

impl ZeroTerms {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "all" => Ok(Self::All),
            _ => Err(Error::Parsing(format!("Unsupported zero_terms_query value [{text}]"))),
        }
    }
}

/// A `match` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchQuery {
    /// Field path.
    pub field: String,
    /// The text or value, a JSON scalar.
    pub query: Value,
    /// Operator between terms.
    pub operator: Operator,
    /// Number of terms that must match under [`Operator::Or`].
    pub minimum_should_match: Option<MinimumShouldMatch>,
    /// Analyzer instead of the field's search analyzer.
    pub analyzer: Option<String>,
    /// Edits that terms may be away, where they may.
    pub fuzziness: Option<Fuzziness>,
    /// Options for near terms.
    pub fuzzy: FuzzyOptions,
    /// Result for a text without terms.
    pub zero_terms: ZeroTerms,
    /// `true` if a value that does not fit the field matches nothing instead of being refused.
    pub lenient: bool,
    /// `true` if synonyms of several words are phrases.
    pub synonym_phrases: bool,
    /// Boost and name.
    pub common: Common,
}

impl MatchQuery {
    /// Makes a clause with the defaults.
    pub fn new(field: &str, query: Value) -> Self {
        Self {
            field: field.to_owned(),
            query,
            operator: Operator::Or,
            minimum_should_match: None,
            analyzer: None,
            fuzziness: None,
            fuzzy: FuzzyOptions::default(),
            zero_terms: ZeroTerms::None,
            lenient: false,
            synonym_phrases: true,
            common: Common::default(),
        }
    }

    fn option(&mut self, key: &str, value: &Value) -> Result<()> {
        let text = json::text(value).unwrap_or_default();
        match key {
            "operator" => self.operator = Operator::parse(&text)?,
            "minimum_should_match" => self.minimum_should_match = minimum(value)?,
            "analyzer" => self.analyzer = Some(text),
            "fuzziness" => self.fuzziness = Some(Fuzziness::parse(value)?),
            "zero_terms_query" => self.zero_terms = ZeroTerms::parse(&text)?,
            "lenient" => self.lenient = json::boolean(value)?,
            "auto_generate_synonyms_phrase_query" => self.synonym_phrases = json::boolean(value)?,
            // Terms that are common do not cost much any more.
            "cutoff_frequency" => {
                json::float(value)?;
            }
            _ if fuzzy_option("match", &mut self.fuzzy, key, value)? => {}
            _ if self.common.take("match", key, value)? => {}
            _ => return Err(unsupported("match", key)),
        }
        Ok(())
    }
}

impl Clause for MatchQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let (field, query, options) = text_query("match", fields)?;
        let mut clause = Self::new(field, query);
        for (key, value) in options {
            clause.option(key, value)?;
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

/// The field, the text and the other options of a clause about an analyzed text.
pub(super) type TextQuery<'a> = (&'a str, Value, Vec<(&'a str, &'a Value)>);

/// Takes a clause about an analyzed text apart.
pub(super) fn text_query<'a>(clause: &str, fields: &'a Map<String, Value>) -> Result<TextQuery<'a>> {
    let (field, body) = single_field(clause, fields)?;
    let (mut query, mut rest) = (Value::Null, Vec::new());
    match body {
        Value::Object(options) => {
            for (key, value) in options {
                if value.is_object() || value.is_array() || value.is_null() && key != "query" {
                    return Err(Error::Parsing(format!(
                        "[{clause}] unknown token [{}] after [{key}]",
                        json::token(value)
                    )));
                }
                match key.as_str() {
                    "query" => query = value.clone(),
                    _ => rest.push((key.as_str(), value)),
                }
            }
        }
        Value::Array(_) => {
            return Err(Error::Parsing(format!("[{clause}] unknown token [START_ARRAY] after [{field}]")));
        }
        scalar => query = scalar.clone(),
    }
    if query.is_null() {
        return Err(Error::Parsing("No text specified for text query".to_owned()));
    }
    Ok((field, query, rest))
}

/// Reads a `minimum_should_match` that may be null.
pub(super) fn minimum(value: &Value) -> Result<Option<MinimumShouldMatch>> {
    json::text(value).map(|text| MinimumShouldMatch::parse(&text)).transpose()
}

/// Takes an option about near terms, and tells whether it was one.
pub(super) fn fuzzy_option(
    clause: &str,
    options: &mut FuzzyOptions,
    key: &str,
    value: &Value,
) -> Result<bool> {
    match key {
        "prefix_length" => {
            let refusal = format!("[{clause}] requires prefix length to be non-negative.");
            options.prefix_length = count(value, 0, &refusal)?;
        }
        "max_expansions" => {
            let refusal = format!("[{clause}] requires maxExpansions to be positive.");
            options.max_expansions = count(value, 1, &refusal)?;
        }
        "fuzzy_transpositions" => options.transpositions = json::boolean(value)?,
        "fuzzy_rewrite" => options.rewrite = Rewrite::option(value),
        _ => return Ok(false),
    }
    Ok(true)
}
