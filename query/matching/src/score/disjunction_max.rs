//! The best of several scorers' scores, with a share of the others'.

use super::boolean::Union;
use super::{BoxScorer, Scorer};

/// Rows that any part matches; the best score counts in full, the others by a share.
pub(crate) struct DisjunctionMax<'a> {
    union: Union<'a>,
    tie_breaker: f32,
}

impl<'a> DisjunctionMax<'a> {
    /// Starts at the first row. `tie_breaker` is the share of the other scores, from 0 to 1.
    pub(crate) fn new(parts: Vec<BoxScorer<'a>>, tie_breaker: f32) -> Self {
        Self { union: Union::new(parts, 1), tie_breaker }
    }
}

/// The scores of one row, joined as Lucene's `DisjunctionMaxScorer` does.
#[derive(Default)]
struct Joined {
    best: f32,
    others: f64,
}

impl Joined {
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

impl Scorer for DisjunctionMax<'_> {
    fn doc(&self) -> u32 {
        self.union.doc()
    }
    fn advance(&mut self) -> u32 {
        self.union.advance()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.union.seek(target)
    }
    fn score(&mut self) -> f32 {
        let mut joined = Joined::default();
        self.union.for_each_here(|part| joined.add(part.score()));
        joined.total(self.tie_breaker)
    }
    fn max_score(&self) -> f32 {
        let mut joined = Joined::default();
        self.union.parts().iter().for_each(|part| joined.add(part.max_score()));
        joined.total(self.tie_breaker)
    }
    fn cost(&self) -> u64 {
        self.union.parts().iter().map(|part| part.cost()).sum()
    }
}
