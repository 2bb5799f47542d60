//! `graphlookup index start=… edge=from-->to [options] as field`: what a walk along edges reaches.

use crate::ast::{Expression, FieldName, IndexSelector};

/// `graphlookup`: collects the documents of an index that a walk along edges reaches.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphLookupCommand {
    /// The index with the edges; at least one.
    pub indices: Vec<IndexSelector>,
    /// `start`: where walks begin.
    pub start: GraphStart,
    /// The field that a step leaves by.
    pub from_field: FieldName,
    /// The field that a step arrives at.
    pub to_field: FieldName,
    /// `true` for `<->`: steps go both ways.
    pub is_bidirectional: bool,
    /// `maxdepth`: the most steps behind the first (default 0).
    pub max_depth: u64,
    /// `depthfield`: the member with the number of steps.
    pub depth_field: Option<FieldName>,
    /// `supportarray`: whether fields hold arrays (default false).
    pub support_array: bool,
    /// `batchmode`: whether all rows share one walk (default false).
    pub batch_mode: bool,
    /// `usepit`: whether the walk reads a point in time (default false).
    pub use_pit: bool,
    /// `filter=( … )`: a condition on the documents.
    pub filter: Option<Expression>,
    /// The name behind `as`.
    pub output: FieldName,
}

/// Start of walks.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphStart {
    /// The values of a field of the input.
    Field(FieldName),
    /// Literals.
    Values(Vec<Expression>),
}
