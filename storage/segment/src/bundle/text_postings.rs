//! The rows of a term of a text field with frequencies and positions.
//!
//! tantivy's own reader of positions adds up the frequencies before a row and looks for the place of its positions
//! whenever they are asked for. A phrase of frequent words asks for those of nearly every row: here both are done once
//! for a block of rows.

use std::fmt;

use tantivy::positions::PositionReader;
use tantivy::postings::Postings;
use tantivy::{DocId, DocSet, TERMINATED};

use super::postings::BLOCK;
use super::row_list::RowList;
use super::skips::Skips;

/// Up to so many positions of a block are read together; of more, those that are asked for.
const MOST_TOGETHER: usize = 8 * BLOCK as usize;

/// The postings of a term of a text field.
pub struct TextPostings {
    rows: RowList,
    positions: Option<Positions>,
}

impl fmt::Debug for TextPostings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextPostings").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl TextPostings {
    pub(super) fn new(rows: RowList, positions: Option<Positions>) -> Self {
        Self { rows, positions }
    }

    /// Returns the positions in a row, ascending: none where it has not the term. Rows do not descend.
    #[inline]
    pub fn positions_in(&mut self, row: DocId) -> &[u32] {
        if self.rows.seek(row) != row {
            return &[];
        }
        match (&mut self.positions, self.rows.place()) {
            (Some(positions), Some((at, freqs))) => positions.of_row(row, at, freqs),
            _ => &[],
        }
    }

    /// Sets in the word of each row from `first` on that has the term the bits of its positions, as far as there are words;
    /// rows with positions beyond the bits of a word get a bit in `beyond`. Rows are not asked for again.
    pub fn fill_positions(&mut self, first: DocId, words: &mut [u64], beyond: &mut [u64]) {
        let Some(positions) = &mut self.positions else { return };
        let end = first.saturating_add(words.len() as u32).min(TERMINATED);
        let mut target = first;
        while self.rows.seek(target) < end {
            let Some((at, freqs)) = self.rows.place() else { break };
            let rows = self.rows.rows_before(end);
            let mut set = |row: u32, (word, all): (u64, u32)| {
                let own = (row - first) as usize;
                words[own] = word;
                if all >= u64::BITS {
                    beyond[own / 64] |= 1 << (own % 64);
                }
            };
            match positions.of_block(rows[0], freqs) {
                Some(mut steps) => {
                    let before: usize = freqs[..at].iter().map(|freq| *freq as usize).sum();
                    steps = &steps[before..];
                    for (row, freq) in rows.iter().zip(&freqs[at..]) {
                        let (own, behind) = steps.split_at(*freq as usize);
                        steps = behind;
                        let mut position = 0u32;
                        set(
                            *row,
                            word(own.iter().map(|step| {
                                position = position.wrapping_add(*step);
                                position
                            })),
                        );
                    }
                }
                None => {
                    for (place, row) in rows.iter().enumerate() {
                        set(*row, word(positions.of_row(*row, at + place, freqs).iter().copied()));
                    }
                }
            }
            target = rows.last().map_or(end, |last| last + 1);
        }
    }
}

impl DocSet for TextPostings {
    #[inline]
    fn advance(&mut self) -> DocId {
        self.rows.advance()
    }

    #[inline]
    fn seek(&mut self, target: DocId) -> DocId {
        self.rows.seek(target)
    }

    #[inline]
    fn doc(&self) -> DocId {
        self.rows.doc()
    }

    fn size_hint(&self) -> u32 {
        self.rows.size_hint()
    }
}

impl Postings for TextPostings {
    #[inline]
    fn term_freq(&self) -> u32 {
        self.rows.term_freq()
    }

    fn append_positions_with_offset(&mut self, offset: u32, output: &mut Vec<u32>) {
        let found = self.positions_in(self.rows.doc());
        output.extend(found.iter().map(|position| position + offset));
    }
}

/// Returns positions as the bits of a word, as far as it has so many, and the bits that any of them has.
#[inline]
fn word(positions: impl Iterator<Item = u32>) -> (u64, u32) {
    positions.fold((0, 0), |(word, all), position| (word | 1 << (position % u64::BITS), all | position))
}

/// The positions of a term.
pub(super) struct Positions {
    reader: PositionReader,
    skips: Skips,
    /// The current block, and how many positions lie before it.
    block: usize,
    before: u64,
    /// `true` if what follows is of the current block.
    open: bool,
    /// Begins of the positions of its rows in it, and the end of the last ones.
    starts: Vec<usize>,
    /// All positions of the block, or those of one row.
    values: Vec<u32>,
}

impl Positions {
    pub(super) fn new(reader: PositionReader, skips: Skips) -> Self {
        Self { reader, skips, block: 0, before: 0, open: false, starts: Vec::new(), values: Vec::new() }
    }

    /// Goes to the block of a row. Rows do not descend.
    fn go_to(&mut self, row: u32) {
        while self.block < self.skips.len() && self.skips.last(self.block) < row {
            self.before += u64::from(self.skips.positions(self.block));
            self.block += 1;
            self.open = false;
        }
    }

    /// Returns the steps from each position of a row to the next, row by row, of the block of one, whose frequencies are
    /// given; `None` where they are too many. Rows do not descend.
    fn of_block(&mut self, row: u32, freqs: &[u32]) -> Option<&[u32]> {
        self.go_to(row);
        let steps: usize = freqs.iter().map(|freq| *freq as usize).sum();
        if steps > MOST_TOGETHER {
            return None;
        }
        self.open = false;
        self.values.resize(steps, 0);
        self.reader.read(self.before, &mut self.values);
        Some(&self.values)
    }

    /// Returns the positions of the row at a place of its block, whose frequencies are given. Rows do not descend.
    fn of_row(&mut self, row: u32, at: usize, freqs: &[u32]) -> &[u32] {
        self.go_to(row);
        if !self.open {
            self.open_block(freqs);
        }
        let (start, end) = (self.starts[at], self.starts[at + 1]);
        if self.together() {
            return &self.values[start..end];
        }
        self.values.resize(end - start, 0);
        self.reader.read(self.before + start as u64, &mut self.values);
        sum_up(&mut self.values);
        &self.values
    }

    fn open_block(&mut self, freqs: &[u32]) {
        let mut end = 0;
        self.starts.clear();
        self.starts.push(end);
        self.starts.extend(freqs.iter().map(|freq| {
            end += *freq as usize;
            end
        }));
        if self.together() {
            self.values.resize(end, 0);
            self.reader.read(self.before, &mut self.values);
            for row in self.starts.windows(2) {
                sum_up(&mut self.values[row[0]..row[1]]);
            }
        }
        self.open = true;
    }

    fn together(&self) -> bool {
        self.starts.last().is_some_and(|end| *end <= MOST_TOGETHER)
    }
}

/// Turns differences into positions.
fn sum_up(values: &mut [u32]) {
    let mut sum = 0u32;
    for value in values {
        sum = sum.wrapping_add(*value);
        *value = sum;
    }
}
