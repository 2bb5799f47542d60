//! A condition whose scores are multiplied, and of which low scores are left out.

use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};

use crate::condition::{Condition, RowCount, SharedCondition};
use crate::failure::{Failure, Watch};
use crate::reader::InvertedIndex;
use crate::windows::{BoxFilter, ScorerRows};
use crate::{BoxScorer, END, Scorer};

/// A condition with scores times a factor; rows of less than a least score are left out.
#[derive(Debug)]
pub struct Scaled {
    factor: f32,
    /// Least score.
    least: Option<f32>,
    /// Condition that is scaled.
    part: SharedCondition,
    work: QueryContext,
    /// The error that ended a pass over its rows.
    failure: Failure,
}

impl Scaled {
    /// Scales a part for some work.
    pub fn new(part: SharedCondition, factor: f32, least: Option<f32>, work: &QueryContext) -> Self {
        Self { factor, least, part, work: work.clone(), failure: Failure::default() }
    }
}

impl Condition for Scaled {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        let watch = Watch::new(&self.work, &self.failure);
        Ok(Box::new(ScaledScorer::new(self.part.scorer(inverted, rows)?, self.factor, self.least, watch)))
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        match self.least {
            None => self.part.filter(inverted, rows),
            Some(_) => Ok(Box::new(ScorerRows(self.scorer(inverted, rows)?))),
        }
    }
    fn by_scorer(&self) -> bool {
        self.least.is_some()
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        if self.least.is_some() { Ok(None) } else { self.part.known_count(of) }
    }
    fn failure(&self) -> Option<Error> {
        self.failure.take().or_else(|| self.part.failure())
    }
}

/// Rows of a scorer whose scores, times a factor, reach a least score.
struct ScaledScorer<'a> {
    base: BoxScorer<'a>,
    factor: f32,
    least: Option<f32>,
    watch: Watch<'a>,
}

impl<'a> ScaledScorer<'a> {
    /// Starts at the first row of `base` that reaches `least`.
    fn new(base: BoxScorer<'a>, factor: f32, least: Option<f32>, watch: Watch<'a>) -> Self {
        let mut scaled = Self { base, factor, least, watch };
        scaled.seek_match();
        scaled
    }

    fn seek_match(&mut self) -> u32 {
        let mut doc = self.doc();
        if let Some(least) = self.least {
            while doc != END && self.base.score() * self.factor < least {
                if !self.watch.goes_on() {
                    return END;
                }
                doc = self.base.advance();
            }
        }
        doc
    }
}

impl Scorer for ScaledScorer<'_> {
    fn doc(&self) -> u32 {
        if self.watch.ended() { END } else { self.base.doc() }
    }
    fn advance(&mut self) -> u32 {
        if self.watch.ended() {
            return END;
        }
        self.base.advance();
        self.seek_match()
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.watch.ended() {
            return END;
        }
        self.base.seek(target);
        self.seek_match()
    }
    fn score(&mut self) -> f32 {
        self.base.score() * self.factor
    }
    fn max_score(&self) -> f32 {
        self.base.max_score() * self.factor
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}
