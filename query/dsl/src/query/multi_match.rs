//! `multi_match`: a text in several fields at once.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{
    Clause, Common, FieldBoosts, Fuzziness, FuzzyOptions, Operator, Parser, Rewrite, ZeroTerms, unsupported,
};
use crate::json;

const CLAUSE: &str = "multi_match";

/// Combination of the fields of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchType {
    /// The best field counts.
    #[default]
    BestFields,
    /// The fields add up.
    MostFields,
    /// Each term may be in any field: all are one.
    CrossFields,
    /// As a phrase, the best field counts.
    Phrase,
    /// As a phrase whose last term is the start of one, the best field counts.
    PhrasePrefix,
    /// Terms of which the last is the start of one; the fields add up.
    BoolPrefix,
}

impl MatchType {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "best_fields" => Self::BestFields,
            "most_fields" => Self::MostFields,
            "cross_fields" => Self::CrossFields,
            "phrase" => Self::Phrase,
            "phrase_prefix" => Self::PhrasePrefix,
            "bool_prefix" => Self::BoolPrefix,
            _ => {
                return Err(Error::Parse(format!(
                    "failed to parse [multi_match] query type [{text}]. unknown type."
                )));
            }
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::BestFields => "best_fields",
            Self::MostFields => "most_fields",
            Self::CrossFields => "cross_fields",
            Self::Phrase => "phrase",
            Self::PhrasePrefix => "phrase_prefix",
            Self::BoolPrefix => "bool_prefix",
        }
    }

    /// Returns the share of the score of fields that are not the best.
    pub fn tie_breaker(self) -> f32 {
        match self {
            Self::MostFields | Self::BoolPrefix => 1.0,
            Self::BestFields | Self::CrossFields | Self::Phrase | Self::PhrasePrefix => 0.0,
        }
    }
}

/// A `multi_match` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiMatchQuery {
    /// The text.
    pub query: String,
    /// The fields; the default fields of the index where none is named.
    pub fields: FieldBoosts,
    /// Combination of the fields.
    pub match_type: MatchType,
    /// Operator between terms.
    pub operator: Operator,
    /// Analyzer instead of those of the fields.
    pub analyzer: Option<String>,
    /// Number of positions by which the terms of a phrase may be moved in all.
    pub slop: u32,
    /// Edits that terms may be away, where they may.
    pub fuzziness: Option<Fuzziness>,
    /// Options for near terms; `max_expansions` also bounds the terms of a prefix.
    pub fuzzy: FuzzyOptions,
    /// Number of terms that must match under [`Operator::Or`].
    pub minimum_should_match: Option<String>,
    /// Share of the score of fields that are not the best.
    pub tie_breaker: Option<f32>,
    /// Set where a value that does not fit a field matches nothing instead of being refused.
    pub lenient: Option<bool>,
    /// Result for a text without terms.
    pub zero_terms: ZeroTerms,
    /// `true` if synonyms of several words are phrases.
    pub synonym_phrases: bool,
    /// `true` if a bound between common terms and rare ones is given.
    cutoff: bool,
    /// Boost and name.
    pub common: Common,
}

impl MultiMatchQuery {
    fn option(&mut self, key: &str, value: &Value) -> Result<()> {
        let text = json::text(value).unwrap_or_default();
        match key {
            "type" => self.match_type = MatchType::parse(&text)?,
            "analyzer" => self.analyzer = Some(text),
            "slop" => {
                self.slop = u32::try_from(json::integer(value)?)
                    .ok()
                    .filter(|slop| *slop <= i32::MAX as u32)
                    .ok_or_else(|| Error::IllegalArgument("No negative slop allowed.".to_owned()))?;
            }
            "fuzziness" => self.fuzziness = Some(Fuzziness::parse(value)?),
            "prefix_length" => {
                self.fuzzy.prefix_length = usize::try_from(json::integer(value)?)
                    .map_err(|_| Error::IllegalArgument("No negative prefix length allowed.".to_owned()))?;
            }
            "max_expansions" => {
                self.fuzzy.max_expansions = usize::try_from(json::integer(value)?)
                    .ok()
                    .filter(|number| *number > 0)
                    .ok_or_else(|| {
                        Error::IllegalArgument("Max expansions must be strictly great than zero.".to_owned())
                    })?;
            }
            "fuzzy_transpositions" => self.fuzzy.transpositions = json::boolean(value)?,
            "fuzzy_rewrite" => self.fuzzy.rewrite = Rewrite::option(value),
            "operator" => self.operator = Operator::parse(&text)?,
            "minimum_should_match" => self.minimum_should_match = json::text(value),
            "tie_breaker" => self.tie_breaker = Some(json::float(value)?),
            // Terms that are common do not cost much any more.
            "cutoff_frequency" => {
                json::float(value)?;
                self.cutoff = true;
            }
            "lenient" => self.lenient = Some(json::boolean(value)?),
            "zero_terms_query" => self.zero_terms = ZeroTerms::parse(&text)?,
            "auto_generate_synonyms_phrase_query" => self.synonym_phrases = json::boolean(value)?,
            _ if self.common.take(CLAUSE, key, value)? => {}
            _ => return Err(unsupported(CLAUSE, key)),
        }
        Ok(())
    }

    /// Refuses options that contradict each other.
    fn check(&self) -> Result<()> {
        let kind = self.match_type;
        let whole = matches!(kind, MatchType::CrossFields | MatchType::Phrase | MatchType::PhrasePrefix);
        if self.fuzziness.is_some() && whole {
            return Err(Error::Parsing(format!("Fuzziness not allowed for type [{}]", kind.name())));
        }
        if self.slop != 0 && kind == MatchType::BoolPrefix {
            return Err(Error::Parsing(format!("[slop] not allowed for type [{}]", kind.name())));
        }
        if self.cutoff && kind == MatchType::BoolPrefix {
            return Err(Error::Parsing(format!("[cutoff_frequency] not allowed for type [{}]", kind.name())));
        }
        Ok(())
    }
}

impl Clause for MultiMatchQuery {
    fn parse(_: &mut Parser, options: &Map<String, Value>) -> Result<Self> {
        let mut query = None;
        let mut clause = Self {
            query: String::new(),
            fields: FieldBoosts::default(),
            match_type: MatchType::default(),
            operator: Operator::Or,
            analyzer: None,
            slop: 0,
            fuzziness: None,
            fuzzy: FuzzyOptions::default(),
            minimum_should_match: None,
            tie_breaker: None,
            lenient: None,
            zero_terms: ZeroTerms::None,
            synonym_phrases: true,
            cutoff: false,
            common: Common::default(),
        };
        for (key, value) in options {
            match (key.as_str(), value) {
                ("fields", value) => clause.fields = FieldBoosts::parse(CLAUSE, value)?,
                (_, Value::Array(_) | Value::Object(_)) | ("query", Value::Null) => {
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
            query.ok_or_else(|| Error::Parsing("No text specified for multi_match query".to_owned()))?;
        clause.check()?;
        Ok(clause)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.query)
    }
}
