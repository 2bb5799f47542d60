//! The terms of a segment as far as visible rows have them.
//!
//! A term that only hidden documents have must not tell of itself by being found: expansions, intervals and suggesters choose
//! among [`VisibleTerms`].

use std::fmt;
use std::ops::ControlFlow;

use millrace_mapping::{PathId, Scalar};
use millrace_work::error::Result;
use roaring::RoaringBitmap;
use tantivy::TERMINATED;
use tantivy::postings::Postings;

use crate::automaton::CancellablePattern;
use crate::reader::InvertedIndex;

/// The terms of a field in a segment, as far as rows that are visible have them.
#[derive(Clone, Copy)]
pub struct VisibleTerms<'a> {
    /// The index of the segment, or of elements.
    pub inverted: &'a dyn InvertedIndex,
    /// The field.
    pub path: PathId,
    /// True if terms are those of a text.
    pub text: bool,
    /// The visible rows; all where absent.
    pub rows: Option<&'a RoaringBitmap>,
}

impl fmt::Debug for VisibleTerms<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisibleTerms").field("path", &self.path).finish_non_exhaustive()
    }
}

impl VisibleTerms<'_> {
    /// Opens the rows with a term, hidden ones included.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn postings(&self, term: &str) -> Result<Option<Box<dyn Postings>>> {
        Ok(match self.text {
            true => self.inverted.text(self.path).map(|text| text.postings(term)).transpose()?.flatten(),
            false => self.inverted.exact(self.path, &Scalar::Str(term.to_owned()))?,
        })
    }

    /// Calls `each` with the terms of a pattern and how many visible rows have them, ascending, until it breaks; terms that no
    /// visible row has are left out.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn for_each(
        &self,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut failed = None;
        let mut visit = |term: &str, count: u32| {
            let Some(rows) = self.rows else { return each(term, count.into()) };
            match self.postings(term) {
                Ok(postings) => match postings.map_or(0, |postings| sum_within(postings, rows, |_| 1)) {
                    0 => ControlFlow::Continue(()),
                    count => each(term, count),
                },
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        match self.text {
            false => self.inverted.for_each_match(self.path, pattern, &mut visit)?,
            true => {
                if let Some(text) = self.inverted.text(self.path) {
                    text.for_each_match(pattern, &mut visit)?;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Adds up the weights of those postings that are among some rows.
pub fn sum_within(
    mut postings: Box<dyn Postings>,
    rows: &RoaringBitmap,
    weight: impl Fn(&dyn Postings) -> u64,
) -> u64 {
    let mut sum = 0;
    let mut wanted = rows.iter();
    let mut row = postings.doc();
    while row != TERMINATED {
        // Both go on to where the other one is.
        wanted.advance_to(row);
        match wanted.next() {
            None => break,
            Some(next) if next == row => {
                sum += weight(postings.as_ref());
                row = postings.advance();
            }
            Some(next) => {
                row = postings.seek(next);
                if row == next {
                    sum += weight(postings.as_ref());
                    row = postings.advance();
                }
            }
        }
    }
    sum
}
