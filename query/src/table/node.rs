//! A predicate as one index's mapping understands it: paths, encoded values, weights.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_storage::mapping::{PathId, Scalar};
use millrace_storage::segment::ValueRange;
use roaring::RoaringBitmap;

use crate::dsl::query::Combination;
use crate::score::function_score::RowFunction;
use crate::score::geo::Area;
use crate::score::nested::NestedNode;

/// What a matching row adds to the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Weight {
    /// Nothing: a filter.
    None,
    /// One number.
    Constant(f32),
    /// BM25 by the statistics of this number (see [`Resolved::statistics`]).
    Bm25(usize),
}

/// An exact value and, for fields whose values are not terms everywhere, the same as a range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExactValue {
    /// The term's value.
    pub value: Scalar,
    /// The value as a range of its column, where the type has one.
    pub range: Option<ValueRange>,
}

/// A bound of a range of byte strings, and whether it is included.
pub(crate) type RawBound = Option<(Vec<u8>, bool)>;

/// A predicate over one index.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Every row.
    All(Weight),
    /// No row.
    None,
    /// Rows with an exact value.
    Exact {
        /// Field.
        path: PathId,
        /// Column of the field.
        column: PathId,
        /// The value.
        value: ExactValue,
        /// Score.
        weight: Weight,
    },
    /// Rows with any of several exact values.
    AnyExact {
        /// Field.
        path: PathId,
        /// Column of the field.
        column: PathId,
        /// The values, distinct.
        values: Arc<[ExactValue]>,
        /// Score.
        weight: Weight,
    },
    /// Rows with a term of a text field.
    Text {
        /// Field.
        path: PathId,
        /// Term.
        term: String,
        /// Score.
        weight: Weight,
    },
    /// Rows with an exact value within byte-string bounds; `range` where values are no terms.
    RawRange {
        /// Field.
        path: PathId,
        /// Column of the field.
        column: PathId,
        /// Lower bound.
        from: RawBound,
        /// Upper bound.
        to: RawBound,
        /// The same over the column.
        range: ValueRange,
        /// Score.
        weight: Weight,
    },
    /// Rows with a value of a column within bounds.
    ColumnRange {
        /// Column.
        column: PathId,
        /// Bounds.
        range: ValueRange,
        /// Score.
        weight: Weight,
    },
    /// Rows with a value (on text fields: a term) that starts with a string.
    Prefix {
        /// Field.
        path: PathId,
        /// The prefixes: one, or its spellings in either case.
        prefixes: Vec<String>,
        /// Whether terms of the text index are meant.
        text: bool,
        /// Score.
        weight: Weight,
    },
    /// Rows with a value that equals or starts with a string but for the case of letters.
    Folded {
        /// Field.
        path: PathId,
        /// Column of the field, to compare whole values.
        column: PathId,
        /// Spellings of the first letters, to find candidates.
        prefixes: Vec<String>,
        /// What values equal or start with, in lower case.
        value: String,
        /// Whether values must equal it.
        whole: bool,
        /// Longest value that counts.
        ignore_above: Option<usize>,
        /// Score.
        weight: Weight,
    },
    /// Rows that have any value of any of these fields.
    Exists {
        /// The fields.
        paths: Vec<PathId>,
        /// Score.
        weight: Weight,
    },
    /// Rows of documents with these ids.
    Ids {
        /// The ids.
        values: Arc<[String]>,
        /// Score.
        weight: Weight,
    },
    /// Rows listed for each segment, by the segment's number in the table.
    Listed(Arc<HashMap<u32, RoaringBitmap>>),
    /// All of them.
    And(Vec<Node>),
    /// At least so many of them.
    AtLeast(usize, Vec<Node>),
    /// Not this.
    Not(Box<Node>),
    /// This, with one score.
    Constant(f32, Box<Node>),
    /// This, with a score multiplied by a factor where something else matches too.
    Boosting {
        /// What matches.
        positive: Box<Node>,
        /// Where the factor applies.
        negative: Box<Node>,
        /// The factor.
        factor: f32,
    },
    /// Any of them, with the best score and a share of the others.
    DisMax(f32, Vec<Node>),
    /// This, with scores combined with functions.
    FunctionScore {
        /// What matches.
        base: Box<Node>,
        /// The functions.
        functions: Vec<NodeFunction>,
        /// How scores and functions are combined.
        combination: Combination,
    },
    /// Rows with elements of a nested path that match.
    Nested(Box<NestedNode>),
    /// Rows with a point in an area.
    Within {
        /// Column.
        column: PathId,
        /// The area.
        area: Area,
        /// Score.
        weight: Weight,
    },
}

/// A function of a row, where a filter lets it apply.
#[derive(Clone, Debug)]
pub(crate) struct NodeFunction {
    /// Rows to which it applies; all where absent.
    pub filter: Option<Node>,
    /// The function.
    pub function: RowFunction,
    /// Factor of its value.
    pub weight: Option<f32>,
}

impl Node {
    /// Joins two predicates.
    pub(crate) fn and(self, other: Node) -> Node {
        match (self, other) {
            (Node::And(mut parts), other) => {
                parts.push(other);
                Node::And(parts)
            }
            (first, other) => Node::And(vec![first, other]),
        }
    }

    /// Whether finding the rows needs more of a segment than its inverted index.
    pub(crate) fn reads_columns(&self) -> bool {
        match self {
            Node::ColumnRange { .. } | Node::Ids { .. } | Node::Folded { .. } | Node::Within { .. } => true,
            Node::And(parts) | Node::AtLeast(_, parts) | Node::DisMax(_, parts) => {
                parts.iter().any(Node::reads_columns)
            }
            Node::Not(part) | Node::Constant(_, part) => part.reads_columns(),
            Node::Boosting { positive, negative, .. } => positive.reads_columns() || negative.reads_columns(),
            Node::Nested(nested) => nested.inner.reads_columns(),
            Node::FunctionScore { base, functions, .. } => {
                let filters = functions.iter().filter_map(|function| function.filter.as_ref());
                base.reads_columns() || filters.into_iter().any(Node::reads_columns)
            }
            _ => false,
        }
    }

    /// Whether a score decides which rows match.
    pub(crate) fn scores_decide(&self) -> bool {
        match self {
            Node::And(parts) | Node::AtLeast(_, parts) | Node::DisMax(_, parts) => {
                parts.iter().any(Node::scores_decide)
            }
            Node::Not(part) | Node::Constant(_, part) => part.scores_decide(),
            Node::Boosting { positive, negative, .. } => positive.scores_decide() || negative.scores_decide(),
            Node::Nested(nested) => nested.inner.scores_decide(),
            Node::FunctionScore { base, functions, combination } => {
                let filters = functions.iter().filter_map(|function| function.filter.as_ref());
                combination.min_score.is_some()
                    || base.scores_decide()
                    || filters.into_iter().any(Node::scores_decide)
            }
            _ => false,
        }
    }
}

/// A term whose statistics a score needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TermStatistics {
    /// Field.
    pub path: PathId,
    /// Nested path whose elements are counted; documents where absent.
    pub nested: Option<PathId>,
    /// Field's name, which joins statistics over several indices.
    pub field: Arc<str>,
    /// The term.
    pub term: StatisticsTerm,
    /// Boost of the clause.
    pub boost: f32,
}

/// A term of a text index or an exact value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum StatisticsTerm {
    Text(String),
    Exact(Scalar),
}

/// A predicate over one index with the statistics that its scores need.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// The predicate.
    pub node: Node,
    /// Terms to look up, in the order of [`Weight::Bm25`].
    pub statistics: Vec<TermStatistics>,
}
