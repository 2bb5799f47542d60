//! A condition whose rows have one score.

use millrace_work::error::{Error, Result};

use crate::condition::{Condition, RowCount, SharedCondition};
use crate::reader::InvertedIndex;
use crate::windows::BoxFilter;
use crate::{BoxScorer, Scorer};

/// A condition with one score.
#[derive(Debug)]
pub(crate) struct Constant {
    /// Score.
    pub score: f32,
    /// Condition that matches.
    pub part: SharedCondition,
}

impl Condition for Constant {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        Ok(Box::new(Flat { base: self.part.scorer(inverted, rows)?, score: self.score }))
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        self.part.filter(inverted, rows)
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        self.part.known_count(of)
    }
    fn failure(&self) -> Option<Error> {
        self.part.failure()
    }
    fn is_unscored(&self) -> bool {
        self.score == 0.0
    }
}

/// Rows of a scorer with one score.
struct Flat<'a> {
    base: BoxScorer<'a>,
    score: f32,
}

impl Scorer for Flat<'_> {
    fn doc(&self) -> u32 {
        self.base.doc()
    }
    fn advance(&mut self) -> u32 {
        self.base.advance()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.base.seek(target)
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.score
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}
