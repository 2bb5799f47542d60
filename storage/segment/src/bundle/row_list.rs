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

    /// Returns the rows of the current block from the current one on, as far as they lie before `end`.
    pub(super) fn rows_before(&self, end: DocId) -> &[DocId] {
        let rows = self.blocks.docs().get(self.at..).unwrap_or_default();
        match rows.last() {
            Some(last) if *last < end => rows,
            _ => &rows[..rows.partition_point(|row| *row < end)],
        }
    }

    /// Sets the bits of the rows from `first` on, as far as there are bits, and goes to the row behind them. Rows are
    /// not asked for again.
    pub fn fill(&mut self, first: u32, bits: &mut [u64]) {
        self.take(first, bits, |_, _| {});
    }

    /// Sets bits as [`RowList::fill`] does, and adds the rows that have the term more than once, and how often.
    pub fn fill_often(&mut self, first: u32, bits: &mut [u64], often: &mut Vec<(u32, u32)>) {
        // Each is put where the next belongs, and stays there if it is one: which are cannot be foreseen.
        let mut here = [(0, 0); BLOCK_ROWS];
        self.take(first, bits, |rows, freqs| {
            let mut found = 0;
            for (row, freq) in rows.iter().zip(freqs) {
                here[found] = (*row, *freq);
                found += usize::from(*freq > 1);
            }
            often.extend_from_slice(&here[..found]);
        });
    }

    /// Sets bits, and shows the rows and their frequencies block by block.
    fn take(&mut self, first: u32, bits: &mut [u64], mut each: impl FnMut(&[u32], &[u32])) {
        let end = first.saturating_add(bits.len() as u32 * 64).min(TERMINATED);
        self.seek(first);
        while self.doc() < end {
            let rows = self.rows_before(end);
            let here = rows.len();
            set(bits, first, rows);
            each(rows, self.blocks.freqs().get(self.at..self.at + here).unwrap_or_default());
            self.at += here;
            if self.at == BLOCK_ROWS {
                self.at = 0;
                self.blocks.advance();
            }
        }
    }
}

/// Sets the bits of rows, which ascend, counted from a first one. Those far from each other take turns: rows of one word
/// would wait for the one before to be written.
fn set(bits: &mut [u64], first: u32, rows: &[u32]) {
    let mut set = |row: &u32| {
        let at = row - first;
        bits[(at / 64) as usize] |= 1 << (at % 64);
    };
    let quarter = rows.len() / 4;
    let (front, back) = rows.split_at(2 * quarter);
    let ((a, b), (c, rest)) = (front.split_at(quarter), back.split_at(quarter));
    let (d, rest) = rest.split_at(quarter);
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        [a, b, c, d].into_iter().for_each(&mut set);
    }
    rest.iter().for_each(set);
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
