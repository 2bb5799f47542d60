//! Postings of tantivy as rows that are read by windows.

use millrace_segment::{WINDOW_ROWS, WindowBits};
use tantivy::postings::Postings;

use crate::END;
use crate::bits::set;
use crate::reader::RowPostings;

/// Rows of postings, without frequencies.
pub(crate) struct RowsOf<P>(pub P);

impl<P: Postings> RowPostings for RowsOf<P> {
    fn seek_row(&mut self, target: u32) -> u32 {
        // Postings must not be asked to seek backwards.
        match self.0.doc() {
            doc if doc >= target => doc,
            _ => self.0.seek(target),
        }
    }
    fn fill(&mut self, first: u32, bits: &mut WindowBits) {
        self.fill_often(first, bits, &mut Vec::new());
    }
    fn fill_often(&mut self, first: u32, bits: &mut WindowBits, often: &mut Vec<(u32, u32)>) {
        let end = first.saturating_add(WINDOW_ROWS).min(END);
        let mut row = self.seek_row(first);
        while row < end {
            set(bits, row - first);
            often.extend(Some((row, self.0.term_freq())).filter(|(_, freq)| *freq > 1));
            row = self.0.advance();
        }
    }
    fn freq(&self) -> u32 {
        self.0.term_freq()
    }
    fn cost(&self) -> u64 {
        self.0.size_hint().into()
    }
}
