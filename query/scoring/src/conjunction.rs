//! Conditions that must all be fulfilled, beside some that must not be, and some that only score.

use std::sync::Arc;

use millrace_segment::WindowBits;
use millrace_work::error::{Error, Result};

use crate::bits::{is_empty, subtract};
use crate::condition::{Condition, Role, RowCount, SharedCondition};
use crate::failure::Failure;
use crate::match_all::{EveryRow, EveryWindow, MatchAllScorer};
use crate::negation::Exclusion;
use crate::optional::WithOptional;
use crate::ranked::RankedRows;
use crate::reader::InvertedIndex;
use crate::term_windows::RowCondition;
use crate::windows::{BoxFilter, RowFilter};
use crate::{BoxScorer, END, Scorer, bound_of};

/// All of some parts; their scores add up.
#[derive(Debug)]
pub struct ConjunctionScorer {
    pub(super) parts: Vec<SharedCondition>,
}

impl ConjunctionScorer {
    /// Joins parts; the parts of those that are such themselves become its own, so that the one with the fewest rows of all
    /// leads. Parts that every row fulfils and that add nothing to scores are left out.
    pub fn of(parts: Vec<SharedCondition>) -> SharedCondition {
        let mut own = Vec::with_capacity(parts.len());
        for part in parts {
            match part.all_of() {
                Some(inner) => own.extend_from_slice(inner),
                None => own.push(part),
            }
        }
        own.retain(|part| !(part.is_everything() && part.is_unscored()));
        if own.is_empty() { Arc::new(MatchAllScorer(0.0)) } else { Arc::new(Self { parts: own }) }
    }

    /// Returns the only part that decides which rows match, if there is one: optional ones only score.
    fn deciding(&self) -> Option<&SharedCondition> {
        if let [only] = self.parts.as_slice() {
            return Some(only);
        }
        let mut deciding = self.parts.iter().filter(|part| !matches!(part.role(), Role::Optional(_)));
        match (deciding.next(), deciding.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }
}

impl Condition for ConjunctionScorer {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        let (mut required, mut excluded, mut optional) = (Vec::new(), Vec::new(), Vec::new());
        for part in &self.parts {
            let (into, part) = match part.role() {
                Role::Required => (&mut required, part),
                Role::Excluded(part) => (&mut excluded, part),
                Role::Optional(part) => (&mut optional, part),
            };
            into.push(part.scorer(inverted, rows)?);
        }
        let mut base: BoxScorer<'a> = match required.len() {
            0 => Box::new(EveryRow::new(rows, 0.0)),
            1 => required.remove(0),
            _ => Box::new(Conjunction::new(required)),
        };
        for part in excluded {
            base = Box::new(Exclusion::new(base, part));
        }
        for part in optional {
            base = Box::new(WithOptional::new(base, part));
        }
        Ok(base)
    }

    fn is_everything(&self) -> bool {
        self.parts.iter().all(|part| part.is_everything())
    }

    fn best_first<'a>(
        &'a self,
        inverted: &'a dyn InvertedIndex,
        rows: u32,
        failure: &Failure,
    ) -> Result<BoxScorer<'a>> {
        let (others, scoring): (Vec<_>, Vec<_>) = self.parts.iter().partition(|part| part.is_unscored());
        let words = match scoring.as_slice() {
            [only] => only.any_of(),
            _ => None,
        };
        let ranked = match words {
            Some(words) => RankedRows::open(words, RowCondition::Any, others, inverted, rows, failure)?,
            None => RankedRows::open(scoring, RowCondition::All, others, inverted, rows, failure)?,
        };
        match ranked {
            Some(ranked) => Ok(Box::new(ranked)),
            None => self.scorer(inverted, rows),
        }
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        filter(&self.parts, inverted, rows)
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        self.deciding().map_or(Ok(None), |part| part.known_count(of))
    }
    fn failure(&self) -> Option<Error> {
        self.parts.iter().find_map(|part| part.failure())
    }
    fn is_unscored(&self) -> bool {
        self.parts.iter().all(|part| part.is_unscored())
    }
    fn all_of(&self) -> Option<&[SharedCondition]> {
        Some(&self.parts)
    }
}

/// Opens what a part does not match.
pub(super) fn without<'a>(
    part: &'a SharedCondition,
    inverted: &'a dyn InvertedIndex,
    rows: u32,
) -> Result<BoxFilter<'a>> {
    let without = vec![part.filter(inverted, rows)?];
    Ok(Box::new(AllFilter { parts: vec![Box::new(EveryWindow(rows))], without }))
}

