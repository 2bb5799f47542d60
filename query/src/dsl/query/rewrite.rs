//! `rewrite`: what a clause over many terms does with the terms it finds.

use serde_json::Value;

use crate::dsl::json;
use crate::error::{Error, Result};

/// What the terms become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewrite {
    /// One set of rows, with one score.
    ConstantScore,
    /// A clause each, with one score; too many are refused.
    ConstantScoreBoolean,
    /// A clause each, scored as a term; too many are refused.
    ScoringBoolean,
    /// The best so many terms, each scored as a term.
    TopTerms(usize),
    /// The best so many terms, each with its boost as the score.
    TopTermsBoost(usize),
    /// The best so many terms, scored as if all were as frequent as the most frequent.
    TopTermsBlended(usize),
}

impl Rewrite {
    /// Parses an option that may be null.
    pub(super) fn option(value: &Value) -> Result<Option<Self>> {
        if value.is_null() { Ok(None) } else { Self::parse(value).map(Some) }
    }

    /// Parses a name.
    pub(crate) fn parse(value: &Value) -> Result<Self> {
        let text = json::text(value).unwrap_or_default();
        let unknown = || Error::IllegalArgument(format!("Failed to parse rewrite_method [{text}]"));
        let top = |count: &str| count.parse::<u32>().map(|count| count as usize).map_err(|_| unknown());
        match text.as_str() {
            "constant_score" | "constant_score_auto" | "constant_score_filter" | "constant_score_blended" => {
                Ok(Self::ConstantScore)
            }
            "constant_score_boolean" => Ok(Self::ConstantScoreBoolean),
            "scoring_boolean" => Ok(Self::ScoringBoolean),
            _ => {
                if let Some(count) = text.strip_prefix("top_terms_boost_") {
                    Ok(Self::TopTermsBoost(top(count)?))
                } else if let Some(count) = text.strip_prefix("top_terms_blended_freqs_") {
                    Ok(Self::TopTermsBlended(top(count)?))
                } else if let Some(count) = text.strip_prefix("top_terms_") {
                    Ok(Self::TopTerms(top(count)?))
                } else {
                    Err(unknown())
                }
            }
        }
    }
}
