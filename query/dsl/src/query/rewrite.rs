//! `rewrite`: the treatment of the terms that a clause over many terms finds.

use serde_json::Value;

use crate::json;

/// Rewrite of the terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
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
    /// No way that there is: refused by each shard, as OpenSearch does.
    Unknown(String),
}

impl Rewrite {
    /// Parses an option that may be null.
    pub(super) fn option(value: &Value) -> Option<Self> {
        json::text(value).map(|text| Self::parse(&text))
    }

    /// Parses a name.
    pub fn parse(text: &str) -> Self {
        let counted = |prefix: &str, make: fn(usize) -> Self| {
            let count = text.strip_prefix(prefix)?.parse::<u32>().ok()?;
            (count > 0).then(|| make(count as usize))
        };
        match text {
            "constant_score" => Self::ConstantScore,
            "constant_score_boolean" => Self::ConstantScoreBoolean,
            "scoring_boolean" => Self::ScoringBoolean,
            _ => counted("top_terms_boost_", Self::TopTermsBoost)
                .or_else(|| counted("top_terms_blended_freqs_", Self::TopTermsBlended))
                .or_else(|| counted("top_terms_", Self::TopTerms))
                .unwrap_or_else(|| Self::Unknown(text.to_owned())),
        }
    }
}
