//! What a shard's segments share while they are scored: functions of terms, and terms found ahead.

use std::sync::Arc;

use super::bm25::Bm25;
use super::prepare::LeafScore;

/// A term that an expansion found.
#[derive(Clone, Debug)]
pub struct ExpandedTerm {
    /// The term.
    pub term: String,
    /// How it scores.
    pub score: LeafScore,
}

/// The terms that an expansion found in a shard.
#[derive(Clone, Debug)]
pub struct ExpandedTerms {
    /// Field.
    pub path: millrace_mapping::PathId,
    /// Whether terms of the text index are meant.
    pub text: bool,
    /// The terms, ascending.
    pub terms: Vec<ExpandedTerm>,
}

/// Functions and terms of a shard.
#[derive(Debug, Default)]
pub struct ShardFunctions {
    /// In the order of [`crate::table::node::Weight::Bm25`].
    pub functions: Vec<Arc<Bm25>>,
    /// In the order of [`crate::table::node::Node::Expanded`].
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
