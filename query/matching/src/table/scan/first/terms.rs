//! The first rows by a string or an integer: found by walking the field's terms in their order.
//!
//! The values of a keyword field are terms, and so are integers of which there are not many; the dictionary has them
//! sorted. So the first rows by the field are the rows of its first terms, whose keys these terms are: none need be read.
//! What one part of the scan has found tells the others at which term to stop. Where the matches have so few of the first
//! terms that the walk would cost more than reading their keys, it is given up.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewArray};
use millrace_dsl::sort::Mode;
use millrace_storage::mapping::PathId;
use millrace_work::error::Result;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::score::collect::Matches;
use crate::score::prepare::Source;
use crate::score::reader::RowPostings;
use crate::table::keys::{Fill, Key, KeyKind, KeySource};

/// Terms and rows that are looked at in any case.
const LEAST_STEPS: u64 = 4_096;

/// How many rows are wanted in which order.
#[derive(Clone, Debug)]
pub(super) struct TermOrder {
    /// Rows wanted.
    pub limit: usize,
    /// Whether the greatest term comes first.
    pub descending: bool,
    /// Whether rows of one term are ordered by their addresses alone.
    pub by_address: bool,
    /// A term that no row behind is wanted of, as parts of the scan have found it.
    pub last: Arc<Mutex<Option<Vec<u8>>>>,
}

impl TermOrder {
    fn is_behind(&self, term: &[u8], last: &[u8]) -> bool {
        if self.descending { term < last } else { term > last }
    }

    /// Whether no row of a term is wanted, as far as is known.
    fn is_beyond(&self, term: &[u8]) -> bool {
        self.last.lock().as_ref().is_some_and(|last| self.is_behind(term, last))
    }

    /// Tells that no row behind those of a term is wanted.
    fn end_at(&self, term: &[u8]) {
        let mut last = self.last.lock();
        if last.as_ref().is_none_or(|last| self.is_behind(last, term)) {
            *last = Some(term.to_vec());
        }
    }
}

/// Rows that can be among the first.
pub(super) struct First {
    /// The rows.
    pub rows: RoaringBitmap,
    /// What a column has in each of them, where no row has several values.
    pub values: Option<(PathId, ArrayRef)>,
}

/// Whether a segment has the values of a key as terms.
pub(super) fn are_known(source: &Source, of: &KeySource) -> bool {
    of.terms.is_some_and(|path| source.inverted.has_exact(path))
}

/// Finds those of `rows` that can be among the first by a key; `None` where any may be.
pub(super) fn first_rows(
    source: &Source,
    key: &Key,
    index: usize,
    order: &TermOrder,
    rows: &RoaringBitmap,
) -> Result<Option<First>> {
    let Some(Walk { own, path, list }) = Walk::new(source, key, index, order) else { return Ok(None) };
    let (Some(start), Some(end)) = (rows.min(), rows.max()) else { return Ok(None) };
    if rows.len() <= order.limit as u64 {
        return Ok(None);
    }
    let mut found = Found {
        rows,
        span: (start, end),
        order,
        first: RoaringBitmap::new(),
        terms: Vec::new(),
        steps: rows.len().max(LEAST_STEPS),
        complete: false,
    };
    let having = source.inverted.exists_count(path)?;
    if having < source.reader.rows() {
        if key.fill != Fill::Null {
            return Ok(None);
        }
        if key.nulls_first {
            found.without(source, path)?;
        }
    }
    if !found.complete {
        source
            .inverted
            .for_each_rows(path, None, order.descending, &mut |term, rows| found.add(term, rows))?;
    }
    // With too few rows that have a term, or too many steps, all keys are read.
    if !found.complete {
        return Ok(None);
    }
    let values = if list || key.kind != KeyKind::Str {
        None
    } else {
        found.values().map(|values| (own.column, values))
    };
    Ok(Some(First { rows: found.first, values }))
}

