//! Finding rows without scores, a window of rows at a time.
//!
//! Where only the rows matter (counting, filters, sorting by a field) a predicate is evaluated as bits,
//! [`WINDOW_ROWS`] at a time: a part clears the bits of those candidates that it does not match. Clauses
//! combine words instead of rows, a window without candidates is left at once, and ranges decode
//! nothing where other clauses leave nothing. Parts that have no such form (phrases, nested clauses,
//! least scores) ask their scorers about the candidates that are left.

use std::ops::Range;

use millrace_storage::segment::{PagedRange, WINDOW_ROWS, WindowBits};
use millrace_work::error::Result;
use roaring::RoaringBitmap;
use roaring::bitmap::IntoIter;
use tantivy::postings::Postings;

use super::bits::{
    FEW, NO_ROWS, count, first_from, intersect, is_empty, retain, set, subtract, unite, up_to,
};
use super::build::scorer;
use super::prepare::Prepared;
use super::reader::{Inverted, RowPostings};
use super::{END, Scorer};

/// Rows of a segment, window by window. Targets and windows do not descend.
pub(crate) trait RowFilter: Send {
    /// Returns a row at or behind `target`: none before it matches.
    fn next(&mut self, target: u32) -> u32;
    /// Clears the bits of the rows from `first` on that do not match.
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()>;
    /// Estimates how many rows match.
    fn cost(&self) -> u64;
}

pub(super) type BoxFilter<'a> = Box<dyn RowFilter + 'a>;

/// The windows with matching rows of a segment.
pub(crate) struct Windows<'a> {
    filter: BoxFilter<'a>,
    /// Row behind the last.
    end: u32,
    at: u32,
}

impl<'a> Windows<'a> {
    /// Opens a predicate over a segment of `rows` rows.
    pub(crate) fn open(prepared: &'a Prepared, inverted: &'a dyn Inverted, rows: u32) -> Result<Self> {
        Ok(Self { filter: filter(prepared, inverted, rows)?, end: rows, at: 0 })
    }

    /// Stays within rows, which begin where a window does.
    pub(crate) fn within(self, rows: &Range<u32>) -> Self {
        Self { end: self.end.min(rows.end), at: rows.start, ..self }
    }

    /// Estimates how many rows match.
    pub(crate) fn cost(&self) -> u64 {
        self.filter.cost()
    }

    /// Returns a row at or behind `target`, which does not descend: none before it matches.
    pub(crate) fn next_row(&mut self, target: u32) -> u32 {
        self.filter.next(target)
    }

    /// Clears the bits of the rows from `first` on that do not match. Windows do not descend.
    pub(crate) fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        self.filter.keep(first, bits)
    }

    /// Goes to the first window at or behind the current one that has matches, and returns its first
    /// row and its bits.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, WindowBits)>> {
        while self.at < self.end {
            let next = self.filter.next(self.at);
            if next >= self.end {
                break;
            }
            let first = next - next % WINDOW_ROWS;
            let mut bits = up_to(self.end - first);
            self.filter.keep(first, &mut bits)?;
            self.at = first.saturating_add(WINDOW_ROWS);
            if !is_empty(&bits) {
                return Ok(Some((first, bits)));
            }
        }
        self.at = self.end;
        Ok(None)
    }
}

/// Whether the rows of a predicate are found by its scorer, one by one.
pub(crate) fn by_scorer(prepared: &Prepared) -> bool {
    match prepared {
        Prepared::Intervals(_) | Prepared::Nested(_) | Prepared::Phrase { .. } | Prepared::Spans(_) => true,
        Prepared::Scaled { least, .. } => least.is_some(),
        Prepared::FunctionScore { combination, .. } => combination.min_score.is_some(),
        _ => false,
    }
}

