//! [`SurpriseScale`]: joins what is odd about a bucket to one score.
//!
//! A bucket is odd by its error, and by its value among those of the window. Both have a [`ScoreTail`] of the training window. The raw
//! score is the sum of their surprises. That of the value counts as far as the error is odd: a metric that grows as before is usual.

use crate::artefact::{ArtefactReader, ArtefactWriter};
use crate::error::Result;
use crate::score_tail::ScoreTail;
use crate::seasonal_filter::Residual;

/// Share of two tails of a distribution by one of them, as a decimal logarithm.
const BOTH_TAILS: f64 = std::f64::consts::LOG10_2;

/// Largest surprise of a value, by that of the error.
const MAX_BY_ERROR: f64 = 2.0;

/// Distributions of what is odd about the buckets of the training window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SurpriseScale {
    error: ScoreTail,
    /// Of values, and of values with the other sign.
    high: ScoreTail,
    low: ScoreTail,
}

impl SurpriseScale {
    /// Fits the distributions of buckets with a value, and their residuals.
    pub(crate) fn fit(buckets: &[(f64, Residual)]) -> Self {
        let of = |score: fn(&(f64, Residual)) -> f64| ScoreTail::fit(buckets.iter().map(score).collect());
        Self {
            error: of(|(_, residual)| residual.relative_error()),
            high: of(|(value, _)| *value),
            low: of(|(value, _)| -*value),
        }
    }

    /// Returns the raw score of a value.
    pub(crate) fn surprise(&self, value: f64, residual: &Residual) -> f64 {
        let of_error = self.error.surprise(residual.relative_error());
        let of_value = self.high.surprise(value).max(self.low.surprise(-value)) - BOTH_TAILS;
        of_error + of_value.clamp(0.0, MAX_BY_ERROR * of_error)
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        [&self.error, &self.high, &self.low].into_iter().for_each(|tail| tail.encode(out));
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>) -> Result<Self> {
        let mut next = || ScoreTail::decode(from);
        Ok(Self { error: next()?, high: next()?, low: next()? })
    }
}
