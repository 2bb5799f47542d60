//! Postings as rows that are read by windows: those of tantivy, and lists of the segment's own.

use millrace_segment::bundle::{RowList, TermRows};
use millrace_segment::{WINDOW_ROWS, WindowBits};
use tantivy::DocSet;
use tantivy::postings::Postings;

use crate::END;
use crate::bits::set;

/// Postings where only their rows matter, and perhaps how often each has the term.
pub trait RowPostings: Send {
    /// Goes to the first row at or behind `target` and returns it. Targets do not descend.
    fn seek_row(&mut self, target: u32) -> u32;
    /// Sets the bits of the rows from `first` on, up to the end of the window.
    fn fill(&mut self, first: u32, bits: &mut WindowBits);
    /// Sets bits as [`RowPostings::fill`] does, and adds the rows that have the term more than once with how often.
    fn fill_often(&mut self, first: u32, bits: &mut WindowBits, often: &mut Vec<(u32, u32)>);
    /// Returns how often the current row has the term; 1 where that is not read.
    fn freq(&self) -> u32;
    /// Counts the rows.
    fn cost(&self) -> u64;
}

/// Reads postings of tantivy by their rows.
pub(crate) fn rows_of<P: Postings + 'static>(postings: P) -> Box<dyn RowPostings> {
    Box::new(RowsOf(postings))
}

impl RowPostings for RowList {
    fn seek_row(&mut self, target: u32) -> u32 {
        self.seek(target)
    }
    fn fill(&mut self, first: u32, bits: &mut WindowBits) {
        RowList::fill(self, first, bits);
    }
    fn fill_often(&mut self, first: u32, bits: &mut WindowBits, often: &mut Vec<(u32, u32)>) {
        RowList::fill_often(self, first, bits, often);
    }
    fn freq(&self) -> u32 {
        self.term_freq()
    }
    fn cost(&self) -> u64 {
        self.size_hint().into()
    }
}

/// Reads a list of rows.
pub(crate) fn row_list(rows: RowList) -> Box<dyn RowPostings> {
    Box::new(rows)
}

impl RowPostings for TermRows {
    fn seek_row(&mut self, target: u32) -> u32 {
        self.seek(target)
    }
    fn fill(&mut self, first: u32, bits: &mut WindowBits) {
        TermRows::fill(self, first, bits);
    }
    fn fill_often(&mut self, first: u32, bits: &mut WindowBits, often: &mut Vec<(u32, u32)>) {
        TermRows::fill_often(self, first, bits, often);
    }
    fn freq(&self) -> u32 {
        TermRows::freq(self)
    }
    fn cost(&self) -> u64 {
        self.count().into()
    }
}

/// Reads the rows of a term of a text field.
pub(crate) fn term_rows(rows: TermRows) -> Box<dyn RowPostings> {
    Box::new(rows)
}

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