/// Finds rows that can be among the first by a key, of matches that are not all known: the rows of the first terms are
/// looked for among them. `None` where terms do not tell, and where so few rows match that all may as well be found.
pub(super) fn first_matches(
    source: &Source,
    key: &Key,
    index: usize,
    order: &TermOrder,
    matches: &Matches<'_>,
    range: &Range<u32>,
) -> Result<Option<RoaringBitmap>> {
    let Some(Walk { path, .. }) = Walk::new(source, key, index, order) else { return Ok(None) };
    let (Some(likely), all) = (matches.likely()?, u64::from(source.reader.rows())) else { return Ok(None) };
    if (order.limit as u64).saturating_mul(all) > likely.saturating_mul(LEAST_STEPS)
        || u64::from(source.inverted.exists_count(path)?) < all
    {
        return Ok(None);
    }
    let (mut first, mut asked, mut complete) = (RoaringBitmap::new(), RoaringBitmap::new(), false);
    let (mut wanted, mut steps) = (order.limit as u64 * 8, 4 * LEAST_STEPS);
    let mut failure = None;
    source.inverted.for_each_rows(path, None, order.descending, &mut |term, rows| {
        let beyond = order.is_beyond(term);
        if !beyond {
            let mut row = rows.seek_row(range.start);
            steps = steps.saturating_sub(1);
            while row < range.end && steps > 0 {
                asked.insert(row);
                row = rows.seek_row(row + 1);
                steps -= 1;
            }
            // Of a term whose rows are too many some may not have been asked for.
            if steps == 0 {
                return ControlFlow::Break(());
            }
            if asked.len() < wanted {
                return ControlFlow::Continue(());
            }
        }
        // Also where another part has told the end, the rows of the terms before it have still to be looked for.
        match matches.among(&asked) {
            Ok(found) => first |= found,
            Err(error) => failure = Some(error),
        }
        asked.clear();
        wanted *= 2;
        complete = beyond || first.len() >= order.limit as u64;
        if complete {
            order.end_at(term);
        }
        match complete || failure.is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(complete.then_some(first)),
    }
}

/// The terms of a key in a segment.
struct Walk<'k> {
    own: &'k KeySource,
    path: PathId,
    /// Whether rows may have several.
    list: bool,
}

impl<'k> Walk<'k> {
    /// `None` where there are none, or not the first of a row's terms counts.
    fn new(source: &Source, key: &'k Key, index: usize, order: &TermOrder) -> Option<Self> {
        let own = key.sources.get(index).and_then(Option::as_ref)?;
        let path = own.terms.filter(|path| source.inverted.has_exact(*path))?;
        let counts = matches!((key.mode, order.descending), (Mode::Min, false) | (Mode::Max, true));
        let list = source.reader.is_list(own.column);
        (counts || !list).then_some(Self { own, path, list })
    }
}

/// Rows that were found.
struct Found<'a> {
    rows: &'a RoaringBitmap,
    /// The first and the last of them.
    span: (u32, u32),
    order: &'a TermOrder,
    first: RoaringBitmap,
    /// The terms that rows were found at, with these.
    terms: Vec<(Vec<u8>, Vec<u32>)>,
    /// Terms and rows that may still be looked at.
    steps: u64,
    /// Whether all that can be among the first are there.
    complete: bool,
}

impl Found<'_> {
    /// Adds the rows of a term; breaks when there are enough, or nothing more should be tried.
    fn add(&mut self, term: &[u8], rows: &mut dyn RowPostings) -> ControlFlow<()> {
        if self.order.is_beyond(term) {
            self.complete = true;
            return ControlFlow::Break(());
        }
        // A term counts, whether or not it has rows between the first and the last that matter.
        if self.step().is_break() {
            return ControlFlow::Break(());
        }
        let mut own = Vec::new();
        let mut row = rows.seek_row(self.span.0);
        // The next of both, in turns.
        let mut wanted = self.rows.iter();
        let mut next = wanted.next();
        while row <= self.span.1 && !self.complete {
            if self.step().is_break() {
                return ControlFlow::Break(());
            }
            if next.is_some_and(|next| next < row) {
                wanted.advance_to(row);
                next = wanted.next();
            }
            let Some(candidate) = next else { break };
            if candidate > row {
                row = rows.seek_row(candidate);
                continue;
            }
            if self.first.insert(row) {
                own.push(row);
                self.complete = self.order.by_address && self.is_enough();
            }
            row = rows.seek_row(row + 1);
        }
        self.complete |= self.is_enough();
        if !own.is_empty() {
            self.terms.push((term.to_vec(), own));
        }
        if !self.complete {
            return ControlFlow::Continue(());
        }
        self.order.end_at(term);
        ControlFlow::Break(())
    }

    /// Breaks when nothing more should be tried.
    fn step(&mut self) -> ControlFlow<()> {
        match self.steps.checked_sub(1) {
            Some(left) => {
                self.steps = left;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }

    fn is_enough(&self) -> bool {
        self.first.len() >= self.order.limit as u64
    }

    /// Adds the rows without a term.
    fn without(&mut self, source: &Source, path: PathId) -> Result<()> {
        let mut having = source.inverted.exists_rows(path)?;
        let mut lacks = |row: &u32| having.as_mut().is_none_or(|having| having.seek_row(*row) != *row);
        let wanted = if self.order.by_address { self.order.limit } else { usize::MAX };
        self.first.extend(self.rows.iter().filter(|row| lacks(row)).take(wanted));
        self.complete = self.is_enough();
        Ok(())
    }

    /// Lists the terms of the rows, which have one or none each.
    fn values(&self) -> Option<ArrayRef> {
        let mut values = BTreeMap::new();
        for (term, rows) in &self.terms {
            let term = std::str::from_utf8(term).ok()?;
            values.extend(rows.iter().map(|row| (*row, term)));
        }
        Some(Arc::new(self.first.iter().map(|row| values.get(&row).copied()).collect::<StringViewArray>()))
    }
}
