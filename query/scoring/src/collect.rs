//! Driving a scorer: count, keep the best, or keep all.
//!
//! A pass over a segment ends as soon as nothing it could still find would change the answer: the
//! count is known or beyond what is tracked, and the heap is full of rows that cannot be beaten.
//! Rows come in ascending order and ties are won by the earlier row, so a score that only equals
//! the worst one kept does not enter.
//!
//! `found` has rows and their order, `totals` the counters; `top` keeps the best rows, `matches` finds those that are asked for.

mod matches;
mod row_hit;
mod top;
mod totals;

use std::ops::Range;

use millrace_segment::WindowBits;
use millrace_work::QueryContext;
use millrace_work::compute::Stop;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::END;
use crate::bits::{self, SetBuilder};
pub use crate::collect::matches::Matches;
pub use crate::collect::row_hit::{Address, Cursor, RowHit};
pub use crate::collect::top::Top;
pub use crate::collect::totals::{Budget, Totals};
use crate::condition::{Condition, RowCount};
use crate::failure::Failure;
use crate::reader::InvertedIndex;
use crate::windows::Windows;

/// One row in so many is few: they are scored by themselves once they have been counted.
const FEW_SHARE: u64 = 32;
/// Rows between two looks at the clock and the counters.
const BLOCK: u32 = 4_096;

/// One segment of a pass.
#[derive(Clone, Debug)]
pub struct SegmentPass<'a> {
    /// Segment number.
    pub segment: u32,
    /// Rows of the segment, deleted ones included.
    pub rows: u32,
    /// Those of the pass; where they are not all, they begin and end at windows or with the segment.
    pub range: Range<u32>,
    /// Condition that matches.
    pub prepared: &'a dyn Condition,
    /// The inverted index.
    pub inverted: &'a dyn InvertedIndex,
    /// Deleted rows.
    pub deleted: &'a RoaringBitmap,
    /// The counter.
    pub totals: &'a Totals,
    /// Matches that are still allowed.
    pub budget: Option<&'a Budget>,
    /// Tells to stop.
    pub stop: &'a Stop,
}

/// Totals that count nothing.
static UNCOUNTED: Totals = Totals::new(None);

impl<'a> SegmentPass<'a> {
    /// Returns the same pass, of which matches are not counted, as they have been.
    pub fn uncounted(&self) -> Self {
        Self { totals: &UNCOUNTED, ..self.clone() }
    }

    /// Returns the number of matches where the index knows it: those of a whole segment belong to its first pass.
    fn known_count(&self) -> Result<Option<u64>> {
        let (inverted, rows, deleted) = (self.inverted, self.rows, self.deleted);
        let counted = RowCount { inverted, rows, deleted, all: self.totals.counts_all() };
        let known = self.prepared.known_count(&counted)?;
        Ok(known.map(|known| if self.range.start == 0 { known } else { 0 }))
    }

    fn windows(&self) -> Result<Windows<'a>> {
        Ok(Windows::open(self.prepared, self.inverted, self.rows)?.within(&self.range))
    }
}

/// Returns the rows that two runs have in common.
pub fn overlap(one: &Range<u32>, other: &Range<u32>) -> Range<u32> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// Counts the matches of a segment, and returns how many were counted.
pub fn count(pass: &SegmentPass<'_>) -> Result<u64> {
    collect_top(pass, &mut Top::new(0, false, None), false)
}

/// Offers the matches of a segment to `top`, and counts them. `scores` tells whether to compute
/// scores though they do not order. Returns how many matches were counted.
pub fn collect_top(pass: &SegmentPass<'_>, top: &mut Top, scores: bool) -> Result<u64> {
    let scores = scores || top.by_score;
    let mut counting = !pass.totals.satisfied();
    let mut sum = 0;
    if counting && pass.budget.is_none() {
        // Counted for itself: the rows that enter are found faster where others need not be visited.
        if let Some(known) = pass.known_count()? {
            pass.totals.add(known);
            sum = known;
            counting = false;
        } else if !scores || !pass.prepared.by_scorer() {
            let mut few = RowBuffer::new(if scores { pass.range.len() as u64 / FEW_SHARE } else { 0 });
            sum = count_windows(pass, pass.windows()?, &mut few)?;
            counting = false;
            if let Some(rows) = few.into_all() {
                offer_rows(pass, &rows, top)?;
                return Ok(sum);
            }
        }
    }
    let start = top.start(pass.segment).max(pass.range.start);
    if !counting && pass.budget.is_none() && (start == END || !top.open_for(f32::INFINITY)) {
        return Ok(sum);
    }
    let failure = Failure::default();
    let mut scorer = match scores {
        true => pass.prepared.best_first(pass.inverted, pass.rows, &failure)?,
        false => pass.prepared.scorer(pass.inverted, pass.rows)?,
    };
    let max_score = scorer.max_score();
    let first = if counting || pass.budget.is_some() { pass.range.start } else { start };
    let mut doc = if first == 0 { scorer.doc() } else { scorer.seek(first) };
    let has_deleted = !pass.deleted.is_empty();
    let (mut counted, mut visited) = (0, 0);
    let mut threshold = f32::NEG_INFINITY;
    while doc < pass.range.end {
        if visited % BLOCK == 0 {
            sum += counted;
            pass.totals.add(std::mem::take(&mut counted));
            if pass.stop.requested() {
                break;
            }
            counting = counting && !pass.totals.satisfied();
        }
        visited += 1;
        let collecting = top.open_for(max_score);
        if !collecting && !counting && pass.budget.is_none() {
            break;
        }
        if !counting && pass.budget.is_none() {
            top.raise(&mut threshold, scorer.as_mut());
        }
        if !(has_deleted && pass.deleted.contains(doc)) {
            if let Some(budget) = pass.budget
                && !budget.take()
            {
                break;
            }
            counted += u64::from(counting);
            if collecting && doc >= start {
                let score = if scores { scorer.score() } else { 0.0 };
                top.offer(RowHit { score, address: Address { segment: pass.segment, row: doc } });
            }
        }
        doc = scorer.advance();
    }
    pass.totals.add(counted);
    failure.take().map_or(Ok(sum + counted), Err)
}

