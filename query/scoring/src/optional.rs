//! A condition that only scores.

use millrace_work::error::{Error, Result};

use crate::condition::{Condition, Role, RowCount, SharedCondition};
use crate::match_all::{EveryRow, EveryWindow};
use crate::reader::InvertedIndex;
use crate::windows::BoxFilter;
use crate::{BoxScorer, Scorer};

/// Every row; those that a condition matches score.
#[derive(Debug)]
pub(crate) struct Optional(pub SharedCondition);

impl Condition for Optional {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        let extra = self.0.scorer(inverted, rows)?;
        Ok(Box::new(WithOptional::new(Box::new(EveryRow::new(rows, 0.0)), extra)))
    }
    fn filter<'a>(&'a self, _inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        Ok(Box::new(EveryWindow(rows)))
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        Ok(Some(of.live()))
    }
    fn failure(&self) -> Option<Error> {
        self.0.failure()
    }
    fn role(&self) -> Role<'_> {
        Role::Optional(&self.0)
    }
}

/// Rows of one scorer; another adds to the score where it matches too.
pub(super) struct WithOptional<'a> {
    base: BoxScorer<'a>,
    extra: BoxScorer<'a>,
}

impl<'a> WithOptional<'a> {
    /// Starts at the first row of `base`.
    pub(super) fn new(base: BoxScorer<'a>, extra: BoxScorer<'a>) -> Self {
        Self { base, extra }
    }
}

impl Scorer for WithOptional<'_> {
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
        let score = self.base.score();
        let doc = self.base.doc();
        if self.extra.seek(doc) == doc { score + self.extra.score() } else { score }
    }
    fn max_score(&self) -> f32 {
        self.base.max_score() + self.extra.max_score()
    }
    fn raise_threshold(&mut self, threshold: f32) {
        let own = threshold - self.extra.max_score();
        if own > 0.0 {
            self.base.raise_threshold(own * 0.999_99);
        }
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}
