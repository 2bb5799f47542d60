//! A condition that must not be fulfilled.

use millrace_work::error::{Error, Result};

use crate::condition::{Condition, Role, RowCount, SharedCondition};
use crate::conjunction;
use crate::match_all::EveryRow;
use crate::reader::InvertedIndex;
use crate::windows::BoxFilter;
use crate::{BoxScorer, END, Scorer};

/// Rows that a condition does not match; they do not score.
#[derive(Debug)]
pub struct NegationScorer(pub SharedCondition);

impl Condition for NegationScorer {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        let excluded = self.0.scorer(inverted, rows)?;
        Ok(Box::new(Exclusion::new(Box::new(EveryRow::new(rows, 0.0)), excluded)))
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        conjunction::without(&self.0, inverted, rows)
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        Ok(self.0.known_count(of)?.map(|matched| of.live().saturating_sub(matched)))
    }
    fn failure(&self) -> Option<Error> {
        self.0.failure()
    }
    fn is_unscored(&self) -> bool {
        true
    }
    fn role(&self) -> Role<'_> {
        Role::Excluded(&self.0)
    }
}

/// Rows of one scorer that another does not match.
pub(super) struct Exclusion<'a> {
    base: BoxScorer<'a>,
    excluded: BoxScorer<'a>,
}

impl<'a> Exclusion<'a> {
    /// Starts at the first row that is left.
    pub(super) fn new(base: BoxScorer<'a>, excluded: BoxScorer<'a>) -> Self {
        let mut exclusion = Self { base, excluded };
        exclusion.seek_match();
        exclusion
    }

    fn seek_match(&mut self) -> u32 {
        let mut doc = self.base.doc();
        while doc != END && self.excluded.seek(doc) == doc {
            doc = self.base.advance();
        }
        doc
    }
}

impl Scorer for Exclusion<'_> {
    fn doc(&self) -> u32 {
        self.base.doc()
    }
    fn advance(&mut self) -> u32 {
        self.base.advance();
        self.seek_match()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.base.seek(target);
        self.seek_match()
    }
    fn score(&mut self) -> f32 {
        self.base.score()
    }
    fn max_score(&self) -> f32 {
        self.base.max_score()
    }
    fn bound(&mut self, target: u32) -> (f32, u32) {
        self.base.bound(target)
    }
    fn raise_threshold(&mut self, threshold: f32) {
        self.base.raise_threshold(threshold);
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}
