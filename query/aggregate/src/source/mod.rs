//! Sources of groups: the sources that answer questions about the rows of a segment, their costs, and the choice of the cheapest.
//!
//! A [`Question`] says what is wanted of rows. A [`Source`] that can answer it there makes a [`SourceCost`]: what it would cost, in
//! rows that a pass over all columns reads in the same time, and how it would go about it. [`choose`] takes the cheapest; what
//! it tells goes to a [`Sink`]. Where nothing is cheaper than to read the rows, they go through the common pass of all that
//! want them ([`super::pass`]), which asks its own question, for columns, of the sources that read rows.
//!
//! | source | knows | answers |
//! |---|---|---|
//! | [`statistics`] | bounds and counts of a whole column | how many, the least and greatest |
//! | [`filter_counts`] | lengths of posting lists | how many match filters |
//! | [`dictionary`] | terms, and how many rows have each | values, distinct ones |
//! | [`tally`] | the rows of each integer of few | intervals, ranges |
//! | [`minutes`] | the rows of each minute | spans of time |
//! | [`pages`] | bounds of each page | intervals, spans and ranges, and reads the rows of pages that straddle them |
//! | [`first_terms`] | rows of terms in their order | the first values |
//! | [`term_order`] | rows of terms | numbers below values of which there are many |
//! | [`columns`] | columns | rows |
//! | [`decoded_pages`] | numbers of pages that are kept decoded | rows |
//!
//! Each is decided for a segment by itself: a deletion in one does not slow the others. Deleted rows are in dictionaries and
//! statistics, so only segments without any are told by these alone. The parts of such a segment are priced by all its rows:
//! they choose alike, and what is told of the segment as a whole is told at the part that has its first row.

mod columns;
mod decoded_pages;
mod dictionary;
mod filter_counts;
mod first_terms;
mod minutes;
mod pages;
mod statistics;
mod tally;
mod term_order;
#[cfg(test)]
mod tests;

pub(crate) use self::dictionary::rows_of_a_term;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use millrace_mapping::PathId;
use millrace_work::error::Result;

use super::batch::{Batch, Column, Positions, Selection};
use super::field::{FieldSource, ValueKind, Values};
use super::keys::KeyRule;
use super::metric::Ordinals;
use super::result::Key;
use super::segment::{Rows, SegmentContext};

/// Of a source that costs no more than one row in so many, none of those behind it is asked: to look whether they apply costs
/// as much as could be saved. Minutes and tallies are kept only where they are so few beside the rows.
const FEW_OF_ALL: u64 = 16;

/// Rows that a source reads at a time of which it does not know the group.
const READ_ROWS: usize = 16_384;

/// The sources, those first that know the most beforehand.
static ALL: [&dyn Source; 10] = [
    &statistics::Statistics,
    &filter_counts::FilterCounts,
    &dictionary::Dictionary,
    &tally::TallyOfValues,
    &minutes::RowsByMinute,
    &pages::PageStatistics,
    &first_terms::FirstTerms,
    &term_order::TermOrder,
    &decoded_pages::DecodedPages,
    &columns::Columns,
];

/// Lists those that tell of any rows, not only of all rows of a segment.
pub(crate) fn of_any_rows() -> &'static [&'static dyn Source] {
    &[&pages::PageStatistics]
}

/// Lists the sources.
pub(crate) fn all() -> &'static [&'static dyn Source] {
    &ALL
}

