//! The rows of a term of a text field with frequencies and positions.
//!
//! tantivy's own reader of positions adds up the frequencies before a row and looks for the place of its positions
//! whenever they are asked for. A phrase of frequent words asks for those of nearly every row: here both are done once
//! for a block of rows.

use std::fmt;

use tantivy::positions::PositionReader;
use tantivy::postings::Postings;
use tantivy::{DocId, DocSet};

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
        let Some(positions) = &mut self.positions else { return };
        if let Some((at, freqs)) = self.rows.place() {
            let found = positions.of_row(self.rows.doc(), at, freqs);
            output.extend(found.iter().map(|position| position + offset));
        }
    }
}

/// The positions of a term.
pub(super) struct Positions {
    reader: PositionReader,
    skips: Skips,
    /// The current block, and how many positions lie before it.
    block: usize,
    before: u64,
    /// Whether what follows is of the current block.
    open: bool,
    /// Where the positions of its rows begin in it, and where the last ones end.
    starts: Vec<usize>,
    /// All positions of the block, or those of one row.
    values: Vec<u32>,
}

impl Positions {
    pub(super) fn new(reader: PositionReader, skips: Skips) -> Self {
        Self { reader, skips, block: 0, before: 0, open: false, starts: Vec::new(), values: Vec::new() }
    }

    /// Returns the positions of the row at a place of its block, whose frequencies are given. Rows do not descend.
    fn of_row(&mut self, row: u32, at: usize, freqs: &[u32]) -> &[u32] {
        while self.block < self.skips.len() && self.skips.last(self.block) < row {
            self.before += u64::from(self.skips.positions(self.block));
            self.block += 1;
            self.open = false;
        }
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
