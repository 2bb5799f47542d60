//! `union [maxout=n] [ … ], index, …`: the rows of several relations.

use crate::ast::{IndexSelector, Pipeline};
use crate::parser::{Parser, Parsing};

/// `union`: unites relations; behind a pipe, the input comes first. Columns meet by name.
#[derive(Clone, Debug, PartialEq)]
pub struct UnionCommand {
    /// `maxout`: the most rows.
    pub maxout: Option<u64>,
    /// The relations.
    pub datasets: Vec<UnionDataset>,
}

/// A relation of `union`.
#[expect(clippy::large_enum_variant, reason = "a syntax tree has few of these nodes")]
#[derive(Clone, Debug, PartialEq)]
pub enum UnionDataset {
    /// A pipeline in brackets.
    Pipeline(Pipeline),
    /// An index, an alias or a pattern.
    Index(IndexSelector),
}

impl Parser<'_> {
    pub(crate) fn union_command(&mut self) -> Parsing<UnionCommand> {
        let maxout = if self.option("maxout") { Some(self.count("maxout")?) } else { None };
        let mut datasets = vec![self.union_dataset()?];
        loop {
            let has_comma = self.symbol(",");
            if !has_comma && !self.peek_bracket() && !self.peek_pattern() {
                return Ok(UnionCommand { maxout, datasets });
            }
            let start = self.start();
            datasets.push(self.union_dataset()?);
            self.check_count(start, datasets.len())?;
        }
    }

    fn union_dataset(&mut self) -> Parsing<UnionDataset> {
        if self.peek_bracket() {
            return self.bracketed_search().map(UnionDataset::Pipeline);
        }
        self.index().map(UnionDataset::Index)
    }
}