/// Question about the rows of a segment.
#[derive(Debug)]
pub(crate) enum Question<'a> {
    /// Number of rows: [`Sink::group`] with 0.
    Count,
    /// Number of matches of each of some filters: [`Sink::group`] with their places.
    Filters(&'a [usize]),
    /// Number of rows of each key: [`Sink::group`] or [`Sink::term`], and [`Sink::batch`] with the rows whose key is not known.
    Keys(&'a KeyRule),
    /// Number of rows with a number from, and before, of some ranges: [`Sink::group`] with their places, and [`Sink::batch`] with
    /// the rows of which it is not known.
    Ranges(&'a Values, &'a [(f64, f64)]),
    /// Distinct values: [`Sink::term`].
    Distinct(&'a Values),
    /// Number of values: [`Sink::group`] with 0.
    ValueCount(&'a Values),
    /// The least and the greatest number: [`Sink::numbers`].
    Extremes(&'a Values),
    /// The numbers of columns, by their places, in the rows of each key: [`Sink::term`] and [`Sink::grouped`].
    NumbersByKey(&'a KeyRule, &'a [usize]),
    /// Those rows that can have one of the first values: [`Sink::batch`].
    First(FirstValues<'a>),
    /// Columns, by their places: [`Sink::batch`].
    Columns(&'a [usize]),
}

/// The first values of a field in an order.
#[derive(Debug)]
pub(crate) struct FirstValues<'a> {
    /// The field.
    pub values: &'a Values,
    /// `true` if they ascend.
    pub ascending: bool,
    /// The value at which they begin.
    pub from: Option<&'a Key>,
    /// Number of groups that are requested.
    pub wanted: usize,
    /// Keys that rows must have besides.
    pub others: &'a [Arc<KeyRule>],
}

/// Takes what a source tells. Which calls come, the question says; all of them may come without any.
pub(crate) trait Sink {
    /// Takes note of how many rows are asked about, where that is told beside their groups.
    fn rows(&mut self, _rows: u64) {}

    /// Adds rows, or values, of a group.
    ///
    /// # Errors
    /// What the aggregation refuses.
    fn group(&mut self, _group: u64, _count: u64) -> Result<()> {
        Ok(())
    }

    /// Adds the rows of a term, as the dictionary writes it; returns the number of its group, unless it is not wanted.
    ///
    /// # Errors
    /// What the aggregation refuses.
    fn term(&mut self, _kind: ValueKind, _term: &[u8], _rows: u64) -> Result<Option<u32>> {
        Ok(None)
    }

    /// Adds numbers.
    ///
    /// # Errors
    /// What the aggregation refuses.
    fn numbers(&mut self, _numbers: &[f64]) -> Result<()> {
        Ok(())
    }

    /// Adds rows, whose groups it finds.
    ///
    /// # Errors
    /// Values that the aggregation refuses.
    fn batch(&mut self, _batch: &Batch<'_>) -> Result<()> {
        Ok(())
    }

    /// Adds what is below the groups of rows, which were told to [`Sink::term`].
    ///
    /// # Errors
    /// Values that the aggregation refuses.
    fn grouped(&mut self, _batch: &Batch<'_>, _groups: &[u32]) -> Result<()> {
        Ok(())
    }
}

/// Asks a question and has the answer told to a sink; whether there was one.
pub(crate) type SourceQuery<'a> = dyn FnMut(&Question<'_>, &mut dyn Sink) -> Result<bool> + 'a;

/// Rows of a segment, of which something is asked.
#[derive(Clone, Copy)]
pub(crate) struct SegmentRows<'a> {
    /// The segment.
    pub segment: &'a SegmentContext<'a>,
    /// The rows.
    pub rows: &'a Rows,
    /// Candidate sources: [`all`].
    pub sources: &'a [&'a dyn Source],
}

impl<'a> SegmentRows<'a> {
    /// Counts the rows of a run by which sources are priced: all of it, where rows without a deletion are asked about.
    fn priced_in(&self, run: Range<u32>) -> u64 {
        match self.rows {
            Rows::All(_) => run.len() as u64,
            Rows::Some(rows) => rows.range_cardinality(run),
        }
    }

    /// Counts all rows by which sources are priced.
    fn priced(&self) -> u64 {
        self.priced_in(0..self.segment.source.reader.rows())
    }

    /// Returns where a field has its terms, if each value is one as its column holds it.
    fn listed(&self, values: &'a Values) -> Option<&'a FieldSource> {
        let place = values.place_in(self.segment.index)?;
        let plain = values.missing().is_none() && !values.mixed && Some(place.kind) == values.kind;
        let listed = place.field.index
            && !place.is_inside()
            && !place.field.field_type.is_text()
            && self.segment.source.inverted.has_exact(place.field.id);
        (plain && listed).then_some(place)
    }

    /// Returns whether the work is to end.
    fn stopped(&self) -> bool {
        self.segment.table.handle.stop.requested()
    }

    /// Makes a batch of documents.
    fn batch(&self, rows: &'a [u32], columns: &'a [Option<Column>]) -> Batch<'a> {
        Batch { segment: self.segment, scope: 0, rows, columns, scores: None, outer: None }
    }

    /// Returns the columns of documents, of which those at some places are read.
    fn columns(&self) -> &'a [PathId] {
        self.segment.plan.columns(0, self.segment.index)
    }

    /// Returns the columns at some places.
    fn columns_at(&self, places: &[usize]) -> Vec<PathId> {
        places.iter().filter_map(|place| self.columns().get(*place).copied()).collect()
    }

    /// Puts columns at their places.
    fn placed<'c>(
        &self,
        places: &[usize],
        columns: impl IntoIterator<Item = &'c ArrayRef>,
    ) -> Vec<Option<Column>> {
        let mut placed = Vec::new();
        placed.resize_with(self.columns().len(), || None);
        for (place, column) in places.iter().zip(columns) {
            if let Some(placed) = placed.get_mut(*place) {
                *placed = Column::read(column);
            }
        }
        placed
    }

    /// Reads ascending rows.
    fn read(&self, rows: &[u32], sink: &mut dyn Sink) -> Result<()> {
        for rows in rows.chunks(READ_ROWS) {
            if self.stopped() {
                break;
            }
            self.segment.with_rows(0, rows, None, None, &mut |batch| sink.batch(batch))?;
        }
        Ok(())
    }
}

