//! `[kind] join [options] [left=alias] [right=alias] [on condition | fields] source`: rows of two relations side by side.

use crate::ast::{Expression, FieldName, SourceRelation};

/// `join`: combines the input with another relation.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinCommand {
    /// The kind (default inner).
    pub kind: JoinKind,
    /// `left`: an alias for the input.
    pub left_alias: Option<FieldName>,
    /// `right`: an alias for the other relation.
    pub right_alias: Option<FieldName>,
    /// The rows that belong together.
    pub criteria: JoinCriteria,
    /// The other relation.
    pub right: SourceRelation,
    /// `overwrite`: whether columns of the right replace those of the same name (default true; for fields as criteria).
    pub overwrite: bool,
    /// `max`: the most rows of the right for each of the left; 0 and `None` mean all.
    pub max: Option<u64>,
    /// `hint.left.…` and `hint.right.…`, which change no answer.
    pub hints: Vec<JoinHint>,
}

/// A kind of join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinKind {
    /// Rows with a partner.
    #[default]
    Inner,
    /// All rows of the left: `left`, `outer`.
    Left,
    /// All rows of the right.
    Right,
    /// All rows of both.
    Full,
    /// Rows of the left with a partner.
    Semi,
    /// Rows of the left without a partner.
    Anti,
    /// All pairs.
    Cross,
}

/// The rows of a join that belong together.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinCriteria {
    /// `on` or `where` with a condition over both sides.
    On(Expression),
    /// Fields that are equal on both sides. They stand once in the answer.
    Fields(Vec<FieldName>),
    /// Nothing is said: all fields that both sides have (for `cross`, all pairs).
    Common,
}

/// A hint of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinHint {
    /// `true` for `hint.left`.
    pub is_left: bool,
    /// The name behind the side.
    pub name: String,
    /// The value.
    pub value: String,
}
