//! Numbers of rows in the order of the terms of a field: the postings have the rows of each bucket together, where a row by
//! itself has to find its bucket among all.

use std::ops::Range;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use millrace_segment::bundle::{ValueWalker, Walk};
use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::dictionary::rows_of_a_term;
use super::{Question, SegmentRows, Sink, Source, SourceCost};
use crate::field::ValueKind;
use crate::keys::KeyForm;
use crate::segment::{Rows, numbers};

/// Most rows of a term, on average, of which rows are found by terms in any case.
const ROWS_OF_A_TERM: u64 = 32;
/// So many terms make a table of buckets that is slow to look into for each row.
const MANY_TERMS: u64 = 16_384;
/// Cost of a row that is taken out of its place. It is higher among so many buckets that a pass would be slow to find its own,
/// and lower among fewer, of which a pass finds it at once.
const AMONG_MANY: u64 = 1;
const AMONG_FEW: u64 = 2;
/// Most numbers that are held at once to be taken in the order of terms.
const MOST_NUMBERS: u64 = 24 << 20;
const BATCH_ROWS: usize = 65_536;

/// The rows of the terms of a field, whose numbers are gathered term by term: then buckets are met one after the other, and
/// none is looked for. Parts of a segment share its terms out.
pub(super) struct TermOrder;

impl Source for TermOrder {
    fn name(&self) -> &'static str {
        "term order"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        let (Question::NumbersByKey(rule, places), Rows::All(own)) = (question, at.rows) else {
            return Ok(None);
        };
        let Some(place) = at.listed(&rule.values).filter(|_| !rule.null && !places.is_empty()) else {
            return Ok(None);
        };
        let strings = matches!(place.kind, ValueKind::Text | ValueKind::Ip);
        let all = at.segment.source.reader.rows();
        if !strings
            || !matches!(rule.form, KeyForm::Terms(_))
            || u64::from(all) * places.len() as u64 > MOST_NUMBERS
        {
            return Ok(None);
        }
        let few = rows_of_a_term(place, at.segment)? > ROWS_OF_A_TERM.max(u64::from(all) / MANY_TERMS);
        let cost = u64::from(all) * if few { AMONG_FEW } else { AMONG_MANY };
        if cost > most {
            return Ok(None);
        }
        let every = Rows::All(0..all).within(0..all);
        let Some(columns) = numbers(&at.segment.source, &at.columns_at(places), &every)? else {
            return Ok(None);
        };
        // Parts share the terms out, so that none may go without.
        let bytes = columns.iter().map(|column| column.get_array_memory_size()).sum();
        let work = at.segment.source.work.part_of(bytes)?;
        Ok(SourceCost::new(cost, move |sink| {
            let mut walk = TermWalk {
                work,
                held: 0,
                sink,
                at,
                kind: place.kind,
                places,
                columns,
                own: own.clone(),
                all,
                number: 0,
                group: 0,
                rows: Vec::new(),
                groups: Vec::new(),
                done: Ok(()),
            };
            at.segment.source.inverted.walk_values(place.field.id, &mut walk)?;
            std::mem::replace(&mut walk.done, Ok(()))?;
            walk.flush()
        }))
    }
}

/// Gathers the rows of terms and tells their numbers.
struct TermWalk<'a, 's> {
    /// Holds the numbers of all rows, and those of the rows that are gathered.
    work: QueryContext,
    /// Rows that are held so.
    held: usize,
    sink: &'s mut dyn Sink,
    at: SegmentRows<'a>,
    kind: ValueKind,
    /// Places of the columns that are read, and their numbers in all rows.
    places: &'a [usize],
    columns: Vec<ArrayRef>,
    /// The part, of so many rows.
    own: Range<u32>,
    all: u32,
    /// Number of the term.
    number: u32,
    group: u32,
    rows: Vec<u32>,
    /// The group of each row.
    groups: Vec<u32>,
    done: Result<()>,
}

impl TermWalk<'_, '_> {
    fn flush(&mut self) -> Result<()> {
        let rows = UInt32Array::from(std::mem::take(&mut self.rows));
        let taken = self.columns.iter().map(|column| take(column, &rows, None));
        let taken: Vec<ArrayRef> = taken.collect::<Result<_, _>>()?;
        let columns = self.at.placed(self.places, &taken);
        self.sink.grouped(&self.at.batch(rows.values(), &columns), &self.groups)?;
        self.groups.clear();
        Ok(())
    }

    /// Tells the sink of a term; whether its rows are wanted.
    fn tell(&mut self, value: &[u8], rows: u32) -> Result<bool> {
        if self.rows.len() >= BATCH_ROWS {
            self.flush()?;
        }
        // Spread evenly, and the same each time.
        let share = (u64::from(self.number.wrapping_mul(0x9e37_79b9)) * u64::from(self.all)) >> 32;
        self.number = self.number.wrapping_add(1);
        if !self.own.contains(&(share as u32)) {
            return Ok(false);
        }
        let group = self.sink.term(self.kind, value, u64::from(rows))?;
        self.group = group.unwrap_or(self.group);
        if group.is_some() {
            self.hold(self.rows.len() + rows as usize)?;
        }
        Ok(group.is_some())
    }

    /// Accounts for so many rows that are gathered at once, with their groups and numbers.
    fn hold(&mut self, rows: usize) -> Result<()> {
        let row_bytes = 2 * size_of::<u32>() + self.columns.len() * size_of::<u64>();
        self.work.hold(rows.saturating_sub(self.held) * row_bytes)?;
        self.held = self.held.max(rows);
        Ok(())
    }
}

impl ValueWalker for TermWalk<'_, '_> {
    fn value(&mut self, value: &[u8], rows: u32) -> Walk {
        if self.rows.len() >= BATCH_ROWS && self.at.stopped() {
            return Walk::Stop;
        }
        match self.tell(value, rows) {
            Ok(true) => Walk::Read,
            Ok(false) => Walk::Pass,
            Err(error) => {
                self.done = Err(error);
                Walk::Stop
            }
        }
    }

    fn rows(&mut self, rows: &[u32]) {
        self.rows.extend_from_slice(rows);
        self.groups.extend(std::iter::repeat_n(self.group, rows.len()));
    }
}
