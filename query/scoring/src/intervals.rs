//! Intervals: terms at certain places relative to each other.
//!
//! [`Intervals`] says what is looked for ([`source`]); [`prepare()`] looks up the terms of a segment, and
//! an [`IntervalsScorer`] finds the rows that may have an interval, evaluates the expression on the
//! positions there ([`evaluate`]), and scores as Lucene's `IntervalQuery` does: each interval counts
//! `1 / (length − least length + 1)`, and their sum `S` scores `boost · S / (S + 1)`.

mod evaluate;
pub mod source;

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_dsl::query::Relation;
use millrace_mapping::PathId;
use millrace_work::error::{Error, Result};

use crate::automaton::{CancellablePattern, Pattern};
use crate::condition::{Condition, SharedCondition};
use crate::conjunction::ConjunctionScorer;
use crate::disjunction::AtLeast;
use crate::intervals::evaluate::intervals;
use crate::intervals::source::Source;
use crate::match_all::MatchNoneScorer;
use crate::operands::Weight;
use crate::reader::InvertedIndex;
use crate::source::Source as Segment;
use crate::term::Text;
use crate::union::PostingsUnion;
use crate::visible_terms::VisibleTerms;
use crate::{BoxScorer, END, Scorer};

/// The sum of a row's intervals that scores half of the boost.
const PIVOT: f32 = 1.0;

/// The terms of a leaf.
#[derive(Clone, Debug)]
pub enum LeafTerms {
    /// One term.
    One(String),
    /// The terms of a segment that a pattern finds; more than so many are refused.
    Matching {
        /// The pattern.
        pattern: Arc<Pattern>,
        /// The pattern as it is shown.
        shown: String,
        /// Most terms.
        most: usize,
        /// Number of the first rules for documents that show what terms are found among; all where there are fewer.
        rules: usize,
    },
}

/// A leaf: occurrences of terms of a field.
#[derive(Clone, Debug)]
pub struct IntervalsLeaf {
    /// Field.
    pub path: PathId,
    /// Terms.
    pub terms: LeafTerms,
}

/// Intervals that are searched.
#[derive(Clone, Debug)]
pub struct Intervals {
    /// The expression.
    pub source: Source,
    /// Its leaves, by number.
    pub leaves: Vec<IntervalsLeaf>,
}

/// Intervals made ready for a segment.
#[derive(Debug)]
pub struct PreparedIntervals {
    intervals: Arc<Intervals>,
    /// Terms of the leaves, by number.
    terms: Vec<Vec<String>>,
    /// Rows that may have an interval.
    candidates: SharedCondition,
    boost: f32,
}

/// Looks up the terms of a segment.
///
/// # Errors
/// A pattern that finds too many.
pub fn prepare(intervals: &Arc<Intervals>, weight: Weight, segment: &Segment) -> Result<PreparedIntervals> {
    let mut terms = Vec::with_capacity(intervals.leaves.len());
    for leaf in &intervals.leaves {
        terms.push(match &leaf.terms {
            LeafTerms::One(term) => vec![term.clone()],
            LeafTerms::Matching { pattern, shown, most, rules } => {
                let visible = match &segment.ruled {
                    Some(ruled) => ruled.rows(*rules, &segment.work)?,
                    None => None,
                };
                let inverted = segment.inverted.as_ref();
                let terms = VisibleTerms { inverted, path: leaf.path, text: true, rows: visible.as_deref() };
                matching(terms, pattern.until(segment.work.stop()), shown, *most)?
            }
        });
    }
    let candidates = candidates(&intervals.source, intervals, &terms);
    let intervals = Arc::clone(intervals);
    Ok(PreparedIntervals { intervals, terms, candidates, boost: weight.flat() })
}

impl Condition for PreparedIntervals {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        Ok(Box::new(IntervalsScorer::open(self, inverted, rows)?))
    }
    fn by_scorer(&self) -> bool {
        true
    }
}

