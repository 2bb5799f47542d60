//! One scorer's rows with another score where another matches too.

use super::{BoxScorer, Scorer};

/// Rows of `positive` with multiplied scores.
pub(crate) struct Boosting<'a> {
    positive: BoxScorer<'a>,
    negative: BoxScorer<'a>,
    /// Factors of all scores, and where `negative` matches too.
    factors: (f32, f32),
}

impl<'a> Boosting<'a> {
    /// Starts at the first row of `positive`.
    pub(crate) fn new(positive: BoxScorer<'a>, negative: BoxScorer<'a>, factors: (f32, f32)) -> Self {
        Self { positive, negative, factors }
    }
}

impl Scorer for Boosting<'_> {
    fn doc(&self) -> u32 {
        self.positive.doc()
    }
    fn advance(&mut self) -> u32 {
        self.positive.advance()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.positive.seek(target)
    }
    fn score(&mut self) -> f32 {
        let score = self.positive.score() * self.factors.0;
        let doc = self.positive.doc();
        if self.negative.seek(doc) == doc { score * self.factors.1 } else { score }
    }
    fn max_score(&self) -> f32 {
        match self.factors.0 == 0.0 {
            true => 0.0,
            false => self.positive.max_score() * self.factors.0 * self.factors.1.max(1.0),
        }
    }
    fn cost(&self) -> u64 {
        self.positive.cost()
    }
}