/// The rows that were counted, as long as they are few.
struct RowBuffer {
    most: u64,
    rows: Option<SetBuilder>,
}

impl RowBuffer {
    fn new(most: u64) -> Self {
        Self { most, rows: (most > 0).then(SetBuilder::default) }
    }

    fn add(&mut self, first: u32, found: &WindowBits) {
        if let Some(rows) = &mut self.rows {
            rows.add(first, found);
            if rows.len() > self.most {
                self.rows = None;
            }
        }
    }

    /// Returns the rows, if they are all there.
    fn into_all(self) -> Option<RoaringBitmap> {
        self.rows.map(SetBuilder::finish)
    }
}

/// Counts matches window by window, as long as the number matters.
fn count_windows(pass: &SegmentPass<'_>, mut windows: Windows<'_>, few: &mut RowBuffer) -> Result<u64> {
    let mut sum = 0;
    loop {
        if pass.stop.requested() || pass.totals.satisfied() {
            few.rows = None;
            return Ok(sum);
        }
        let Some((first, mut found)) = windows.next()? else { return Ok(sum) };
        bits::clear(first, &mut found, pass.deleted);
        let counted = bits::count(&found).into();
        pass.totals.add(counted);
        few.add(first, &found);
        sum += counted;
    }
}

/// Offers some rows that match, none of them deleted.
fn offer_rows(pass: &SegmentPass<'_>, rows: &RoaringBitmap, top: &mut Top) -> Result<()> {
    let mut scorer = pass.prepared.scorer(pass.inverted, pass.rows)?;
    let max_score = scorer.max_score();
    let mut threshold = f32::NEG_INFINITY;
    for (visited, row) in rows.range(top.start(pass.segment)..).enumerate() {
        if !top.open_for(max_score) || visited % BLOCK as usize == 0 && pass.stop.requested() {
            break;
        }
        top.raise(&mut threshold, scorer.as_mut());
        if scorer.seek(row) == row {
            top.offer(RowHit { score: scorer.score(), address: Address { segment: pass.segment, row } });
        }
    }
    Ok(())
}

/// Collects all matches of a segment: rows, their scores where asked, and the greatest score.
pub fn collect_all(pass: &SegmentPass<'_>, scores: bool) -> Result<(RoaringBitmap, Vec<f32>)> {
    let mut found = RoaringBitmap::new();
    let mut scored = Vec::new();
    if !scores && pass.budget.is_none() {
        let rows = collect_windows(pass)?;
        pass.totals.add(rows.len());
        return Ok((rows, scored));
    }
    let mut scorer = pass.prepared.scorer(pass.inverted, pass.rows)?;
    let mut doc = if pass.range.start == 0 { scorer.doc() } else { scorer.seek(pass.range.start) };
    let mut visited = 0;
    while doc < pass.range.end {
        if visited % BLOCK == 0 && pass.stop.requested() {
            break;
        }
        visited += 1;
        if !pass.deleted.contains(doc) {
            if let Some(budget) = pass.budget
                && !budget.take()
            {
                break;
            }
            // Rows ascend, so each goes behind the last.
            let _ = found.try_push(doc);
            if scores {
                scored.push(scorer.score());
            }
        }
        doc = scorer.advance();
    }
    pass.totals.add(found.len());
    Ok((found, scored))
}

/// Finds the matching rows of a segment, deleted ones included: all or none, as they are kept for others.
///
/// # Errors
/// Files that cannot be read, [`Error::TimedOut`](millrace_work::error::Error::TimedOut) once the work should end.
pub fn row_set(
    prepared: &dyn Condition,
    inverted: &dyn InvertedIndex,
    rows: u32,
    work: &QueryContext,
) -> Result<RoaringBitmap> {
    let mut windows = Windows::open(prepared, inverted, rows)?;
    let mut found = SetBuilder::default();
    while let Some((first, bits)) = windows.next()? {
        work.check()?;
        found.add(first, &bits);
    }
    Ok(found.finish())
}

/// Collects matches window by window.
fn collect_windows(pass: &SegmentPass<'_>) -> Result<RoaringBitmap> {
    let mut all = RoaringBitmap::new();
    all.insert_range(pass.range.clone());
    match pass.prepared.row_set() {
        Some(rows) if pass.range.len() == pass.rows as usize => return Ok(rows - pass.deleted),
        Some(rows) => return Ok((all & rows) - pass.deleted),
        None if pass.prepared.is_everything() => return Ok(all - pass.deleted),
        None => {}
    }
    let mut windows = pass.windows()?;
    let mut rows = SetBuilder::default();
    while !pass.stop.requested()
        && let Some((first, mut found)) = windows.next()?
    {
        bits::clear(first, &mut found, pass.deleted);
        rows.add(first, &found);
    }
    Ok(rows.finish())
}