/// Opens a part.
fn filter<'a>(prepared: &'a Prepared, inverted: &'a dyn Inverted, rows: u32) -> Result<BoxFilter<'a>> {
    let of = |postings: Option<Box<dyn RowPostings>>| -> BoxFilter<'a> {
        match postings {
            Some(postings) => Box::new(Listed(postings)),
            None => Box::new(Nothing),
        }
    };
    Ok(match prepared {
        // Optional clauses only score.
        Prepared::All(_) | Prepared::AtLeast(0, _) => Box::new(Everything(rows)),
        Prepared::None => Box::new(Nothing),
        Prepared::Exact { path, value, .. } => of(inverted.exact_rows(*path, value)?),
        Prepared::Exists { path, .. } => of(inverted.exists_rows(*path)?),
        Prepared::Text { path, term, .. } => match inverted.text(*path) {
            Some(text) => of(text.row_postings(term)?),
            None => Box::new(Nothing),
        },
        Prepared::Synonyms { path, terms, .. } => {
            let mut parts: Vec<BoxFilter<'a>> = Vec::with_capacity(terms.len());
            if let Some(text) = inverted.text(*path) {
                for term in terms.iter() {
                    parts.push(of(text.row_postings(term)?));
                }
            }
            Box::new(Any(parts))
        }
        Prepared::Rows(found, _) => Box::new(Set::new(found)),
        Prepared::Range { rows: range, .. } => Box::new(InRange(range)),
        Prepared::And(parts) => return all_of(parts, inverted, rows),
        Prepared::AtLeast(1, parts) | Prepared::DisMax(_, parts) => {
            Box::new(Any(filters(parts, inverted, rows)?))
        }
        Prepared::AtLeast(required, parts) => {
            Box::new(Several { required: *required, parts: filters(parts, inverted, rows)? })
        }
        Prepared::Not(part) => {
            let without = vec![filter(part, inverted, rows)?];
            Box::new(All { parts: vec![Box::new(Everything(rows))], without })
        }
        Prepared::Constant(_, part)
        | Prepared::Boosting { positive: part, .. }
        | Prepared::Scaled { least: None, part, .. } => return filter(part, inverted, rows),
        Prepared::FunctionScore { base, combination, .. } if combination.min_score.is_none() => {
            return filter(base, inverted, rows);
        }
        Prepared::FunctionScore { .. }
        | Prepared::Intervals(_)
        | Prepared::Nested(_)
        | Prepared::Phrase { .. }
        | Prepared::Scaled { .. }
        | Prepared::Spans(_) => Box::new(Driven(scorer(prepared, inverted, rows)?)),
    })
}

fn filters<'a>(parts: &'a [Prepared], inverted: &'a dyn Inverted, rows: u32) -> Result<Vec<BoxFilter<'a>>> {
    parts.iter().map(|part| filter(part, inverted, rows)).collect()
}

/// Opens what all of some parts match.
pub(super) fn all_of<'a>(
    all: impl IntoIterator<Item = &'a Prepared>,
    inverted: &'a dyn Inverted,
    rows: u32,
) -> Result<BoxFilter<'a>> {
    let (mut parts, mut without) = (Vec::new(), Vec::new());
    for part in all {
        let (into, part) = match part {
            Prepared::AtLeast(0, _) => continue,
            Prepared::Not(part) => (&mut without, part.as_ref()),
            part => (&mut parts, part),
        };
        into.push((by_scorer(part), filter(part, inverted, rows)?));
    }
    // What leaves the fewest candidates comes first, what is dear to ask last.
    let in_order = |mut parts: Vec<(bool, BoxFilter<'a>)>| {
        parts.sort_by_key(|(dear, part)| (*dear, part.cost()));
        parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>()
    };
    let (mut parts, without) = (in_order(parts), in_order(without));
    match parts.pop() {
        None => parts.push(Box::new(Everything(rows))),
        Some(only) if parts.is_empty() && without.is_empty() => return Ok(only),
        Some(last) => parts.push(last),
    }
    Ok(Box::new(All { parts, without }))
}

