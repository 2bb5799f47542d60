//! The first rows by a string: found by walking the field's terms in their order.
//!
//! The values of a keyword field are terms, and the dictionary has them sorted. So the first rows by
//! the field are the rows of its first terms, and the keys of all other rows need not be read. Where the
//! matches have so few of the first terms that the walk would cost more than reading their keys, it is
//! given up.

use std::ops::ControlFlow;

use millrace_storage::mapping::PathId;
use roaring::RoaringBitmap;

use crate::dsl::sort::Mode;
use crate::error::Result;
use crate::score::END;
use crate::score::prepare::Source;
use crate::score::reader::RowPostings;
use crate::table::keys::{Fill, Key};

/// Terms and rows that are looked at in any case.
const LEAST_STEPS: u64 = 4_096;

/// How many rows are wanted in which order.
#[derive(Clone, Copy, Debug)]
pub(super) struct TermOrder {
    /// Rows wanted.
    pub limit: usize,
    /// Whether the greatest term comes first.
    pub descending: bool,
    /// Whether rows of one term are ordered by their addresses alone.
    pub by_address: bool,
}

/// Finds those of `rows` that can be among the first by a key; `None` where any may be.
pub(super) fn first_rows(
    source: &Source,
    key: &Key,
    index: usize,
    order: TermOrder,
    rows: &RoaringBitmap,
) -> Result<Option<RoaringBitmap>> {
    let Some(own) = key.sources.get(index).and_then(Option::as_ref) else { return Ok(None) };
    let Some(path) = own.terms.filter(|path| source.inverted.has_exact(*path)) else { return Ok(None) };
    // A row comes up at the first of its terms: that must be the one that counts.
    let counts = matches!((key.mode, order.descending), (Mode::Min, false) | (Mode::Max, true));
    if rows.len() <= order.limit as u64 || (!counts && source.reader.is_list(own.column)) {
        return Ok(None);
    }
    let mut found = Found { rows, first: RoaringBitmap::new(), order, steps: rows.len().max(LEAST_STEPS) };
    let complete = source.inverted.exists_count(path)? >= source.reader.rows();
    if !complete && key.fill != Fill::Null {
        return Ok(None);
    }
    if key.nulls_first && !complete && found.without(source, path)? {
        return Ok(Some(found.first));
    }
    source.inverted.for_each_rows(path, None, order.descending, &mut |term| found.add(term))?;
    // With too few rows that have a term, or too many steps, all keys are read.
    Ok((found.first.len() >= order.limit as u64).then_some(found.first))
}

/// Rows that were found.
struct Found<'a> {
    rows: &'a RoaringBitmap,
    first: RoaringBitmap,
    order: TermOrder,
    /// Terms and rows that may still be looked at.
    steps: u64,
}

impl Found<'_> {
    /// Adds the rows of a term; breaks when there are enough, or nothing more should be tried.
    fn add(&mut self, term: &mut dyn RowPostings) -> ControlFlow<()> {
        let mut row = term.seek_row(0);
        while row < END {
            let Some(left) = self.steps.checked_sub(1) else { return ControlFlow::Break(()) };
            self.steps = left;
            if self.rows.contains(row) {
                self.first.insert(row);
                if self.order.by_address && self.first.len() >= self.order.limit as u64 {
                    return ControlFlow::Break(());
                }
            }
            row = term.seek_row(row + 1);
        }
        match self.first.len() >= self.order.limit as u64 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Adds the rows without a term; returns whether these are enough.
    fn without(&mut self, source: &Source, path: PathId) -> Result<bool> {
        let mut having = source.inverted.exists_rows(path)?;
        let mut lacks = |row: &u32| having.as_mut().is_none_or(|having| having.seek_row(*row) != *row);
        let wanted = if self.order.by_address { self.order.limit } else { usize::MAX };
        self.first.extend(self.rows.iter().filter(|row| lacks(row)).take(wanted));
        Ok(self.first.len() >= self.order.limit as u64)
    }
}