/// Opens what all of some parts match.
pub(super) fn filter<'a>(
    all: impl IntoIterator<Item = &'a SharedCondition>,
    inverted: &'a dyn InvertedIndex,
    rows: u32,
) -> Result<BoxFilter<'a>> {
    let (mut parts, mut without) = (Vec::new(), Vec::new());
    for part in all {
        let (into, part) = match part.role() {
            Role::Optional(_) => continue,
            Role::Excluded(part) => (&mut without, part),
            Role::Required => (&mut parts, part),
        };
        into.push((part.by_scorer(), part.filter(inverted, rows)?));
    }
    // What leaves the fewest candidates comes first, what is dear to ask last.
    let in_order = |mut parts: Vec<(bool, BoxFilter<'a>)>| {
        parts.sort_by_key(|(dear, part)| (*dear, part.cost()));
        parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>()
    };
    let (mut parts, without) = (in_order(parts), in_order(without));
    match parts.pop() {
        None => parts.push(Box::new(EveryWindow(rows))),
        Some(only) if parts.is_empty() && without.is_empty() => return Ok(only),
        Some(last) => parts.push(last),
    }
    Ok(Box::new(AllFilter { parts, without }))
}

/// Rows that every part matches; the part with the fewest rows leads, the others seek.
struct Conjunction<'a> {
    parts: Vec<BoxScorer<'a>>,
    doc: u32,
    /// Threshold that scores must exceed, and the last row for which that was found possible.
    threshold: f32,
    window: Option<u32>,
}

impl<'a> Conjunction<'a> {
    /// Starts at the first common row. There is at least one part.
    fn new(mut parts: Vec<BoxScorer<'a>>) -> Self {
        parts.sort_by_key(|part| part.cost());
        let mut conjunction = Self { parts, doc: END, threshold: f32::NEG_INFINITY, window: None };
        let first = conjunction.parts.first().map_or(END, |lead| lead.doc());
        conjunction.seek_match(first);
        conjunction
    }

    fn seek_match(&mut self, mut candidate: u32) -> u32 {
        'candidate: while candidate != END {
            if self.threshold > 0.0 && self.window.is_none_or(|last| candidate > last) {
                let (bound, last) = self.bound(candidate);
                self.window = Some(last);
                if bound <= self.threshold {
                    candidate = if last == END { END } else { self.parts[0].seek(last + 1) };
                    continue;
                }
            }
            for at in 0..self.parts.len() {
                let doc = self.parts[at].seek(candidate);
                if doc != candidate {
                    candidate = if at == 0 || doc == END { doc } else { self.parts[0].seek(doc) };
                    continue 'candidate;
                }
            }
            break;
        }
        self.doc = candidate;
        candidate
    }
}

impl Scorer for Conjunction<'_> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn advance(&mut self) -> u32 {
        if self.doc == END {
            return END;
        }
        let next = self.parts[0].advance();
        self.seek_match(next)
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target {
            return self.doc;
        }
        let next = self.parts[0].seek(target);
        self.seek_match(next)
    }
    fn score(&mut self) -> f32 {
        self.parts.iter_mut().map(|part| f64::from(part.score())).sum::<f64>() as f32
    }
    fn max_score(&self) -> f32 {
        self.parts.iter().map(|part| f64::from(part.max_score())).sum::<f64>() as f32
    }
    fn bound(&mut self, target: u32) -> (f32, u32) {
        let (mut sum, mut last) = (0.0, END);
        for part in &mut self.parts {
            let (bound, end) = part.bound(target);
            sum += f64::from(bound);
            last = last.min(end);
        }
        (bound_of(sum), last)
    }
    fn raise_threshold(&mut self, threshold: f32) {
        if threshold > self.threshold {
            self.threshold = threshold;
            self.window = None;
            // A part must bring what the others cannot.
            let total: f64 = self.parts.iter().map(|part| f64::from(part.max_score())).sum();
            for part in &mut self.parts {
                let own = f64::from(threshold) - (total - f64::from(part.max_score()));
                if own > 0.0 {
                    part.raise_threshold((own * 0.999_99) as f32);
                }
            }
        }
    }
    fn cost(&self) -> u64 {
        self.parts.first().map_or(0, |lead| lead.cost())
    }
}

/// Filter of the rows that all of some parts match, and none of others.
struct AllFilter<'a> {
    /// At least one; the one with the fewest rows first.
    parts: Vec<BoxFilter<'a>>,
    without: Vec<BoxFilter<'a>>,
}

impl RowFilter for AllFilter<'_> {
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
