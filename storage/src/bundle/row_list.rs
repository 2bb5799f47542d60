//! The rows of a term, block by block.

use std::{fmt, io};

use tantivy::postings::{BlockSegmentPostings, Postings, TermInfo};
use tantivy::{DocId, DocSet, InvertedIndexReader, TERMINATED};

use super::postings::{BLOCK, Record};

/// Rows of a full block.
const BLOCK_ROWS: usize = BLOCK as usize;

/// Rows behind the current one that are looked at one by one.
const NEAR: usize = 4;

/// The rows of a term, ascending.
pub struct RowList {
    blocks: BlockSegmentPostings,
    /// Place of the current row in its block.
    at: usize,
}

impl fmt::Debug for RowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowList").field("row", &self.doc()).finish_non_exhaustive()
    }
}

impl RowList {
    /// Opens the rows of a term at the first, with as much beside them as `record` says.
    pub(super) fn open(reader: &InvertedIndexReader, info: &TermInfo, record: Record) -> io::Result<Self> {
        Ok(Self { blocks: reader.read_block_postings_from_terminfo(info, record.option())?, at: 0 })
    }

    /// Returns the place of the current row in its block, and the frequencies of the block's rows; `None` behind the
    /// last row.
    pub(super) fn place(&self) -> Option<(usize, &[u32])> {
        let freqs = self.blocks.freqs().get(..self.blocks.block_len())?;
        (self.at < freqs.len()).then_some((self.at, freqs))
    }

    /// Sets the bits of the rows from `first` on, as far as there are bits, and goes to the row behind them. Rows are
    /// not asked for again.
    pub fn fill(&mut self, first: u32, bits: &mut [u64]) {
        self.take(first, bits, |_, _| {});
    }

    /// Sets bits as [`RowList::fill`] does, and adds the rows that have the term more than once, and how often.
    pub fn fill_often(&mut self, first: u32, bits: &mut [u64], often: &mut Vec<(u32, u32)>) {
        self.take(first, bits, |rows, freqs| {
            if freqs.iter().any(|freq| *freq > 1) {
                let here = rows.iter().copied().zip(freqs.iter().copied());
                often.extend(here.filter(|(_, freq)| *freq > 1));
            }
        });
    }

    /// Sets bits, and shows the rows and their frequencies block by block.
    fn take(&mut self, first: u32, bits: &mut [u64], mut each: impl FnMut(&[u32], &[u32])) {
        let end = first.saturating_add(bits.len() as u32 * 64).min(TERMINATED);
        self.seek(first);
        while self.doc() < end {
            let rows = self.blocks.docs().get(self.at..).unwrap_or_default();
            let here = match rows.last() {
                Some(last) if *last < end => rows.len(),
                _ => rows.partition_point(|row| *row < end),
            };
            set(bits, first, &rows[..here]);
            each(&rows[..here], self.blocks.freqs().get(self.at..self.at + here).unwrap_or_default());
            self.at += here;
            if self.at == BLOCK_ROWS {
                self.at = 0;
                self.blocks.advance();
            }
        }
    }
}

/// Sets the bits of rows, which ascend, counted from a first one. Rows of one word are put together first: each would
/// wait for the one before it to be written.
fn set(bits: &mut [u64], first: u32, rows: &[u32]) {
    let (mut word, mut own) = (0, 0);
    for row in rows {
        let at = row - first;
        if at / 64 != word {
            bits[word as usize] |= own;
            (word, own) = (at / 64, 0);
        }
        own |= 1 << (at % 64);
    }
    bits[word as usize] |= own;
}

impl DocSet for RowList {
    #[inline]
    fn advance(&mut self) -> DocId {
        if self.at == BLOCK_ROWS - 1 {
            self.at = 0;
            self.blocks.advance();
        } else {
            self.at += 1;
        }
        self.doc()
    }

    #[inline]
    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc() >= target {
            return self.doc();
        }
        // Often it is one of the next, and else mostly in the same block.
        let rows = self.blocks.docs().get(self.at + 1..).unwrap_or_default();
        let near = &rows[..rows.len().min(NEAR)];
        self.at = match (near.iter().position(|row| *row >= target), rows.last()) {
            (Some(steps), _) => self.at + 1 + steps,
            (None, Some(last)) if *last >= target => self.at + 1 + rows.partition_point(|row| *row < target),
            _ => self.blocks.seek(target),
        };
        self.doc()
    }

    #[inline]
    fn doc(&self) -> DocId {
        self.blocks.doc(self.at)
    }

    fn size_hint(&self) -> u32 {
        self.blocks.doc_freq()
    }
}

impl Postings for RowList {
    #[inline]
    fn term_freq(&self) -> u32 {
        self.blocks.freq(self.at)
    }

    fn append_positions_with_offset(&mut self, _offset: u32, _output: &mut Vec<u32>) {}
}
