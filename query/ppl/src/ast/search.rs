//! Sources of rows, and the conditions of `search`.
//!
//! Terms side by side are a conjunction. `OR` binds more tightly than that, `NOT` more tightly than `OR`.

use super::{FieldName, IndexSelector, Pipeline, TextSpan, TimeModifier};

/// `search … source=… …`: a relation and the conditions on both sides of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchSource {
    /// The relation.
    pub relation: SourceRelation,
    /// The conjunction of all terms around the source.
    pub condition: Option<SearchCondition>,
    /// The text of the source.
    pub span: TextSpan,
}

/// Rows of indices or of a subsearch, under an alias.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceRelation {
    /// Indices, aliases and patterns.
    Indices {
        /// At least one.
        indices: Vec<IndexSelector>,
        /// The name behind `as`.
        alias: Option<FieldName>,
    },
    /// A pipeline in brackets.
    Subsearch {
        /// The pipeline.
        pipeline: Box<Pipeline>,
        /// The name behind `as`.
        alias: Option<FieldName>,
    },
}

/// A condition of `search`.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchCondition {
    /// All hold.
    And(Vec<SearchCondition>),
    /// One holds.
    Or(Vec<SearchCondition>),
    /// It does not hold.
    Not(Box<SearchCondition>),
    /// Free text: a word, a number or a quoted phrase in any field.
    Term(SearchTerm),
    /// `field = value` and its like.
    Comparison {
        /// The field.
        field: FieldName,
        /// The operator.
        operator: ComparisonOperator,
        /// The value.
        value: SearchTerm,
    },
    /// `field IN (value, …)`.
    InList {
        /// The field.
        field: FieldName,
        /// At least one value.
        values: Vec<SearchTerm>,
    },
    /// `earliest=…` or `latest=…`.
    Time(TimeModifier),
}

/// A value of a search condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchTerm {
    /// The text, without quotes. Escapes of the query string syntax remain.
    pub text: String,
    /// `true` for a text in quotes.
    pub is_quoted: bool,
    /// The position, quotes included.
    pub span: TextSpan,
}

/// An operator of a search condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonOperator {
    /// `=`
    Eq,
    /// `!=`
    NotEq,
    /// `<`
    Lt,
    /// `<=`
    LtEq,
    /// `>`
    Gt,
    /// `>=`
    GtEq,
}
