//! Every row, and no row.

use millrace_segment::WindowBits;
use millrace_work::error::Result;

use crate::bits::NO_ROWS;
use crate::condition::{Condition, RowCount};
use crate::reader::InvertedIndex;
use crate::windows::{BoxFilter, RowFilter};
use crate::{BoxScorer, END, Scorer};

/// Every row, with one score.
#[derive(Debug)]
pub struct MatchAllScorer(pub f32);

impl Condition for MatchAllScorer {
    fn scorer<'a>(&'a self, _inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        Ok(Box::new(EveryRow::new(rows, self.0)))
    }
    fn filter<'a>(&'a self, _inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        Ok(Box::new(EveryWindow(rows)))
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        Ok(Some(of.live()))
    }
    fn is_unscored(&self) -> bool {
        self.0 == 0.0
    }
    fn is_everything(&self) -> bool {
        true
    }
}

/// Every row of a segment, one by one.
#[derive(Debug)]
pub(super) struct EveryRow {
    row: u32,
    rows: u32,
    score: f32,
}

impl EveryRow {
    /// Starts at row 0 of `rows`.
    pub(super) fn new(rows: u32, score: f32) -> Self {
        Self { row: if rows == 0 { END } else { 0 }, rows, score }
    }
}

impl Scorer for EveryRow {
    fn doc(&self) -> u32 {
        self.row
    }
    fn advance(&mut self) -> u32 {
        self.seek(self.row.saturating_add(1))
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.row < target {
            self.row = if target >= self.rows { END } else { target };
        }
        self.row
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.score
    }
    fn cost(&self) -> u64 {
        self.rows.into()
    }
}

/// Every row of so many, window by window.
pub(super) struct EveryWindow(pub u32);

impl RowFilter for EveryWindow {
    fn next(&mut self, target: u32) -> u32 {
        target
    }
    fn keep(&mut self, _first: u32, _bits: &mut WindowBits) -> Result<()> {
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.0.into()
    }
}

/// No row.
#[derive(Debug)]
pub struct MatchNoneScorer;

impl Condition for MatchNoneScorer {
    fn scorer<'a>(&'a self, _inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxScorer<'a>> {
        Ok(Box::new(Self))
    }
    fn filter<'a>(&'a self, _inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxFilter<'a>> {
        Ok(Box::new(Self))
    }
    fn known_count(&self, _of: &RowCount<'_>) -> Result<Option<u64>> {
        Ok(Some(0))
    }
    fn is_unscored(&self) -> bool {
        true
    }
}

impl Scorer for MatchNoneScorer {
    fn doc(&self) -> u32 {
        END
    }
    fn advance(&mut self) -> u32 {
        END
    }
    fn seek(&mut self, _target: u32) -> u32 {
        END
    }
    fn score(&mut self) -> f32 {
        0.0
    }
    fn max_score(&self) -> f32 {
        0.0
    }
    fn cost(&self) -> u64 {
        0
    }
}

impl RowFilter for MatchNoneScorer {
    fn next(&mut self, _target: u32) -> u32 {
        END
    }
    fn keep(&mut self, _first: u32, bits: &mut WindowBits) -> Result<()> {
        *bits = NO_ROWS;
        Ok(())
    }
    fn cost(&self) -> u64 {
        0
    }
}
