//! Finding rows without scores, a window of rows at a time.
//!
//! Where only the rows matter (counting, filters, sorting by a field) a predicate is evaluated as bits,
//! [`WINDOW_ROWS`] at a time: a part clears the bits of those candidates that it does not match. Clauses
//! combine words instead of rows, a window without candidates is left at once, and ranges decode
//! nothing where other clauses leave nothing. Parts that have no such form (phrases, nested clauses,
//! least scores) ask their scorers about the candidates that are left.

use std::ops::Range;

use millrace_segment::{WINDOW_ROWS, WindowBits};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::Scorer;
use crate::bits::{NO_ROWS, SetBuilder, first_from, is_empty, set, up_to};
use crate::condition::Condition;
use crate::reader::InvertedIndex;
use crate::source::Source;

/// Rows of a segment, window by window. Targets and windows do not descend.
pub trait RowFilter: Send {
    /// Returns a row at or behind `target`: none before it matches.
    fn next(&mut self, target: u32) -> u32;
    /// Clears the bits of the rows from `first` on that do not match.
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()>;
    /// Estimates how many rows match.
    fn cost(&self) -> u64;
}

/// A filter that may borrow from the segment.
pub type BoxFilter<'a> = Box<dyn RowFilter + 'a>;

/// The windows with matching rows of a segment.
pub(crate) struct Windows<'a> {
    filter: BoxFilter<'a>,
    /// Row behind the last.
    end: u32,
    at: u32,
}

impl<'a> Windows<'a> {
    /// Opens a predicate over a segment of `rows` rows.
    pub(crate) fn open(
        condition: &'a dyn Condition,
        inverted: &'a dyn InvertedIndex,
        rows: u32,
    ) -> Result<Self> {
        Ok(Self { filter: condition.filter(inverted, rows)?, end: rows, at: 0 })
    }

    /// Stays within rows, which begin where a window does.
    pub(crate) fn within(self, rows: &Range<u32>) -> Self {
        Self { end: self.end.min(rows.end), at: rows.start, ..self }
    }

    /// Estimates how many rows match.
    pub(crate) fn cost(&self) -> u64 {
        self.filter.cost()
    }

    /// Returns a row at or behind `target`, which does not descend: none before it matches.
    pub(crate) fn next_row(&mut self, target: u32) -> u32 {
        self.filter.next(target)
    }

    /// Clears the bits of the rows from `first` on that do not match. Windows do not descend.
    pub(crate) fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        self.filter.keep(first, bits)
    }

    /// Goes to the first window at or behind the current one that has matches, and returns its first
    /// row and its bits.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, WindowBits)>> {
        while self.at < self.end {
            let next = self.filter.next(self.at);
            if next >= self.end {
                break;
            }
            let first = next - next % WINDOW_ROWS;
            let mut bits = up_to(self.end - first);
            self.filter.keep(first, &mut bits)?;
            self.at = first.saturating_add(WINDOW_ROWS);
            if !is_empty(&bits) {
                return Ok(Some((first, bits)));
            }
        }
        self.at = self.end;
        Ok(None)
    }
}

/// Collects the matching rows of a segment if there are at most `limit`; `None` beyond, and where an error ended them: the pass over the
/// rows meets it again.
///
/// # Errors
/// Files that cannot be read, [`Error::TimedOut`](millrace_work::error::Error::TimedOut) once the work should end.
pub(super) fn few_rows(
    condition: &dyn Condition,
    source: &Source,
    limit: u64,
) -> Result<Option<RoaringBitmap>> {
    let mut windows = Windows::open(condition, source.inverted.as_ref(), source.reader.rows())?;
    if windows.cost() > limit.saturating_mul(2) {
        return Ok(None);
    }
    let mut found = SetBuilder::default();
    while let Some((first, bits)) = windows.next()? {
        source.work.check()?;
        found.add(first, &bits);
        if found.len() > limit {
            return Ok(None);
        }
    }
    Ok(condition.failure().is_none().then(|| found.finish()))
}

/// The rows of a scorer.
pub(super) struct ScorerRows<'a>(pub Box<dyn Scorer + 'a>);

impl RowFilter for ScorerRows<'_> {
    fn next(&mut self, target: u32) -> u32 {
        self.0.seek(target)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        let end = first.saturating_add(WINDOW_ROWS);
        let mut found = NO_ROWS;
        let mut candidate = first_from(bits, 0);
        while let Some(at) = candidate {
            let row = self.0.seek(first + at);
            if row >= end {
                break;
            }
            // The next candidate is this row, or lies behind it.
            candidate = first_from(bits, row - first);
            if candidate == Some(row - first) {
                set(&mut found, row - first);
                candidate = first_from(bits, row - first + 1);
            }
        }
        *bits = found;
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.0.cost()
    }
}

#[cfg(test)]
mod tests;
