//! Targets of highlighting in a query: terms, patterns of terms, phrases and spans.
//!
//! [`super::extract`] finds it in a query; the highlighters match it against the tokens of a field.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_scoring::automaton;
use millrace_scoring::spans::expression::Span;

/// Something to be marked in a field.
#[derive(Clone, Debug)]
pub(crate) struct HighlightTarget {
    /// The field that the query asks.
    pub field: PathId,
    /// Product of the boosts above it.
    pub boost: f32,
    /// `true` if it is below a clause into which the unified highlighter does not follow phrases.
    pub hidden: bool,
    /// Kind of the target.
    pub what: TargetKind,
}

/// Kind of a highlighting target.
#[derive(Clone, Debug)]
pub(crate) enum TargetKind {
    Term(String),
    /// Any term that fits.
    Pattern(Pattern),
    /// Terms where they stand in certain places.
    Spans(Spans),
}

/// A set of terms.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// Those that an automaton accepts.
    Automaton(Arc<automaton::Pattern>),
    /// Those between two, by their bytes; each with whether it is included.
    Range {
        /// The least.
        from: Option<(Vec<u8>, bool)>,
        /// The greatest.
        to: Option<(Vec<u8>, bool)>,
    },
    /// These.
    OneOf(HashSet<String>),
}

impl Pattern {
    /// Returns the boost of a term of the set: how near it is to the one asked for.
    pub(crate) fn boost(&self, term: &str) -> f32 {
        match self {
            Self::Automaton(pattern) => pattern.boost("", term),
            Self::Range { .. } | Self::OneOf(_) => 1.0,
        }
    }

    /// Returns whether a term is in the set.
    pub(crate) fn fits(&self, term: &str) -> bool {
        match self {
            Self::Automaton(pattern) => pattern.matches(term),
            Self::Range { from, to } => {
                let term = term.as_bytes();
                from.as_ref().is_none_or(|(bound, included)| {
                    if *included { term >= bound.as_slice() } else { term > bound.as_slice() }
                }) && to.as_ref().is_none_or(|(bound, included)| {
                    if *included { term <= bound.as_slice() } else { term < bound.as_slice() }
                })
            }
            Self::OneOf(terms) => terms.contains(term),
        }
    }
}

/// Terms that must stand in certain places: phrases and spans.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    /// Span that relates the places, which are its leaves.
    pub root: Span,
    /// The places.
    pub places: Vec<PositionTerms>,
}

/// The terms that may stand at one place.
#[derive(Clone, Debug)]
pub(crate) struct PositionTerms {
    /// Any of these.
    pub terms: Vec<String>,
    /// Any of the terms that this accepts.
    pub pattern: Option<Arc<automaton::Pattern>>,
    /// `true` if what stands here is marked; terms of another field that pass for this one's are not.
    pub marked: bool,
}

impl Spans {
    /// Makes a phrase of places at positions. Without slop the order counts; gaps between the places are part of it.
    pub(crate) fn phrase(places: Vec<(u32, PositionTerms)>, slop: u32) -> Self {
        let first = places.first().map_or(0, |(position, _)| *position);
        let last = places.last().map_or(0, |(position, _)| *position);
        let gaps = (last.saturating_sub(first) + 1).saturating_sub(places.len() as u32);
        let root = match places.len() {
            1 => Span::Leaf(0),
            count => Span::Near {
                parts: (0..count).map(Span::Leaf).collect(),
                slop: slop.saturating_add(gaps).into(),
                in_order: slop == 0,
            },
        };
        Self { root, places: places.into_iter().map(|(_, place)| place).collect() }
    }

    /// Lists the places of which matches are made, and which are marked then.
    pub(crate) fn marked(&self) -> Vec<&PositionTerms> {
        let mut marked = Vec::new();
        self.root
            .for_each_leaf(&mut |leaf| marked.extend(self.places.get(leaf).filter(|place| place.marked)));
        marked
    }
}

impl PositionTerms {
    /// Returns whether a term may stand here.
    pub(crate) fn fits(&self, term: &str) -> bool {
        self.terms.iter().any(|own| own == term)
            || self.pattern.as_ref().is_some_and(|pattern| pattern.matches(term))
    }
}
