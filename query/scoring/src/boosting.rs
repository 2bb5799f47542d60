//! One condition's rows with another score where another matches too.

use millrace_work::error::{Error, Result};

use crate::condition::{Condition, RowCount, SharedCondition};
use crate::reader::InvertedIndex;
use crate::windows::BoxFilter;
use crate::{BoxScorer, Scorer};

/// A condition with its scores multiplied.
#[derive(Debug)]
pub(crate) struct Boosting {
    /// Condition that matches.
    pub positive: SharedCondition,
    /// Condition whose matches get the second factor.
    pub negative: SharedCondition,
    /// Factors of all scores, and where `negative` matches.
    pub factors: (f32, f32),
}

impl Condition for Boosting {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        let positive = self.positive.scorer(inverted, rows)?;
        let negative = self.negative.scorer(inverted, rows)?;
        Ok(Box::new(BoostingScorer { positive, negative, factors: self.factors }))
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        self.positive.filter(inverted, rows)
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        self.positive.known_count(of)
    }
    fn failure(&self) -> Option<Error> {
        self.positive.failure().or_else(|| self.negative.failure())
    }
}

/// Rows of `positive` with multiplied scores.
struct BoostingScorer<'a> {
    positive: BoxScorer<'a>,
    negative: BoxScorer<'a>,
    /// Factors of all scores, and where `negative` matches too.
    factors: (f32, f32),
}

impl Scorer for BoostingScorer<'_> {
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
