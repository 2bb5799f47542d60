//! Positions of terms in rows, read for many rows at a time: phrases need those of nearly every row that has their terms.

use std::ops::Range;

use millrace_segment::bundle::TextPostings;
use millrace_segment::{WINDOW_ROWS, WindowBits};

use crate::bits;
use crate::union::PostingsUnion;

/// Positions that are read together, about.
const MOST_POSITIONS: usize = 1 << 16;

/// Positions of a term, or of several that stand for each other.
pub trait RowPositions: Send {
    /// Adds the positions in rows of a window, from one on, as long as there is room. Windows and rows do not descend.
    fn read(&mut self, first: u32, rows: &WindowBits, from: u32, into: &mut ReadPositions);
    /// Sets in the word of each row of a window the bits of its positions; rows with positions beyond the bits of a word
    /// get a bit in `beyond`. Tells whether it can: then [`Self::read`] is not called.
    fn fill(&mut self, _first: u32, _words: &mut WindowWords, _beyond: &mut WindowBits) -> bool {
        false
    }
}

/// A word for each row of a window.
pub(crate) type WindowWords = [u64; WINDOW_ROWS as usize];

impl RowPositions for TextPostings {
    fn read(&mut self, first: u32, rows: &WindowBits, from: u32, into: &mut ReadPositions) {
        for row in bits::rows_from(first, rows, from) {
            if !into.add(row, self.positions_in(row)) {
                break;
            }
        }
    }

    fn fill(&mut self, first: u32, words: &mut WindowWords, beyond: &mut WindowBits) -> bool {
        self.fill_positions(first, words, beyond);
        true
    }
}

impl RowPositions for PostingsUnion {
    fn read(&mut self, first: u32, rows: &WindowBits, from: u32, into: &mut ReadPositions) {
        let mut own = Vec::new();
        for row in bits::rows_from(first, rows, from) {
            own.clear();
            if self.seek(row) == row {
                self.positions(&mut own);
            }
            if !into.add(row, &own) {
                break;
            }
        }
    }
}

/// The positions in some rows of a window.
#[derive(Debug, Default)]
pub struct ReadPositions {
    /// Rows that were read: all requested ones in this range.
    range: Range<u32>,
    rows: Vec<u32>,
    /// Ends of the positions of each row.
    ends: Vec<usize>,
    values: Vec<u32>,
    /// Place of the row that was asked for last.
    at: usize,
}

impl ReadPositions {
    /// Adds the positions in a row; tells whether there is room for more.
    fn add(&mut self, row: u32, positions: &[u32]) -> bool {
        self.values.extend_from_slice(positions);
        self.rows.push(row);
        self.ends.push(self.values.len());
        self.range.end = row + 1;
        self.values.len() < MOST_POSITIONS
    }
}

/// The positions of a place of a phrase.
pub(super) struct PlacePositions {
    list: Box<dyn RowPositions>,
    read: ReadPositions,
}

impl PlacePositions {
    /// Starts before the first row.
    pub(super) fn new(list: Box<dyn RowPositions>) -> Self {
        Self { list, read: ReadPositions::default() }
    }

    /// Returns the positions in a row of a window, ascending, where its rows that may be asked for are given. Rows do not
    /// descend.
    pub(super) fn in_row(&mut self, row: u32, first: u32, rows: &WindowBits) -> &[u32] {
        let read = &mut self.read;
        if !read.range.contains(&row) {
            (read.at, read.range) = (0, row..row);
            read.rows.clear();
            read.ends.clear();
            read.values.clear();
            self.list.read(first, rows, row, read);
            if read.values.len() < MOST_POSITIONS {
                read.range.end = first.saturating_add(WINDOW_ROWS);
            }
        }
        while read.rows.get(read.at).is_some_and(|own| *own < row) {
            read.at += 1;
        }
        let start = read.at.checked_sub(1).and_then(|before| read.ends.get(before)).copied().unwrap_or(0);
        match (read.rows.get(read.at), read.ends.get(read.at)) {
            (Some(own), Some(end)) if *own == row => &read.values[start..*end],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::bits::NO_ROWS;
    use crate::positions::*;

    /// Rows whose positions are as many as told, from their own number on.
    struct PositionRun(usize);

    impl RowPositions for PositionRun {
        fn read(&mut self, first: u32, rows: &WindowBits, from: u32, into: &mut ReadPositions) {
            for row in bits::rows_from(first, rows, from) {
                let positions: Vec<u32> = (row..row + self.0 as u32).collect();
                if row % 5 == 0 && !into.add(row, &[]) || row % 5 != 0 && !into.add(row, &positions) {
                    break;
                }
            }
        }
    }

    #[test]
    fn positions_are_read_as_far_as_there_is_room() {
        for many in [3, MOST_POSITIONS / 7, 2 * MOST_POSITIONS] {
            let mut place = PlacePositions::new(Box::new(PositionRun(many)));
            for first in [0, 2 * WINDOW_ROWS] {
                let mut rows = NO_ROWS;
                (0..WINDOW_ROWS).step_by(3).for_each(|at| bits::set(&mut rows, at));
                for row in bits::rows_from(first, &rows, first).filter(|row| row % 4 != 1) {
                    let found = place.in_row(row, first, &rows);
                    let expected = if row % 5 == 0 { 0 } else { many };
                    assert_eq!((found.len(), found.first()), (expected, Some(&row).filter(|_| expected > 0)));
                }
            }
        }
    }
}
