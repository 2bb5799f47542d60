//! A predicate as one index's mapping understands it: paths, encoded values, weights.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_dsl::minimum_should_match::MinimumShouldMatch;
use millrace_dsl::query::{Combination, FeatureFunction};
use millrace_mapping::{PathId, Scalar};
use millrace_segment::ValueRange;
use roaring::RoaringBitmap;

use crate::automaton::Pattern;
use crate::geo::GeoArea;
use crate::interesting_terms::InterestingTerms;
use crate::intervals::Intervals;
use crate::metadata::Metadata;
use crate::nested::NestedNode;
use crate::operands::{AnalyzedColumn, ExactValue, RawBound, TextBound, Weight};
use crate::phrase::Phrase;
use crate::row_function::RowFunction;
use crate::spans::expression::Spans;

/// A column of strings.
#[derive(Clone, Copy, Debug)]
pub struct StringColumn {
    /// Column.
    pub path: PathId,
    /// Longest string that counts, in UTF-16 code units.
    pub ignore_above: Option<usize>,
}

/// A predicate over one index.
#[derive(Clone, Debug)]
pub enum Node {
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
        /// Field whose terms are the column's integers, where they are few.
        terms: Option<PathId>,
        /// Bounds.
        range: ValueRange,
        /// Score.
        weight: Weight,
    },
    /// Rows with a term of a text field within bounds.
    TextRange {
        /// Field.
        path: PathId,
        /// Lower bound.
        from: TextBound,
        /// Upper bound.
        to: TextBound,
        /// Score.
        weight: Weight,
    },
    /// Rows with a value (on text fields: a term) of a pattern.
    Matching {
        /// Field.
        path: PathId,
        /// `true` if terms of the text index are meant.
        text: bool,
        /// The column with the same values, where reading it may be faster than the walk over a large dictionary.
        column: Option<StringColumn>,
        /// The pattern.
        pattern: Arc<Pattern>,
        /// Score.
        weight: Weight,
    },
    /// Rows with a string of a pattern in a column without index.
    ColumnMatching {
        /// Column.
        column: StringColumn,
        /// The pattern.
        pattern: Arc<Pattern>,
        /// Score.
        weight: Weight,
    },
    /// Rows with any of the terms that an expansion finds, each with its score.
    Expanded(usize),
    /// Rows with as many of the terms that expansions find as are asked for, of those that there are.
    ManyExpanded {
        /// The expansions.
        slots: Vec<usize>,
        /// Number of clauses that have to match.
        minimum: MinimumShouldMatch,
    },
    /// Rows with any of several terms of a text field, scored as if they were one.
    Synonyms {
        /// Field.
        path: PathId,
        /// The terms.
        terms: Arc<[String]>,
        /// Score.
        weight: Weight,
    },
    /// Rows with the terms of a phrase.
    Phrase {
        /// Field.
        path: PathId,
        /// The phrase.
        phrase: Arc<Phrase>,
        /// Values in which the phrase is searched if the field has no positions.
        values: Option<AnalyzedColumn>,
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
    /// Rows with terms at certain places relative to each other.
    Intervals {
        /// Field.
        path: PathId,
        /// Intervals that are searched.
        intervals: Arc<Intervals>,
        /// Score.
        weight: Weight,
    },
    /// Rows with stretches of positions.
    Spans {
        /// Field whose lengths count.
        path: PathId,
        /// Spans that are searched.
        spans: Arc<Spans>,
        /// Score.
        weight: Weight,
    },
    /// Rows by metadata that is not indexed.
    Metadata {
        /// Condition on the metadata.
        metadata: Arc<Metadata>,
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
    /// This, with its score multiplied.
    Boosting {
        /// Clause that matches.
        positive: Box<Node>,
        /// Clause whose matches get the second factor.
        negative: Box<Node>,
        /// Factors of all scores, and where `negative` matches.
        factors: (f32, f32),
    },
    /// Any of them, with the best score and a share of the others.
    DisMax(f32, Vec<Node>),
    /// This, with scores combined with functions.
    FunctionScore {
        /// Clause that matches.
        base: Box<Node>,
        /// The functions.
        functions: Vec<NodeFunction>,
        /// Combination of scores and functions.
        combination: Combination,
    },
    /// Rows with elements of a nested path that match.
    Nested(Box<NestedNode>),
    /// Rows with a point in an area.
    Within {
        /// Column.
        column: PathId,
        /// The area.
        area: GeoArea,
        /// Score.
        weight: Weight,
    },
}

/// A function of a row, where a filter lets it apply.
#[derive(Clone, Debug)]
pub struct NodeFunction {
    /// Rows to which it applies; all where absent.
    pub filter: Option<Node>,
    /// The function.
    pub function: RowFunction,
    /// Factor of its value.
    pub weight: Option<f32>,
}

impl Node {
    /// Joins two predicates.
    pub fn and(self, other: Node) -> Node {
        match (self, other) {
            (Node::And(mut parts), other) => {
                parts.push(other);
                Node::And(parts)
            }
            (first, other) => Node::And(vec![first, other]),
        }
    }

    /// Returns whether finding the rows needs more of a segment than its inverted index.
    pub fn reads_columns(&self) -> bool {
        match self {
            Node::ColumnMatching { .. }
            | Node::ColumnRange { .. }
            | Node::Ids { .. }
            | Node::Metadata { .. }
            | Node::Within { .. } => true,
            Node::Phrase { values, .. } => values.is_some(),
            _ => self.any_part(Node::reads_columns),
        }
    }

    /// Returns whether a score decides which rows match.
    pub fn scores_decide(&self) -> bool {
        match self {
            Node::FunctionScore { combination, .. } if combination.min_score.is_some() => true,
            _ => self.any_part(Node::scores_decide),
        }
    }

    /// Returns the same predicate without its parts that want a field to have a value.
    pub fn without_presence(&self, field: PathId) -> Self {
        match self {
            Self::Exists { paths, .. } if paths.as_slice() == [field] => Self::All(Weight::None),
            Self::And(parts) => Self::And(parts.iter().map(|part| part.without_presence(field)).collect()),
            part => part.clone(),
        }
    }

    /// Returns whether any of the nodes that this one is made of is such.
    fn any_part(&self, is_such: fn(&Node) -> bool) -> bool {
        match self {
            Node::And(parts) | Node::AtLeast(_, parts) | Node::DisMax(_, parts) => parts.iter().any(is_such),
            Node::Not(part) | Node::Constant(_, part) => is_such(part),
            Node::Boosting { positive, negative, .. } => is_such(positive) || is_such(negative),
            Node::Nested(nested) => is_such(&nested.inner),
            Node::FunctionScore { base, functions, .. } => {
                let mut filters = functions.iter().filter_map(|function| function.filter.as_ref());
                is_such(base) || filters.any(is_such)
            }
            _ => false,
        }
    }
}

/// Combination of the statistics of several terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// One term, as frequent as the most frequent.
    Synonyms,
    /// A phrase: each adds to the weight.
    Phrase,
    /// Spans: each adds to the weight once, among the documents of the field that scores.
    Spans,
}

