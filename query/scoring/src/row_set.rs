//! Rows that are known: found in a column, in the dictionary or by id.

use std::sync::Arc;

use millrace_segment::{WINDOW_ROWS, WindowBits};
use millrace_work::error::Result;
use roaring::RoaringBitmap;
use roaring::bitmap::IntoIter;
use tantivy::COLLECT_BLOCK_BUFFER_LEN;
use tantivy::postings::Postings;

use crate::bits::{FEW, NO_ROWS, count, intersect, retain, set};
use crate::condition::{Condition, RowCount, SharedCondition};
use crate::reader::InvertedIndex;
use crate::source::Source;
use crate::windows::{BoxFilter, RowFilter};
use crate::{BoxScorer, END, Scorer};

/// Known rows, with one score.
#[derive(Debug)]
pub struct RowSet {
    /// The rows.
    pub rows: RoaringBitmap,
    /// Score.
    pub score: f32,
}

impl RowSet {
    /// Prepares rows that were found, which the work of the source holds; rows of a walk that was told to end count as none.
    pub fn found(source: &Source, rows: RoaringBitmap, score: f32) -> Result<SharedCondition> {
        source.work.check()?;
        source.work.hold_rows(&rows)?;
        Ok(Arc::new(Self { rows, score }))
    }
}

impl Condition for RowSet {
    fn scorer<'a>(&'a self, _inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxScorer<'a>> {
        Ok(Box::new(KnownRows::new(self.rows.clone(), self.score)))
    }
    fn filter<'a>(&'a self, _inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxFilter<'a>> {
        Ok(Box::new(Set::new(&self.rows)))
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        Ok(Some(self.rows.difference_len(of.deleted)))
    }
    fn is_unscored(&self) -> bool {
        self.score == 0.0
    }
    fn row_set(&self) -> Option<&RoaringBitmap> {
        Some(&self.rows)
    }
}

/// Empties postings into a row set.
pub(super) fn drain(postings: &mut dyn Postings) -> RoaringBitmap {
    let mut rows = RoaringBitmap::new();
    let mut block = [0; COLLECT_BLOCK_BUFFER_LEN];
    loop {
        let filled = postings.fill_buffer(&mut block);
        // Rows ascend, so they always append.
        let _ = rows.append(block[..filled].iter().copied());
        if filled < block.len() {
            return rows;
        }
    }
}

/// The rows of a bitmap, one by one.
struct KnownRows {
    rows: IntoIter,
    row: u32,
    cost: u64,
    score: f32,
}

impl KnownRows {
    /// Starts at the least row.
    fn new(rows: RoaringBitmap, score: f32) -> Self {
        let cost = rows.len();
        let mut rows = rows.into_iter();
        let row = rows.next().unwrap_or(END);
        Self { rows, row, cost, score }
    }
}

impl Scorer for KnownRows {
    fn doc(&self) -> u32 {
        self.row
    }
    fn advance(&mut self) -> u32 {
        self.row = self.rows.next().unwrap_or(END);
        self.row
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.row < target {
            self.rows.advance_to(target);
            self.row = self.rows.next().unwrap_or(END);
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
        self.cost
    }
}

/// The rows of a bitmap, window by window.
struct Set<'a> {
    rows: &'a RoaringBitmap,
    ahead: IntoIter,
    next: Option<u32>,
    cost: u64,
}

impl<'a> Set<'a> {
    fn new(rows: &'a RoaringBitmap) -> Self {
        let mut ahead = rows.clone().into_iter();
        let next = ahead.next();
        Self { rows, ahead, next, cost: rows.len() }
    }

    fn seek(&mut self, target: u32) -> u32 {
        if self.next.is_some_and(|next| next < target) {
            self.ahead.advance_to(target);
            self.next = self.ahead.next();
        }
        self.next.unwrap_or(END)
    }
}

impl RowFilter for Set<'_> {
    fn next(&mut self, target: u32) -> u32 {
        self.seek(target)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        let end = first.saturating_add(WINDOW_ROWS);
        if self.seek(first) >= end {
            *bits = NO_ROWS;
        } else if count(bits) <= FEW {
            retain(first, bits, |row| self.rows.contains(row));
        } else if !self.rows.contains_range(first..end) {
            let mut found = NO_ROWS;
            while let Some(row) = self.next.filter(|row| *row < end) {
                set(&mut found, row - first);
                self.next = self.ahead.next();
            }
            intersect(bits, &found);
        }
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.cost
    }
}