fn matching(
    visible: VisibleTerms<'_>,
    pattern: CancellablePattern<'_>,
    shown: &str,
    most: usize,
) -> Result<Vec<String>> {
    let mut terms = Vec::new();
    visible.for_each(pattern, &mut |term, _| {
        terms.push(term.to_owned());
        if terms.len() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if terms.len() > most {
        return Err(Error::Exception {
            kind: "illegal_state_exception",
            status: 500,
            reason: format!("Automaton [{shown}] expanded to too many terms (limit {most})"),
        });
    }
    Ok(terms)
}

/// Makes the condition that every row with an interval fulfils.
fn candidates(source: &Source, intervals: &Intervals, terms: &[Vec<String>]) -> SharedCondition {
    let of = |part: &Source| candidates(part, intervals, terms);
    match source {
        Source::Nothing => Arc::new(MatchNoneScorer),
        Source::Leaf(leaf) => {
            let (Some(own), Some(terms)) = (intervals.leaves.get(*leaf), terms.get(*leaf)) else {
                return Arc::new(MatchNoneScorer);
            };
            let part = |term: &String| Text::unscored(own.path, term);
            match terms.as_slice() {
                [term] => part(term),
                several => AtLeast::of(1, several.iter().map(part).collect()),
            }
        }
        Source::Extended(part, ..)
        | Source::Beside(part, _)
        | Source::Repeated(part, _)
        | Source::MaxGaps(part, _)
        | Source::Fixed(part) => of(part),
        Source::Ordered(parts) | Source::Unordered(parts) | Source::Block(parts) => {
            ConjunctionScorer::of(parts.iter().map(of).collect())
        }
        Source::Any(parts) => AtLeast::of(1, parts.iter().map(of).collect()),
        Source::Related(
            Relation::NotContaining | Relation::NotContainedBy | Relation::NotOverlapping,
            own,
            _,
        ) => of(own),
        Source::Related(_, own, other) => ConjunctionScorer::of(vec![of(own), of(other)]),
    }
}

/// The rows with an interval.
pub struct IntervalsScorer<'a> {
    source: &'a Source,
    candidates: BoxScorer<'a>,
    /// Postings of the leaves, by number.
    leaves: Vec<PostingsUnion>,
    /// Positions in the current row, by leaf.
    positions: Vec<Vec<u32>>,
    min_extent: i64,
    boost: f32,
    sum: f32,
}

impl std::fmt::Debug for IntervalsScorer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IntervalsScorer").finish_non_exhaustive()
    }
}

impl<'a> IntervalsScorer<'a> {
    /// Opens it over a segment of `rows` rows.
    pub fn open(prepared: &'a PreparedIntervals, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<Self> {
        let mut leaves = Vec::with_capacity(prepared.terms.len());
        for (leaf, terms) in prepared.intervals.leaves.iter().zip(&prepared.terms) {
            let mut postings = Vec::with_capacity(terms.len());
            if let Some(text) = inverted.text(leaf.path) {
                for term in terms {
                    postings.extend(text.postings(term)?);
                }
            }
            leaves.push(PostingsUnion::new(postings));
        }
        let source = &prepared.intervals.source;
        let mut scorer = Self {
            source,
            candidates: prepared.candidates.scorer(inverted, rows)?,
            positions: vec![Vec::new(); leaves.len()],
            leaves,
            min_extent: source.min_extent().into(),
            boost: prepared.boost,
            sum: 0.0,
        };
        let first = scorer.candidates.doc();
        scorer.seek_match(first);
        Ok(scorer)
    }
}

impl IntervalsScorer<'_> {
    /// Returns the sum that the current row scores by.
    pub fn sum(&self) -> f32 {
        self.sum
    }

    /// Goes on from a candidate to the first row with an interval.
    fn seek_match(&mut self, mut doc: u32) -> u32 {
        while doc != END {
            for (leaf, positions) in self.leaves.iter_mut().zip(&mut self.positions) {
                match leaf.seek(doc) == doc {
                    true => leaf.positions(positions),
                    false => positions.clear(),
                }
            }
            let found = intervals(self.source, &self.positions);
            if !found.is_empty() {
                let share = |length: i64| 1.0 / (length - self.min_extent + 1).max(1) as f32;
                self.sum = found.iter().fold(0.0, |sum, interval| sum + share(interval.length()));
                break;
            }
            doc = self.candidates.advance();
        }
        doc
    }
}

impl Scorer for IntervalsScorer<'_> {
    fn doc(&self) -> u32 {
        self.candidates.doc()
    }
    fn advance(&mut self) -> u32 {
        let next = self.candidates.advance();
        self.seek_match(next)
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.candidates.doc() >= target {
            return self.candidates.doc();
        }
        let next = self.candidates.seek(target);
        self.seek_match(next)
    }
    fn score(&mut self) -> f32 {
        // Not `S / (S + 1)`: this never falls as the sum grows, whatever is rounded.
        self.boost * (1.0 - PIVOT / (PIVOT + self.sum))
    }
    fn max_score(&self) -> f32 {
        self.boost
    }
    fn cost(&self) -> u64 {
        self.candidates.cost()
    }
}

#[cfg(test)]
mod tests;
