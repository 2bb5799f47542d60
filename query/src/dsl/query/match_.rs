//! `match`: the terms of an analyzed text; on other fields one exact value.

use serde_json::{Map, Value};

use super::{Common, single_field, unsupported};
use crate::dsl::json;
use crate::dsl::minimum_should_match::MinimumShouldMatch;
use crate::error::{Error, Result};

/// Whether any or all terms must match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Operator {
    /// Any.
    #[default]
    Or,
    /// All.
    And,
}

/// What a text without terms matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ZeroTerms {
    /// Nothing.
    #[default]
    None,
    /// Everything.
    All,
}

/// A `match` clause.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MatchQuery {
    /// Field path.
    pub field: String,
    /// The text or value, a JSON scalar.
    pub query: Value,
    /// How terms combine.
    pub operator: Operator,
    /// How many terms must match under [`Operator::Or`].
    pub minimum_should_match: Option<MinimumShouldMatch>,
    /// Analyzer instead of the field's search analyzer.
    pub analyzer: Option<String>,
    /// What a text without terms matches.
    pub zero_terms: ZeroTerms,
    /// Whether a value that does not fit the field matches nothing instead of being refused.
    pub lenient: bool,
    /// Boost and name.
    pub common: Common,
}

impl MatchQuery {
    pub(super) fn parse(fields: &Map<String, Value>) -> Result<Self> {
        let (field, body) = single_field("match", fields)?;
        let mut query = Self {
            field: field.to_owned(),
            query: Value::Null,
            operator: Operator::Or,
            minimum_should_match: None,
            analyzer: None,
            zero_terms: ZeroTerms::None,
            lenient: false,
            common: Common::default(),
        };
        match body {
            Value::Object(options) => {
                for (key, value) in options {
                    query.option(key, value)?;
                }
            }
            Value::Array(_) => {
                return Err(Error::Parsing(format!("[match] unknown token [START_ARRAY] after [{field}]")));
            }
            scalar => query.query = scalar.clone(),
        }
        if query.query.is_null() {
            return Err(Error::Parsing("No text specified for text query".to_owned()));
        }
        Ok(query)
    }

    fn option(&mut self, key: &str, value: &Value) -> Result<()> {
        if value.is_object() || value.is_array() {
            return Err(Error::Parsing(format!(
                "[match] unknown token [{}] after [{key}]",
                json::token(value)
            )));
        }
        let text = json::text(value).unwrap_or_default();
        match key {
            "query" => self.query = value.clone(),
            "operator" => {
                self.operator = match text.to_ascii_lowercase().as_str() {
                    "or" => Operator::Or,
                    "and" => Operator::And,
                    _ => {
                        return Err(Error::IllegalArgument(format!(
                            "No enum constant org.opensearch.index.query.Operator.{}",
                            text.to_uppercase()
                        )));
                    }
                };
            }
            "minimum_should_match" => self.minimum_should_match = Some(MinimumShouldMatch::parse(&text)?),
            "analyzer" => self.analyzer = Some(text),
            "zero_terms_query" => {
                self.zero_terms = match text.to_ascii_lowercase().as_str() {
                    "none" => ZeroTerms::None,
                    "all" => ZeroTerms::All,
                    _ => {
                        return Err(Error::Parsing(format!("Unsupported zero_terms_query value [{text}]")));
                    }
                };
            }
            "lenient" => self.lenient = json::boolean(value)?,
            // These shape fuzzy terms and multi-word synonyms only; without either they say nothing.
            "prefix_length" | "max_expansions" => {
                json::integer(value)?;
            }
            "fuzzy_transpositions" | "auto_generate_synonyms_phrase_query" => {
                json::boolean(value)?;
            }
            _ if self.common.take("match", key, value)? => {}
            _ => return Err(unsupported("match", key)),
        }
        Ok(())
    }
}
