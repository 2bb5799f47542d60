//! Conditions of which so many must be fulfilled.

use std::sync::Arc;

use millrace_segment::WindowBits;
use millrace_work::error::{Error, Result};

use crate::bits::{NO_ROWS, is_empty, subtract, unite};
use crate::condition::{Condition, RowCount, SharedCondition};
use crate::failure::Failure;
use crate::match_all::MatchNoneScorer;
use crate::max_score::{MAX_RANKED, MaxScore};
use crate::optional::Optional;
use crate::ranked::RankedRows;
use crate::reader::InvertedIndex;
use crate::scorer_union::{ScoreCombiner, UnionScorer};
use crate::term_windows::RowCondition;
use crate::windows::{BoxFilter, RowFilter};
use crate::{BoxScorer, END};

/// At least so many of some parts; the scores of those that match add up.
#[derive(Debug)]
pub struct AtLeast {
    /// Not 0.
    required: usize,
    parts: Vec<SharedCondition>,
}

impl AtLeast {
    /// Joins parts; none is needed of parts that only score.
    pub fn of(required: usize, parts: Vec<SharedCondition>) -> SharedCondition {
        match required {
            0 => Arc::new(Optional(Self::of(1, parts))),
            required => Arc::new(Self { required, parts }),
        }
    }
}

impl Condition for AtLeast {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        let mut scorers = matching(&self.parts, inverted, rows)?;
        Ok(match scorers.len() {
            count if count < self.required => Box::new(MatchNoneScorer),
            1 => scorers.remove(0),
            count if self.required == 1 && count <= MAX_RANKED => Box::new(MaxScore::new(scorers)),
            _ => Box::new(UnionScorer::<Sum>::new(scorers, self.required, ())),
        })
    }
    fn best_first<'a>(
        &'a self,
        inverted: &'a dyn InvertedIndex,
        rows: u32,
        failure: &Failure,
    ) -> Result<BoxScorer<'a>> {
        let words = self.any_of().unwrap_or_default();
        match RankedRows::open(words, RowCondition::Any, Vec::new(), inverted, rows, failure)? {
            Some(ranked) => Ok(Box::new(ranked)),
            None => self.scorer(inverted, rows),
        }
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        let parts = filters(&self.parts, inverted, rows)?;
        Ok(match self.required {
            1 => Box::new(DisjunctionScorer(parts)),
            required => Box::new(MinimumShouldMatch { required, parts }),
        })
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        match self.any_of() {
            Some([only]) => only.known_count(of),
            _ => Ok(None),
        }
    }
    fn failure(&self) -> Option<Error> {
        self.parts.iter().find_map(|part| part.failure())
    }
    fn is_unscored(&self) -> bool {
        self.parts.iter().all(|part| part.is_unscored())
    }
    fn any_of(&self) -> Option<&[SharedCondition]> {
        (self.required == 1).then_some(&self.parts)
    }
}

/// Opens the scorers of those parts that match anything.
pub(super) fn matching<'a>(
    parts: &'a [SharedCondition],
    inverted: &'a dyn InvertedIndex,
    rows: u32,
) -> Result<Vec<BoxScorer<'a>>> {
    let mut scorers = Vec::with_capacity(parts.len());
    for part in parts {
        let part = part.scorer(inverted, rows)?;
        if part.doc() != END {
            scorers.push(part);
        }
    }
    Ok(scorers)
}

/// Opens the filters of parts.
pub(super) fn filters<'a>(
    parts: &'a [SharedCondition],
    inverted: &'a dyn InvertedIndex,
    rows: u32,
) -> Result<Vec<BoxFilter<'a>>> {
    parts.iter().map(|part| part.filter(inverted, rows)).collect()
}

/// The sum of the scores of parts.
#[derive(Default)]
struct Sum(f64);

impl ScoreCombiner for Sum {
    type Key = ();

    fn add(&mut self, score: f32) {
        self.0 += f64::from(score);
    }
    fn total(&self, _by: ()) -> f32 {
        self.0 as f32
    }
}

/// Scorer of the rows that any of some parts matches.
pub(super) struct DisjunctionScorer<'a>(pub Vec<BoxFilter<'a>>);

impl RowFilter for DisjunctionScorer<'_> {
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

/// Scorer of the rows that at least so many of some parts match.
struct MinimumShouldMatch<'a> {
    required: usize,
    parts: Vec<BoxFilter<'a>>,
}

impl RowFilter for MinimumShouldMatch<'_> {
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
