//! The best rows by score, which postings find with bounds of their scores, and the first by address.

use millrace_scoring::collect::{Cursor, SegmentPass, Top, collect_top};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::threshold::{Threshold, address};
use super::{Candidates, RowRun, SourceStep, codes};

/// Best rows that are looked at for each group that is wanted, one number after the other while they do not have enough
/// groups: then all rows are.
const ROWS_A_GROUP: [usize; 2] = [4, 32];

/// A part's best rows.
pub(super) struct TopRows<'a> {
    pass: SegmentPass<'a>,
    /// `true` if they are those of the best scores.
    by_score: bool,
    /// `true` if scores are computed.
    scores: bool,
    cursor: Option<Cursor>,
    /// Numbers of rows of the next run and the one behind it.
    sizes: Vec<usize>,
    given: RoaringBitmap,
    /// Code and address of the last row that was given; `None` after the last run.
    last: Option<(u64, u64)>,
}

impl<'a> TopRows<'a> {
    /// Offers the rows of a pass behind a cursor.
    pub(super) fn open(
        pass: SegmentPass<'a>,
        by_score: bool,
        scores: bool,
        cursor: Option<Cursor>,
        threshold: &Threshold,
    ) -> Self {
        let asked = threshold.asked();
        // The last first.
        let sizes = match asked.grouped {
            true => ROWS_A_GROUP.iter().rev().map(|rows| rows * asked.limit).collect(),
            false => vec![asked.limit],
        };
        Self { pass, by_score, scores, cursor, sizes, given: RoaringBitmap::new(), last: None }
    }

    /// The score that rows must exceed to compete.
    fn least(&self, threshold: &Threshold) -> f32 {
        match threshold.worst().filter(|_| self.by_score) {
            None => f32::NEG_INFINITY,
            // Of rows with the same score those before the worst compete.
            Some((code, worst)) if worst < address(self.pass.segment, self.pass.range.start) => {
                codes::score_of(code)
            }
            Some((code, _)) => codes::score_of(code).next_down(),
        }
    }
}

impl Candidates for TopRows<'_> {
    fn cost(&self) -> u64 {
        // No other source knows the order of scores.
        0
    }

    fn next(&mut self, threshold: &Threshold) -> Result<SourceStep> {
        if !self.given.is_empty()
            && self.last.is_none_or(|last| threshold.worst().is_some_and(|worst| worst <= last))
        {
            return Ok(SourceStep::Done);
        }
        let Some(size) = self.sizes.pop() else { return Ok(SourceStep::GivenUp) };
        let mut top = Top::new(size, self.by_score, self.cursor).above(self.least(threshold));
        collect_top(&self.pass, &mut top, self.scores)?;
        self.pass = self.pass.uncounted();
        let mut found = top.into_sorted();
        let is_last = found.len() < size || !threshold.asked().grouped;
        // Without scores the order is that of addresses.
        let last = match self.by_score {
            true => found.last(),
            false => found.iter().max_by_key(|row| row.address),
        };
        let last = last.filter(|_| !is_last);
        let code = |score: f32| if self.by_score { codes::of_score(score) } else { 0 };
        self.last = last.map(|row| (code(row.score), address(row.address.segment, row.address.row)));
        found.retain(|row| !self.given.contains(row.address.row));
        if found.is_empty() {
            return Ok(SourceStep::Done);
        }
        found.sort_unstable_by_key(|row| row.address.row);
        let rows: RoaringBitmap = found.iter().map(|row| row.address.row).collect();
        self.given |= &rows;
        Ok(SourceStep::Run(RowRun {
            rows,
            scores: found.iter().map(|row| row.score).collect(),
            values: None,
        }))
    }
}