/// Every row.
struct Everything(u32);

impl RowFilter for Everything {
    fn next(&mut self, target: u32) -> u32 {
        target
    }
    fn keep(&mut self, _first: u32, _bits: &mut WindowBits) -> Result<()> {
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.0.into()
    }
}

/// No row.
struct Nothing;

impl RowFilter for Nothing {
    fn next(&mut self, _target: u32) -> u32 {
        END
    }
    fn keep(&mut self, _first: u32, bits: &mut WindowBits) -> Result<()> {
        *bits = NO_ROWS;
        Ok(())
    }
    fn cost(&self) -> u64 {
        0
    }
}

/// The rows of a posting list.
struct Listed(Box<dyn RowPostings>);

impl RowFilter for Listed {
    fn next(&mut self, target: u32) -> u32 {
        self.0.seek_row(target)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        if count(bits) <= FEW {
            retain(first, bits, |row| self.0.seek_row(row) == row);
        } else {
            let mut found = NO_ROWS;
            self.0.fill(first, &mut found);
            intersect(bits, &found);
        }
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.0.cost()
    }
}

/// The rows of a bitmap.
struct Set<'a> {
    rows: &'a RoaringBitmap,
    ahead: IntoIter,
    next: Option<u32>,
    cost: u64,
}

impl<'a> Set<'a> {
    fn new(rows: &'a RoaringBitmap) -> Self {
        let mut ahead = rows.clone().into_iter();
        let next = ahead.next();
        Self { rows, ahead, next, cost: rows.len() }
    }

    fn seek(&mut self, target: u32) -> u32 {
        if self.next.is_some_and(|next| next < target) {
            self.ahead.advance_to(target);
            self.next = self.ahead.next();
        }
        self.next.unwrap_or(END)
    }
}

impl RowFilter for Set<'_> {
    fn next(&mut self, target: u32) -> u32 {
        self.seek(target)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        let end = first.saturating_add(WINDOW_ROWS);
        if self.seek(first) >= end {
            *bits = NO_ROWS;
        } else if count(bits) <= FEW {
            retain(first, bits, |row| self.rows.contains(row));
        } else if !self.rows.contains_range(first..end) {
            let mut found = NO_ROWS;
            while let Some(row) = self.next.filter(|row| *row < end) {
                set(&mut found, row - first);
                self.next = self.ahead.next();
            }
            intersect(bits, &found);
        }
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.cost
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

/// The rows of a scorer.
struct Driven<'a>(Box<dyn Scorer + 'a>);

impl RowFilter for Driven<'_> {
    fn next(&mut self, target: u32) -> u32 {
        self.0.seek(target)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        let end = first.saturating_add(WINDOW_ROWS);
        let mut found = NO_ROWS;
        let mut candidate = first_from(bits, 0);
        while let Some(at) = candidate {
            let row = self.0.seek(first + at);
            if row >= end {
                break;
            }
            // The next candidate is this row, or lies behind it.
            candidate = first_from(bits, row - first);
            if candidate == Some(row - first) {
                set(&mut found, row - first);
                candidate = first_from(bits, row - first + 1);
            }
        }
        *bits = found;
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.0.cost()
    }
}

/// What all of some parts match, and none of others.
struct All<'a> {
    /// At least one; the one with the fewest rows first.
    parts: Vec<BoxFilter<'a>>,
    without: Vec<BoxFilter<'a>>,
}

impl RowFilter for All<'_> {
    fn next(&mut self, target: u32) -> u32 {
        self.parts.iter_mut().fold(target, |target, part| if target == END { END } else { part.next(target) })
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        for part in &mut self.parts {
            part.keep(first, bits)?;
            if is_empty(bits) {
                return Ok(());
            }
        }
        for part in &mut self.without {
            let mut found = *bits;
            part.keep(first, &mut found)?;
            subtract(bits, &found);
        }
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.parts.iter().map(|part| part.cost()).min().unwrap_or(0)
    }
}

