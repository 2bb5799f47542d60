//! Operands of predicates over one index: weights, exact values, bounds, and columns that are analyzed again.

use std::sync::Arc;

use millrace_mapping::analysis::Analyzers;
use millrace_mapping::{PathId, Scalar};
use millrace_segment::ValueRange;

/// The share of a matching row in the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weight {
    /// Nothing: a filter.
    None,
    /// One number.
    Constant(f32),
    /// BM25 by the statistics of this number (see [`crate::node::ResolvedPredicate::statistics`]).
    Bm25(usize),
}

impl Weight {
    /// Returns the number; 0 where it is none.
    pub fn flat(self) -> f32 {
        match self {
            Self::Constant(score) => score,
            Self::None | Self::Bm25(_) => 0.0,
        }
    }
}

/// An exact value and, for fields whose values are not terms everywhere, the same as a range.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactValue {
    /// The term's value.
    pub value: Scalar,
    /// The value as a range of its column, where the type has one.
    pub range: Option<ValueRange>,
}

/// A bound of a range of byte strings, and whether it is included.
pub type RawBound = Option<(Vec<u8>, bool)>;
/// A bound of a range of terms, and whether it is included.
pub type TextBound = Option<(String, bool)>;

/// Values that are cut into tokens again where their positions are not kept.
#[derive(Clone, Debug)]
pub struct AnalyzedColumn {
    /// Column of the field.
    pub column: PathId,
    /// Analyzers of the index.
    pub analyzers: Arc<Analyzers>,
    /// Name of the field's own.
    pub analyzer: Arc<str>,
}
