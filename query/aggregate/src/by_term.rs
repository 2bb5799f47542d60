//! Rows found term by term: the postings of a field have the rows of each bucket together, where a row by itself has to find
//! its bucket among all.

use std::ops::{ControlFlow, Range};

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use millrace_storage::bundle::{ValueWalker, Walk};
use millrace_work::error::Result;

use super::batch::{Batch, Column};
use super::bucket::composite;
use super::bucket::keyed::KeyedCollector;
use super::field::{Place, ValueKind};
use super::keys::{Form, KeyRule};
use super::result::Key;
use super::segment::{Rows, SegmentContext, numbers};
use super::shortcut;

/// Terms and rows of them that are walked over for a page, at most: one in so many of those that match, and some.
const WALKED_SHARE: u64 = 4;
const WALKED_ROWS: u64 = 4_096;
/// Most rows of a term, on average, of which rows are found by terms in any case.
const ROWS_OF_A_TERM: u64 = 32;
/// So many terms make a table of buckets that is slow to look into for each row.
const MANY_TERMS: u64 = 16_384;
/// Terms that are looked at for that.
const SAMPLED_TERMS: u64 = 1_024;
/// Most numbers that are held at once to be taken in the order of terms.
const MOST_NUMBERS: u64 = 24 << 20;
/// Rows of a batch.
const BATCH_ROWS: usize = 65_536;

