//! The best of several conditions' scores, with a share of the others'.

use millrace_work::error::{Error, Result};

use crate::BoxScorer;
use crate::condition::{Condition, RowCount, SharedCondition};
use crate::disjunction::{DisjunctionScorer, filters, matching};
use crate::match_all::MatchNoneScorer;
use crate::reader::InvertedIndex;
use crate::scorer_union::{ScoreCombiner, UnionScorer};
use crate::windows::BoxFilter;

/// Any of some parts; the best score counts in full, the others by a share.
#[derive(Debug)]
pub(crate) struct DisjunctionMax {
    /// The share of the other scores, from 0 to 1.
    pub tie_breaker: f32,
    /// The parts.
    pub parts: Vec<SharedCondition>,
}

impl Condition for DisjunctionMax {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        let mut parts = matching(&self.parts, inverted, rows)?;
        Ok(match parts.len() {
            0 => Box::new(MatchNoneScorer),
            1 => parts.remove(0),
            _ => Box::new(UnionScorer::<DisjunctionMaxScore>::new(parts, 1, self.tie_breaker)),
        })
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        Ok(Box::new(DisjunctionScorer(filters(&self.parts, inverted, rows)?)))
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        match self.parts.as_slice() {
            [only] => only.known_count(of),
            _ => Ok(None),
        }
    }
    fn failure(&self) -> Option<Error> {
        self.parts.iter().find_map(|part| part.failure())
    }
}

/// The scores of one row, joined as Lucene's `DisjunctionMaxScorer` does.
#[derive(Default)]
struct DisjunctionMaxScore {
    best: f32,
    others: f64,
}

impl ScoreCombiner for DisjunctionMaxScore {
    type Key = f32;

    fn add(&mut self, score: f32) {
        self.others += f64::from(self.best.min(score));
        self.best = self.best.max(score);
    }
    fn total(&self, tie_breaker: f32) -> f32 {
        // Bounds may be infinite, and no share of that is nothing.
        match tie_breaker == 0.0 {
            true => self.best,
            false => (f64::from(self.best) + self.others * f64::from(tie_breaker)) as f32,
        }
    }
}
