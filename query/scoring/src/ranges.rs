//! Ranges over columns: evaluated where their rows are asked for, or read at once.

use std::sync::Arc;

use millrace_mapping::{PathId, Scalar};
use millrace_segment::{PagedRange, ValueRange, WINDOW_ROWS, WindowBits};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use crate::bits::{first_from, up_to};
use crate::condition::{Condition, RowCount, SharedCondition};
use crate::failure::Failure;
use crate::match_all::{MatchAllScorer, MatchNoneScorer};
use crate::reader::{InvertedIndex, SegmentReader};
use crate::row_set::RowSet;
use crate::source::Source;
use crate::windows::{BoxFilter, RowFilter};
use crate::{BoxScorer, END, Scorer};

/// Most integers of a range that are found by their terms, and one row in so many that these may have.
const LISTED_TERMS: usize = 64;
const LISTED_SHARE: u32 = 16;
/// Rows of which a column is read between two looks at the stop.
const COLUMN_ROWS: u32 = 1 << 18;

/// A range over the pages of a column.
#[derive(Debug)]
struct Range {
    pages: PagedRange,
    score: f32,
    /// The error that ended a pass over its rows.
    failure: Failure,
}

impl Condition for Range {
    fn scorer<'a>(&'a self, _inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        Ok(Box::new(RangeScorer::new(&self.pages, rows, self.score, &self.failure)))
    }
    fn filter<'a>(&'a self, _inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxFilter<'a>> {
        Ok(Box::new(InRange(&self.pages)))
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        Ok(if of.all && of.deleted.is_empty() { self.pages.count()? } else { None })
    }
    fn failure(&self) -> Option<Error> {
        self.failure.take()
    }
    fn is_unscored(&self) -> bool {
        self.score == 0.0
    }
}

/// Prepares a range over a column, which may have a field whose terms are its integers.
pub(super) fn prepare(
    source: &Source,
    column: (PathId, Option<PathId>),
    range: Option<&ValueRange>,
    among: Option<&RoaringBitmap>,
    score: f32,
) -> Result<SharedCondition> {
    let Some(range) = range else { return Ok(Arc::new(MatchNoneScorer)) };
    if let Some(unread) = unread(source, column, range, score)? {
        return Ok(unread);
    }
    let mut rows = RoaringBitmap::new();
    range_rows(source.reader.as_ref(), column.0, range, among, &source.work, &mut |some| {
        rows |= some;
        true
    })?;
    RowSet::found(source, rows, score)
}

/// Gives `each` the rows with a value in a range, some at a time until it returns false.
///
/// # Errors
/// Files that cannot be read, [`Error::TimedOut`] once the work should end.
pub fn range_rows(
    reader: &dyn SegmentReader,
    column: PathId,
    range: &ValueRange,
    among: Option<&RoaringBitmap>,
    work: &QueryContext,
    each: &mut dyn FnMut(RoaringBitmap) -> bool,
) -> Result<()> {
    let total = reader.rows();
    // What lies in memory is looked at as a whole, and that takes no time.
    if total <= COLUMN_ROWS || reader.in_memory().is_some() {
        each(reader.range_rows(column, range, among)?);
        return Ok(());
    }
    let mut first = 0;
    while first < total {
        work.check()?;
        let end = first.saturating_add(COLUMN_ROWS).min(total);
        let mut window = RoaringBitmap::new();
        window.insert_range(first..end);
        if let Some(among) = among {
            window &= among;
        }
        first = end;
        if !window.is_empty() && !each(reader.range_rows(column, range, Some(&window))?) {
            break;
        }
    }
    Ok(())
}

/// Prepares a range as far as the column need not be read for that.
pub(super) fn unread(
    source: &Source,
    (column, terms): (PathId, Option<PathId>),
    range: &ValueRange,
    score: f32,
) -> Result<Option<SharedCondition>> {
    match listed(source, terms, range, score)? {
        None => paged(source, column, range, score),
        listed => Ok(listed),
    }
}

/// Prepares a range of integers by their terms, where these are few and have few rows.
fn listed(
    source: &Source,
    terms: Option<PathId>,
    range: &ValueRange,
    score: f32,
) -> Result<Option<SharedCondition>> {
    let Some(path) = terms else { return Ok(None) };
    let (from, to) = match range {
        ValueRange::I64(from, to) => (Scalar::I64(*from), Scalar::I64(*to)),
        ValueRange::U64(from, to) => (Scalar::U64(*from), Scalar::U64(*to)),
        _ => return Ok(None),
    };
    let most_rows = source.reader.rows() / LISTED_SHARE;
    let rows = source.inverted.few_rows(path, (&from, &to), LISTED_TERMS, most_rows)?;
    rows.map(|rows| RowSet::found(source, rows, score)).transpose()
}

/// Prepares a range that is evaluated where its rows are asked for, where there is such a form.
fn paged(source: &Source, column: PathId, range: &ValueRange, score: f32) -> Result<Option<SharedCondition>> {
    Ok(source.reader.paged_range(column, range)?.map(|pages| -> SharedCondition {
        if pages.is_everything() {
            Arc::new(MatchAllScorer(score))
        } else if pages.most_rows() == 0 {
            Arc::new(MatchNoneScorer)
        } else {
            Arc::new(Range { pages, score, failure: Failure::default() })
        }
    }))
}

/// The rows of a range; windows of them are evaluated as they are come to.
struct RangeScorer<'a> {
    range: &'a PagedRange,
    rows: u32,
    score: f32,
    doc: u32,
    window: Option<(u32, WindowBits)>,
    failure: &'a Failure,
}

impl<'a> RangeScorer<'a> {
    /// Starts at the first row.
    fn new(range: &'a PagedRange, rows: u32, score: f32, failure: &'a Failure) -> Self {
        let mut scorer = Self { range, rows, score, doc: 0, window: None, failure };
        scorer.seek_match(0);
        scorer
    }

    fn seek_match(&mut self, mut target: u32) -> u32 {
        self.doc = loop {
            let Some(next) = self.range.next(target).filter(|next| *next < self.rows) else { break END };
            let first = next - next % WINDOW_ROWS;
            let bits = match &self.window {
                Some((at, bits)) if *at == first => bits,
                _ => {
                    let mut bits = up_to(self.rows - first);
                    if let Err(error) = self.range.keep(first, &mut bits) {
                        self.failure.put(error.into());
                        break END;
                    }
                    &self.window.insert((first, bits)).1
                }
            };
            if let Some(found) = first_from(bits, next - first) {
                break first + found;
            }
            target = first.saturating_add(WINDOW_ROWS);
        };
        self.doc
    }
}

impl Scorer for RangeScorer<'_> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target { self.doc } else { self.seek_match(target) }
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.score
    }
    fn cost(&self) -> u64 {
        self.range.most_rows()
    }
}

/// The rows of a range over pages.
struct InRange<'a>(&'a PagedRange);

impl RowFilter for InRange<'_> {
    fn next(&mut self, target: u32) -> u32 {
        self.0.next(target).unwrap_or(END)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        Ok(self.0.keep(first, bits)?)
    }
    fn cost(&self) -> u64 {
        self.0.most_rows()
    }
}