/// Feeds a `composite` with the rows of as many terms of its first source as its page has buckets: others cannot be on it,
/// also where other segments have more of the same terms.
pub(super) fn page(
    collector: &mut KeyedCollector,
    shape: &composite::Shape,
    first: &KeyRule,
    segment: &SegmentContext<'_>,
    rows: &Rows,
) -> Result<bool> {
    let Some(place) = shortcut::listed(&first.values, segment) else { return Ok(false) };
    let by_terms = matches!(first.form, Form::Terms(_)) && !first.null;
    // A row of several terms would come up at each.
    if !by_terms || segment.source.reader.is_list(place.field.column) {
        return Ok(false);
    }
    let (ascending, after) = shape.first();
    let from = match (place.kind, after) {
        (ValueKind::Text, Some(Key::Text(text))) => Some(text.as_bytes().to_vec()),
        (ValueKind::Ip, Some(Key::Ip(address))) => Some(address.to_vec()),
        (ValueKind::Text | ValueKind::Ip, None) => None,
        _ => return Ok(false),
    };
    // The buckets of the term at which the page begins may all be before it.
    let wanted = shape.size().saturating_add(usize::from(after.is_some()));
    let most = rows.len() / WALKED_SHARE + WALKED_ROWS;
    let span = rows.span();
    let (mut found, mut terms, mut walked) = (Vec::new(), 0, 0);
    segment.source.inverted.for_each_rows(place.field.id, from.as_deref(), !ascending, &mut |_, term| {
        let before = found.len();
        // A term counts as a row, whether or not it has rows in the span.
        walked += 1;
        let mut row = term.seek_row(span.start);
        while row < span.end && walked <= most {
            walked += 1;
            if rows.contains(row) {
                found.push(row);
            }
            row = term.seek_row(row + 1);
        }
        terms += usize::from(found.len() > before);
        let goes_on = terms < wanted && walked <= most && !segment.table.handle.stop.requested();
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if walked > most {
        return Ok(false);
    }
    found.sort_unstable();
    shortcut::read(collector, segment, &found)
}

/// Feeds buckets by terms that have few rows each, and numbers below them, in the order of the terms: then buckets are
/// met one after the other, and none is looked for. Parts of a segment share its terms out.
pub(super) fn all(
    collector: &mut KeyedCollector,
    rule: &KeyRule,
    segment: &SegmentContext<'_>,
    rows: &Rows,
) -> Result<bool> {
    let (Rows::All(own), Some(place)) = (rows, shortcut::listed(&rule.values, segment)) else {
        return Ok(false);
    };
    let mut slots = Vec::new();
    let fits = matches!(place.kind, ValueKind::Text | ValueKind::Ip)
        && matches!(rule.form, Form::Terms(_))
        && collector.below_reads_numbers(segment.index, &mut slots);
    slots.sort_unstable();
    slots.dedup();
    let all = segment.source.reader.rows();
    if !fits || slots.is_empty() || u64::from(all) * slots.len() as u64 > MOST_NUMBERS {
        return Ok(false);
    }
    if rows_of_a_term(place, segment)? > ROWS_OF_A_TERM.max(u64::from(all) / MANY_TERMS) {
        return Ok(false);
    }
    let paths = segment.tree.columns(0, segment.index);
    let columns: Vec<_> = slots.iter().filter_map(|slot| paths.get(*slot).copied()).collect();
    let Some(columns) = numbers(&segment.source, &columns, &Rows::All(0..all).within(0..all))? else {
        return Ok(false);
    };
    let mut feed = Feed {
        collector,
        segment,
        kind: place.kind,
        slots,
        columns,
        width: paths.len(),
        own: own.clone(),
        all,
        number: 0,
        bucket: 0,
        rows: Vec::new(),
        buckets: Vec::new(),
        done: Ok(()),
    };
    segment.source.inverted.walk_values(place.field.id, &mut feed)?;
    std::mem::replace(&mut feed.done, Ok(()))?;
    feed.flush()?;
    Ok(true)
}

/// Estimates how many rows a term of a field has on average.
pub(super) fn rows_of_a_term(place: &Place, segment: &SegmentContext<'_>) -> Result<u64> {
    let mut sample = Sample::default();
    segment.source.inverted.walk_values(place.field.id, &mut sample)?;
    Ok(sample.rows.div_ceil(sample.terms.max(1)))
}

/// Looks at the first terms.
#[derive(Default)]
struct Sample {
    terms: u64,
    rows: u64,
}

impl ValueWalker for Sample {
    fn value(&mut self, _value: &[u8], rows: u32) -> Walk {
        if self.terms == SAMPLED_TERMS {
            return Walk::Stop;
        }
        self.terms += 1;
        self.rows += u64::from(rows);
        Walk::Pass
    }

    fn rows(&mut self, _rows: &[u32]) {}
}

/// Gathers the rows of terms and feeds them to what is below their buckets.
struct Feed<'a, 's> {
    collector: &'a mut KeyedCollector,
    segment: &'a SegmentContext<'s>,
    kind: ValueKind,
    /// Places of the columns that are read, and their numbers in all rows.
    slots: Vec<usize>,
    columns: Vec<ArrayRef>,
    /// Columns of the scope.
    width: usize,
    /// The part, of so many rows.
    own: Range<u32>,
    all: u32,
    /// Number of the term.
    number: u32,
    bucket: u32,
    rows: Vec<u32>,
    /// The bucket of each row.
    buckets: Vec<u32>,
    done: Result<()>,
}

impl Feed<'_, '_> {
    fn flush(&mut self) -> Result<()> {
        let rows = UInt32Array::from(std::mem::take(&mut self.rows));
        let mut columns: Vec<Option<Column>> = Vec::new();
        columns.resize_with(self.width, || None);
        for (slot, column) in self.slots.iter().zip(&self.columns) {
            if let Some(place) = columns.get_mut(*slot) {
                *place = Some(Column::new(&take(column, &rows, None)?));
            }
        }
        let batch = Batch {
            segment: self.segment,
            scope: 0,
            rows: rows.values(),
            columns: &columns,
            scores: None,
            outer: None,
        };
        self.collector.collect_below(&batch, &self.buckets)?;
        self.buckets.clear();
        Ok(())
    }
}

impl ValueWalker for Feed<'_, '_> {
    fn value(&mut self, value: &[u8], rows: u32) -> Walk {
        if self.rows.len() >= BATCH_ROWS {
            self.done = match self.segment.table.handle.stop.requested() {
                true => return Walk::Stop,
                false => self.flush(),
            };
            if self.done.is_err() {
                return Walk::Stop;
            }
        }
        // Spread evenly, and the same each time.
        let share = (u64::from(self.number.wrapping_mul(0x9e37_79b9)) * u64::from(self.all)) >> 32;
        self.number = self.number.wrapping_add(1);
        let Some(keys) = self.collector.keys.one().filter(|_| self.own.contains(&(share as u32))) else {
            return Walk::Pass;
        };
        let Some(key) = keys.wanted_key(self.kind, value) else { return Walk::Pass };
        self.bucket = self.collector.add(0, key, u64::from(rows));
        Walk::Read
    }

    fn rows(&mut self, rows: &[u32]) {
        self.rows.extend_from_slice(rows);
        self.buckets.extend(std::iter::repeat_n(self.bucket, rows.len()));
    }
}
