//! Scoring state that a shard's segments share: functions of terms, and terms found ahead.

use std::sync::Arc;

use crate::bm25::Bm25;

/// Score of a leaf in this segment.
#[derive(Clone, Debug)]
pub enum LeafScore {
    /// All rows alike.
    Flat(f32),
    /// By frequency and length.
    Bm25(Arc<Bm25>),
}

impl LeafScore {
    /// Returns whether no row scores anything.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Flat(score) if *score == 0.0)
    }
}

/// A term that an expansion found.
#[derive(Clone, Debug)]
pub struct ExpandedTerm {
    /// The term.
    pub term: String,
    /// Score of the leaf.
    pub score: LeafScore,
}

/// The terms that an expansion found in a shard.
#[derive(Clone, Debug)]
pub struct ExpandedTerms {
    /// Field.
    pub path: millrace_mapping::PathId,
    /// `true` if terms of the text index are meant.
    pub text: bool,
    /// The terms, ascending.
    pub terms: Vec<ExpandedTerm>,
}

/// Functions and terms of a shard.
#[derive(Debug, Default)]
pub struct ShardFunctions {
    /// In the order of [`crate::operands::Weight::Bm25`].
    pub functions: Vec<Arc<Bm25>>,
    /// In the order of [`crate::node::Node::Expanded`].
    pub expansions: Vec<ExpandedTerms>,
}

impl ShardFunctions {
    /// Returns the function of a number.
    pub fn get(&self, slot: usize) -> Option<&Arc<Bm25>> {
        self.functions.get(slot)
    }

    /// Returns the terms of an expansion.
    pub fn expansion(&self, slot: usize) -> Option<&ExpandedTerms> {
        self.expansions.get(slot)
    }
}
