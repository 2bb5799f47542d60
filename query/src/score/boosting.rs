//! One scorer's rows with less score where another matches too.

use super::{BoxScorer, Scorer};

/// Rows of `positive`; where `negative` matches too their score is multiplied by a factor.
pub(crate) struct Boosting<'a> {
    positive: BoxScorer<'a>,
    negative: BoxScorer<'a>,
    factor: f32,
}

impl<'a> Boosting<'a> {
    /// Starts at the first row of `positive`.
    pub(crate) fn new(positive: BoxScorer<'a>, negative: BoxScorer<'a>, factor: f32) -> Self {
        Self { positive, negative, factor }
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
        let score = self.positive.score();
        let doc = self.positive.doc();
        if self.negative.seek(doc) == doc { score * self.factor } else { score }
    }
    fn max_score(&self) -> f32 {
        self.positive.max_score() * self.factor.max(1.0)
    }
    fn cost(&self) -> u64 {
        self.positive.cost()
    }
}