/// All rows of a batch, in one group.
pub(crate) fn all_of(batch: &Batch<'_>) -> Selection<'static> {
    Selection { positions: Positions::All(batch.rows.len()), ordinals: Ordinals::One(0) }
}

/// Tells a sink.
type Feed<'a> = Box<dyn FnOnce(&mut dyn Sink) -> Result<()> + 'a>;

/// Cost of a source for a question.
pub(crate) struct SourceCost<'a> {
    /// Cost in rows of a pass over all.
    pub cost: u64,
    /// `true` if it tells of the segment as a whole, at the part that has its first row, and nothing at others.
    pub of_segment: bool,
    feed: Feed<'a>,
}

impl<'a> SourceCost<'a> {
    fn new(cost: u64, feed: impl FnOnce(&mut dyn Sink) -> Result<()> + 'a) -> Option<Self> {
        Some(Self { cost, of_segment: false, feed: Box::new(feed) })
    }

    /// Makes the bid of who tells of the segment as a whole.
    fn of_segment(cost: u64, feed: impl FnOnce(&mut dyn Sink) -> Result<()> + 'a) -> Option<Self> {
        Self::new(cost, feed).map(|bid| Self { of_segment: true, ..bid })
    }

    /// Tells.
    ///
    /// # Errors
    /// Files that cannot be read, what the aggregation refuses.
    pub(crate) fn tell(self, sink: &mut dyn Sink) -> Result<()> {
        (self.feed)(sink)
    }
}

impl fmt::Debug for SourceCost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bid").field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// Source of groups.
pub(crate) trait Source: Sync {
    /// Names it.
    fn name(&self) -> &'static str;

    /// Returns the cost of an answer; `None` where it has none, or none that costs `most` or less.
    ///
    /// # Errors
    /// Files that cannot be read.
    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        most: u64,
    ) -> Result<Option<SourceCost<'a>>>;
}

/// Returns the cost of a pass over the rows, which answers everything.
fn cost_of_pass(question: &Question<'_>, at: SegmentRows<'_>) -> u64 {
    match question {
        // Told part by part.
        Question::Columns(_) | Question::First(_) => at.rows.len(),
        _ => at.priced(),
    }
}

/// Finds the cheapest source, by its name, and its bid: of those that cost the same the first, also where a pass over the rows
/// costs that. `None` where that pass is the cheapest.
///
/// # Errors
/// Files that cannot be read.
pub(crate) fn choose<'a>(
    question: &'a Question<'a>,
    at: SegmentRows<'a>,
) -> Result<Option<(&'static str, SourceCost<'a>)>> {
    let pass = cost_of_pass(question, at);
    let (mut most, mut best) = (pass, None);
    for source in at.sources {
        let cheapest = |bid: &SourceCost<'_>| bid.cost < most || best.is_none() && bid.cost == most;
        if let Some(bid) = source.bid(question, at, most)?.filter(cheapest) {
            most = bid.cost;
            best = Some((source.name(), bid));
            if most.saturating_mul(FEW_OF_ALL) <= pass {
                break;
            }
        }
    }
    Ok(best)
}

/// Answers a question from the cheapest source; whether that is not a pass over the rows.
///
/// # Errors
/// Files that cannot be read, what the aggregation refuses.
pub(crate) fn answer(question: &Question<'_>, sink: &mut dyn Sink, at: SegmentRows<'_>) -> Result<bool> {
    match choose(question, at)? {
        Some((_, bid)) => bid.tell(sink).map(|()| true),
        None => Ok(false),
    }
}
