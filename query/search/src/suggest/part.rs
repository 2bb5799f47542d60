//! Segments as a suggester reads them: all that is in their dictionaries, or what is in the rows that rules of roles show.

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_mapping::{PathId, Scalar};
use millrace_matching::table::TableSnapshot;
use millrace_scoring::automaton::CancellablePattern;
use millrace_scoring::reader::{InvertedIndex, SegmentReader};
use millrace_scoring::visible_terms::{VisibleTerms, sum_within};
use millrace_work::QueryContext;
use millrace_work::error::Result;
use roaring::RoaringBitmap;
use tantivy::TERMINATED;
use tantivy::postings::Postings;

/// The rows of each segment of a snapshot that are seen; `None` where rules hide none, and deleted rows count, too.
pub(super) type VisibleRows = Vec<Option<Arc<RoaringBitmap>>>;

/// Finds the rows that are seen. Blocks.
///
/// # Errors
/// What a rule cannot be asked of an index; files that cannot be read.
pub(super) fn seen(snapshot: &TableSnapshot, work: &QueryContext) -> Result<VisibleRows> {
    snapshot.segments.iter().map(|segment| segment.visible(usize::MAX, None, work)).collect()
}

/// A segment, with the rows that are seen where some are not.
#[derive(Clone, Debug)]
pub(super) struct VisibleSegment {
    pub reader: Arc<dyn SegmentReader>,
    pub seen: Option<Arc<RoaringBitmap>>,
}

/// The terms of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub path: PathId,
    /// `true` if they are those of a text.
    pub text: bool,
}

impl VisibleSegment {
    /// Counts the rows.
    pub(super) fn rows(&self) -> u64 {
        self.seen.as_ref().map_or_else(|| self.reader.rows().into(), |seen| seen.len())
    }

    /// Counts the rows with a term.
    pub(super) fn count(&self, terms: Terms, term: &str) -> Result<u64> {
        let inverted = self.reader.inverted()?;
        if let Some(seen) = &self.seen {
            return Ok(terms
                .postings(inverted.as_ref(), term)?
                .map_or(0, |rows| sum_within(rows, seen, |_| 1)));
        }
        Ok(u64::from(match terms.text {
            true => match inverted.text(terms.path) {
                Some(text) => text.count(term)?,
                None => 0,
            },
            false => inverted.exact_count(terms.path, &Scalar::Str(term.to_owned()))?,
        }))
    }

    /// Counts the occurrences of a term of a text, of any other field the rows with it.
    pub(super) fn occurrences(&self, terms: Terms, term: &str) -> Result<u64> {
        if !terms.text {
            return self.count(terms, term);
        }
        let inverted = self.reader.inverted()?;
        let Some(mut postings) = terms.postings(inverted.as_ref(), term)? else { return Ok(0) };
        if let Some(seen) = &self.seen {
            return Ok(sum_within(postings, seen, |postings| postings.term_freq().into()));
        }
        let mut count = 0;
        while postings.doc() != TERMINATED {
            count += u64::from(postings.term_freq());
            postings.advance();
        }
        Ok(count)
    }

    /// Counts the tokens of a field; of the rows that are seen by their lengths, which are exact for short texts.
    pub(super) fn tokens(&self, terms: Terms) -> Result<u64> {
        let inverted = self.reader.inverted()?;
        let text = terms.text.then(|| inverted.text(terms.path)).flatten();
        let Some(seen) = &self.seen else {
            return match terms.text {
                true => Ok(text.map_or(0, |text| text.tokens())),
                false => Ok(inverted.value_count(terms.path)?),
            };
        };
        Ok(match (terms.text, text) {
            (true, Some(text)) if text.has_norms() => seen.iter().map(|row| u64::from(text.norm(row))).sum(),
            (true, None) => 0,
            _ => inverted.exists(terms.path)?.map_or(0, |rows| sum_within(rows, seen, |_| 1)),
        })
    }

    /// Calls `each` with the terms of a pattern and their rows, ascending; those of rows that are not seen are left out.
    pub(super) fn for_each(
        &self,
        terms: Terms,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u64),
    ) -> Result<()> {
        let inverted = self.reader.inverted()?;
        terms.visible(inverted.as_ref(), self.seen.as_deref()).for_each(pattern, &mut |term, rows| {
            each(term, rows);
            ControlFlow::Continue(())
        })
    }
}

impl Terms {
    fn visible<'a>(
        self,
        inverted: &'a dyn InvertedIndex,
        rows: Option<&'a RoaringBitmap>,
    ) -> VisibleTerms<'a> {
        VisibleTerms { inverted, path: self.path, text: self.text, rows }
    }

    fn postings(self, inverted: &dyn InvertedIndex, term: &str) -> Result<Option<Box<dyn Postings>>> {
        self.visible(inverted, None).postings(term)
    }
}
