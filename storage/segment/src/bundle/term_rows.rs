//! The rows of a term of a text field: its postings, or bits where it is very frequent.

use std::sync::Arc;
use std::{fmt, io};

use tantivy::postings::{Postings, TermInfo};
use tantivy::{DocSet, InvertedIndexReader, TERMINATED};

use super::dense_postings::{FrequentRows, FrequentTerms};
use super::postings::Record;
use super::reader::unreadable;
use super::row_list::RowList;

/// Runs that are filled from postings before it is worth it to read all of these.
const FILLED_RUNS: u32 = 16;

/// The rows of a term, ascending.
pub struct TermRows {
    list: RowList,
    form: RowsEncoding,
}

/// Source of the rows.
enum RowsEncoding {
    /// The postings: the term is not frequent enough.
    List,
    /// The postings, of which so many runs were filled.
    Filled(u32, Box<Source>),
    /// Bits, and the current row.
    Bits(Arc<FrequentRows>, u32),
}

/// The postings of a frequent term.
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) terms: FrequentTerms,
    pub(super) key: Vec<u8>,
    pub(super) reader: Arc<InvertedIndexReader>,
    pub(super) info: TermInfo,
    pub(super) record: Record,
    /// Rows of the segment.
    pub(super) rows: u32,
}

impl fmt::Debug for TermRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermRows").field("list", &self.list).finish_non_exhaustive()
    }
}

impl TermRows {
    /// Opens rows at the first, with how often each has the term if `record` says so; the source is that of a frequent term.
    pub(super) fn open(
        reader: &InvertedIndexReader,
        info: &TermInfo,
        record: Record,
        source: Option<Source>,
    ) -> io::Result<Self> {
        let list = RowList::open(reader, info, record)?;
        let form = source.map_or(RowsEncoding::List, |source| match source.terms.get(&source.key) {
            Some(rows) => RowsEncoding::Bits(rows, 0),
            None => RowsEncoding::Filled(0, Box::new(source)),
        });
        Ok(Self { list, form })
    }

    /// Goes to the first row at or behind `target`, which does not descend, and returns it.
    pub fn seek(&mut self, target: u32) -> u32 {
        match &mut self.form {
            RowsEncoding::List | RowsEncoding::Filled(..) => self.list.seek(target),
            RowsEncoding::Bits(rows, row) => {
                *row = rows.next(target).unwrap_or(TERMINATED);
                *row
            }
        }
    }

    /// Sets the bits of the rows from `first` on, as far as there are bits. Rows are not asked for again.
    pub fn fill(&mut self, first: u32, bits: &mut [u64]) {
        self.count_run();
        match &self.form {
            RowsEncoding::List | RowsEncoding::Filled(..) => self.list.fill(first, bits),
            RowsEncoding::Bits(rows, _) => rows.fill(first, bits),
        }
    }

    /// Sets bits as [`TermRows::fill`] does, and adds the rows that have the term more than once, and how often.
    pub fn fill_often(&mut self, first: u32, bits: &mut [u64], often: &mut Vec<(u32, u32)>) {
        self.count_run();
        match &self.form {
            RowsEncoding::List | RowsEncoding::Filled(..) => self.list.fill_often(first, bits, often),
            RowsEncoding::Bits(rows, _) => {
                rows.fill(first, bits);
                rows.add_often(first, bits.len(), often);
            }
        }
    }

    /// Takes the bits once so many runs were filled that reading all rows pays.
    fn count_run(&mut self) {
        if let RowsEncoding::Filled(runs, source) = &mut self.form {
            *runs += 1;
            if *runs > FILLED_RUNS {
                let open = || {
                    RowList::open(&source.reader, &source.info, source.record)
                        .map_err(|error| unreadable(&source.name, &error))
                };
                match source.terms.of(&source.key, source.rows, open) {
                    // Another reads them, and may be done when next so many runs were filled.
                    Ok(None) => *runs = 0,
                    Ok(Some(Some(rows))) => self.form = RowsEncoding::Bits(rows, 0),
                    // What cannot be read is found where the postings are.
                    Ok(Some(None)) | Err(_) => self.form = RowsEncoding::List,
                }
            }
        }
    }

    /// Returns how often the current row has the term; 1 where that is not read.
    pub fn freq(&self) -> u32 {
        match &self.form {
            RowsEncoding::List | RowsEncoding::Filled(..) => self.list.term_freq(),
            RowsEncoding::Bits(rows, row) => rows.freq(*row),
        }
    }

    /// Counts the rows.
    pub fn count(&self) -> u32 {
        self.list.size_hint()
    }
}
