//! Aggregates and the keys that they are grouped by.

use super::{Expression, FieldName, SpanLength, TextSpan};

/// An aggregate or window function with its alias.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateCall {
    /// The call: an `Expr::Function`. Its `text` names the column where there is no alias.
    pub call: Expression,
    /// The name behind `as`.
    pub alias: Option<FieldName>,
}

/// The keys behind `by`.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    /// The keys, in their order; at most one is a span.
    pub keys: Vec<GroupingKey>,
    /// The text of the keys.
    pub span: TextSpan,
}

/// A key of a grouping.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupingKey {
    /// A field.
    Field(FieldName),
    /// Buckets of a field.
    Span(SpanBucket),
}

/// `span(field, length) as alias`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanBucket {
    /// The field; `None` means `@timestamp`.
    pub field: Option<FieldName>,
    /// The length of a bucket.
    pub length: SpanLength,
    /// The name behind `as`.
    pub alias: Option<FieldName>,
    /// The text without the alias: `span(age, 10)`. It names the column.
    pub text: String,
    /// The position of the text.
    pub span: TextSpan,
}