/// What any of some parts matches.
struct Any<'a>(Vec<BoxFilter<'a>>);

impl RowFilter for Any<'_> {
    fn next(&mut self, target: u32) -> u32 {
        self.0.iter_mut().map(|part| part.next(target)).min().unwrap_or(END)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        let (mut left, mut found) = (*bits, NO_ROWS);
        for part in &mut self.0 {
            // Rows that were found need not be looked for again.
            let mut here = left;
            part.keep(first, &mut here)?;
            subtract(&mut left, &here);
            unite(&mut found, &here);
        }
        *bits = found;
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.0.iter().map(|part| part.cost()).sum()
    }
}

/// What at least so many of some parts match.
struct Several<'a> {
    required: usize,
    parts: Vec<BoxFilter<'a>>,
}

impl RowFilter for Several<'_> {
    fn next(&mut self, target: u32) -> u32 {
        if self.parts.len() < self.required {
            return END;
        }
        // Before the row that so many parts have come to, too few match.
        let mut rows: Vec<u32> = self.parts.iter_mut().map(|part| part.next(target)).collect();
        rows.sort_unstable();
        self.required.checked_sub(1).and_then(|at| rows.get(at)).copied().unwrap_or(target)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        // Digits of a binary number a row: how many parts match it.
        let mut digits: Vec<WindowBits> = Vec::new();
        for part in &mut self.parts {
            let mut carry = *bits;
            part.keep(first, &mut carry)?;
            for digit in &mut digits {
                for (digit, carry) in digit.iter_mut().zip(&mut carry) {
                    let both = *digit & *carry;
                    *digit ^= *carry;
                    *carry = both;
                }
            }
            if !is_empty(&carry) {
                digits.push(carry);
            }
        }
        // At least `required` is to be greater than the number below it, from the highest digit down.
        let below = self.required.saturating_sub(1);
        if below >> digits.len() > 0 {
            *bits = NO_ROWS;
            return Ok(());
        }
        let (mut greater, mut equal) = (NO_ROWS, *bits);
        for (place, digit) in digits.iter().enumerate().rev() {
            for ((greater, equal), digit) in greater.iter_mut().zip(&mut equal).zip(digit) {
                match below >> place & 1 {
                    0 => {
                        *greater |= *equal & digit;
                        *equal &= !digit;
                    }
                    _ => *equal &= digit,
                }
            }
        }
        *bits = greater;
        Ok(())
    }
    fn cost(&self) -> u64 {
        let costs: u64 = self.parts.iter().map(|part| part.cost()).sum();
        costs / self.required.max(1) as u64
    }
}

/// Rows of postings, without frequencies.
pub(crate) struct RowsOf<P>(pub P);

impl<P: Postings> RowPostings for RowsOf<P> {
    fn seek_row(&mut self, target: u32) -> u32 {
        // Postings must not be asked to seek backwards.
        match self.0.doc() {
            doc if doc >= target => doc,
            _ => self.0.seek(target),
        }
    }
    fn fill(&mut self, first: u32, bits: &mut WindowBits) {
        self.fill_often(first, bits, &mut Vec::new());
    }
    fn fill_often(&mut self, first: u32, bits: &mut WindowBits, often: &mut Vec<(u32, u32)>) {
        let end = first.saturating_add(WINDOW_ROWS).min(END);
        let mut row = self.seek_row(first);
        while row < end {
            set(bits, row - first);
            often.extend(Some((row, self.0.term_freq())).filter(|(_, freq)| *freq > 1));
            row = self.0.advance();
        }
    }
    fn freq(&self) -> u32 {
        self.0.term_freq()
    }
    fn cost(&self) -> u64 {
        self.0.size_hint().into()
    }
}

#[cfg(test)]
mod tests;