/// Terms whose statistics a score needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TermStatistics {
    /// Field.
    pub path: PathId,
    /// Nested path whose elements are counted; documents where absent.
    pub nested: Option<PathId>,
    /// Field's name, which joins statistics over several indices.
    pub field: Arc<str>,
    /// The terms.
    pub terms: Vec<StatisticsTerm>,
    /// Combination of the terms.
    pub join: Join,
    /// Boost of the clause.
    pub boost: f32,
    /// Number shared by terms that are one in several fields: each is as frequent as the most frequent.
    pub blend: Option<usize>,
}

/// A term of a text index, an exact value, the terms that an expansion finds, or a term of another field.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum StatisticsTerm {
    Text(String),
    Exact(Scalar),
    Expanded(usize),
    /// A term of a field that need not be the one that scores.
    In {
        path: PathId,
        field: Arc<str>,
        term: String,
    },
}

/// Selection of the terms that a pattern finds in a shard.
#[derive(Clone, Debug)]
pub enum ExpansionSelection {
    /// So many of the greatest boosts, and among equals the least.
    Best(usize),
    /// All; more than so many are refused.
    AtMost(usize),
    /// The first, segment by segment, until there are so many.
    First(usize),
    /// The most interesting of those that examples have.
    InterestingTerms(Arc<InterestingTerms>),
}

/// Scores of the terms of an expansion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpandedScore {
    /// Each by its own statistics.
    Own,
    /// Each as if it was as frequent as the most frequent.
    Blended,
    /// Each by its boost alone.
    Boost,
    /// Each is a number of a feature, which a function makes the score of.
    Feature(FeatureFunction),
}

/// Terms that are looked up in a whole shard before any segment is searched.
#[derive(Clone, Debug)]
pub struct Expansion {
    /// Field.
    pub path: PathId,
    /// Nested path whose elements are looked at; documents where absent.
    pub nested: Option<PathId>,
    /// Field's name.
    pub field: Arc<str>,
    /// `true` if terms of the text index are meant.
    pub text: bool,
    /// Pattern of the terms.
    pub pattern: Arc<Pattern>,
    /// Prefix before the pattern, inside of a flat_object.
    pub lead: String,
    /// Selection of the terms.
    pub keep: ExpansionSelection,
    /// Scores of the terms.
    pub score: ExpandedScore,
    /// Boost of the clause.
    pub boost: f32,
    /// Number of the first rules for documents that show what terms are chosen among; all where there are fewer.
    pub rules: usize,
}

impl Expansion {
    /// Returns whether which terms it stands for hangs on what other terms there are: it stands for others in a part of a shard.
    pub fn is_chosen(&self) -> bool {
        matches!(
            self.keep,
            ExpansionSelection::Best(_)
                | ExpansionSelection::First(_)
                | ExpansionSelection::InterestingTerms(_)
        )
    }
}

/// A predicate over one index with what has to be looked up in each shard before.
#[derive(Clone, Debug)]
pub struct ResolvedPredicate {
    /// The predicate.
    pub node: Node,
    /// Terms to count, in the order of [`Weight::Bm25`].
    pub statistics: Vec<TermStatistics>,
    /// Terms to find, in the order of [`Node::Expanded`].
    pub expansions: Vec<Expansion>,
}
