//! What a query would have marked: terms, patterns of terms, phrases.
//!
//! [`super::extract`] finds it in a query; the highlighters match it against the tokens of a field.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_matching::automaton;
use millrace_storage::mapping::PathId;

/// Something to be marked in a field.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The field that the query asks.
    pub field: PathId,
    /// Product of the boosts above it.
    pub boost: f32,
    /// Whether it is below a clause into which the unified highlighter does not follow phrases.
    pub hidden: bool,
    /// What.
    pub what: What,
}

/// What is to be marked.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A term.
    Term(String),
    /// Any term that fits.
    Pattern(Pattern),
    /// Terms where they stand together.
    Phrase(Phrase),
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
    /// Whether a term is in the set.
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

/// Terms that must stand together.
#[derive(Clone, Debug)]
pub(crate) struct Phrase {
    /// The places, in order.
    pub places: Vec<Place>,
    /// How far from their places terms may stand, gaps between the places included.
    pub slop: u32,
    /// Whether terms must stand in this order.
    pub ordered: bool,
}

/// The terms that may stand at one place of a phrase.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Any of these.
    pub terms: Vec<String>,
    /// Any of the terms that this accepts.
    pub pattern: Option<Arc<automaton::Pattern>>,
}

impl Phrase {
    /// Makes the phrase of places at positions. Without slop the order counts.
    pub(crate) fn new(places: Vec<(u32, Place)>, slop: u32) -> Self {
        let first = places.first().map_or(0, |(position, _)| *position);
        let last = places.last().map_or(0, |(position, _)| *position);
        let gaps = (last.saturating_sub(first) + 1).saturating_sub(places.len() as u32);
        Self {
            places: places.into_iter().map(|(_, place)| place).collect(),
            slop: slop.saturating_add(gaps),
            ordered: slop == 0,
        }
    }
}

impl Place {
    /// Whether a term may stand here.
    pub(crate) fn fits(&self, term: &str) -> bool {
        self.terms.iter().any(|own| own == term)
            || self.pattern.as_ref().is_some_and(|pattern| pattern.matches(term))
    }
}
