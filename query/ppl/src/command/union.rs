//! `union [maxout=n] [ … ], index, …`: the rows of several relations.

use crate::ast::{IndexSelector, Pipeline};

/// `union`: unites relations; behind a pipe, the input comes first. Columns meet by name.
#[derive(Clone, Debug, PartialEq)]
pub struct UnionCommand {
    /// `maxout`: the most rows.
    pub maxout: Option<u64>,
    /// The relations.
    pub datasets: Vec<UnionDataset>,
}

/// A relation of `union`.
#[derive(Clone, Debug, PartialEq)]
pub enum UnionDataset {
    /// A pipeline in brackets.
    Pipeline(Pipeline),
    /// An index, an alias or a pattern.
    Index(IndexSelector),
}
