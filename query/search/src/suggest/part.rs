//! Segments as a suggester reads them: all that is in their dictionaries, or what is in the rows that rules of roles show.

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_matching::automaton::Until;
use millrace_matching::filters::RowFilter;
use millrace_matching::score::reader::{Inverted, SegmentReader};
use millrace_matching::table::resolve::IndexContext;
use millrace_matching::table::{TableIndex, TableSnapshot};
use millrace_storage::mapping::{PathId, Scalar};
use millrace_work::Work;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;
use tantivy::TERMINATED;
use tantivy::postings::Postings;

/// The rows of each segment of a snapshot that are seen; `None` where rules hide none, and deleted rows count, too.
pub(super) type Seen = Vec<Option<Arc<RoaringBitmap>>>;

/// Finds the rows that are seen. Blocks.
///
/// # Errors
/// Rules by which scores decide what is seen, or terms that are chosen among those of all documents; files that cannot be read.
pub(super) fn seen(snapshot: &TableSnapshot, now_ms: i64, work: &Work) -> Result<Seen> {
    let filters: Vec<Option<RowFilter>> =
        snapshot.indices.iter().map(|index| filter(index, now_ms)).collect::<Result<_>>()?;
    let of_segments = snapshot.segments.iter().map(|segment| {
        let Some(Some(filter)) = filters.get(segment.index) else { return Ok(None) };
        let mut rows = filter.rows(&segment.reader, work)?;
        rows -= segment.deleted.as_ref();
        work.hold_rows(&rows)?;
        Ok(Some(Arc::new(rows)))
    });
    of_segments.collect()
}

fn filter(index: &TableIndex, now_ms: i64) -> Result<Option<RowFilter>> {
    let Some(documents) = &index.seen.documents else { return Ok(None) };
    let context = IndexContext { meta: &index.meta, mapping: &documents.mapping, now_ms };
    let filter = RowFilter::of(&documents.predicate, context);
    // What the rule is, is not told.
    let filter = filter.map_err(|_| {
        Error::IllegalArgument(format!(
            "[suggest] is not available on [{}], of which the query of a role shows documents by their score, or by terms that are \
             chosen among those of all documents",
            index.meta.name
        ))
    })?;
    Ok(Some(filter))
}

/// A segment, with the rows that are seen where some are not.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub reader: Arc<dyn SegmentReader>,
    pub seen: Option<Arc<RoaringBitmap>>,
}

/// The terms of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub path: PathId,
    /// Whether they are those of a text.
    pub text: bool,
}

impl Part {
    /// Counts the rows.
    pub(super) fn rows(&self) -> u64 {
        self.seen.as_ref().map_or_else(|| self.reader.rows().into(), |seen| seen.len())
    }

    /// Counts the rows with a term.
    pub(super) fn count(&self, terms: Terms, term: &str) -> Result<u64> {
        let inverted = self.reader.inverted()?;
        if let Some(seen) = &self.seen {
            return Ok(terms.postings(inverted.as_ref(), term)?.map_or(0, |rows| within(rows, seen, |_| 1)));
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
            return Ok(within(postings, seen, |postings| postings.term_freq().into()));
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
            _ => inverted.exists(terms.path)?.map_or(0, |rows| within(rows, seen, |_| 1)),
        })
    }

    /// Calls `each` with the terms of a pattern and their rows, ascending; those of rows that are not seen are left out.
    pub(super) fn for_each(
        &self,
        terms: Terms,
        pattern: Until<'_>,
        each: &mut dyn FnMut(&str, u64),
    ) -> Result<()> {
        let inverted = self.reader.inverted()?;
        let mut failed = None;
        let mut visit = |term: &str, rows: u32| {
            let Some(seen) = &self.seen else {
                each(term, rows.into());
                return ControlFlow::Continue(());
            };
            match terms.postings(inverted.as_ref(), term) {
                Ok(Some(rows)) => match within(rows, seen, |_| 1) {
                    0 => {}
                    rows => each(term, rows),
                },
                Ok(None) => {}
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        match terms.text {
            true => {
                if let Some(text) = inverted.text(terms.path) {
                    text.for_each_match(pattern, &mut visit)?;
                }
            }
            false => inverted.for_each_match(terms.path, pattern, &mut visit)?,
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Terms {
    fn postings(self, inverted: &dyn Inverted, term: &str) -> Result<Option<Box<dyn Postings>>> {
        Ok(match self.text {
            true => inverted.text(self.path).map(|text| text.postings(term)).transpose()?.flatten(),
            false => inverted.exact(self.path, &Scalar::Str(term.to_owned()))?,
        })
    }
}

/// Adds up what rows weigh that are seen.
fn within(mut rows: Box<dyn Postings>, seen: &RoaringBitmap, weight: impl Fn(&dyn Postings) -> u64) -> u64 {
    let mut sum = 0;
    let mut wanted = seen.iter();
    let mut row = rows.doc();
    while row != TERMINATED {
        // Both go on to where the other one is.
        wanted.advance_to(row);
        match wanted.next() {
            None => break,
            Some(next) if next == row => {
                sum += weight(rows.as_ref());
                row = rows.advance();
            }
            Some(next) => {
                row = rows.seek(next);
                if row == next {
                    sum += weight(rows.as_ref());
                    row = rows.advance();
                }
            }
        }
    }
    sum
}
