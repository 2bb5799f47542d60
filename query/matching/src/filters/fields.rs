//! The fields that filters ask, so that no others are indexed for them.

use std::collections::BTreeSet;

use millrace_mapping::PathId;
use millrace_scoring::intervals::Intervals;
use millrace_scoring::node::{Node, ResolvedPredicate};

/// Fields and columns that filters ask.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    some: BTreeSet<PathId>,
    /// `true` if any may be asked.
    all: bool,
}

impl Fields {
    /// Takes all fields.
    pub fn all() -> Self {
        Self { some: BTreeSet::new(), all: true }
    }

    /// Returns those that are asked; `None` where any may be.
    pub(super) fn some(&self) -> Option<&BTreeSet<PathId>> {
        (!self.all).then_some(&self.some)
    }

    /// Takes those of other filters.
    pub(super) fn join(&mut self, other: &Self) {
        self.all |= other.all;
        self.some.extend(&other.some);
    }

    /// Takes those of a clause.
    pub(super) fn add(&mut self, resolved: &ResolvedPredicate) {
        self.node(&resolved.node);
        self.some.extend(resolved.expansions.iter().map(|expansion| expansion.path));
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::All(_)
            | Node::None
            | Node::Expanded(_)
            | Node::ManyExpanded { .. }
            | Node::Ids { .. }
            | Node::Metadata { .. }
            | Node::Listed(_) => {}
            Node::Exact { path, column, .. }
            | Node::AnyExact { path, column, .. }
            | Node::RawRange { path, column, .. } => self.some.extend([*path, *column]),
            Node::ColumnRange { column, terms, .. } => {
                self.some.insert(*column);
                self.some.extend(terms);
            }
            Node::Text { path, .. }
            | Node::TextRange { path, .. }
            | Node::Matching { path, .. }
            | Node::Synonyms { path, .. } => {
                self.some.insert(*path);
            }
            Node::Phrase { path, values, .. } => {
                self.some.insert(*path);
                self.some.extend(values.as_ref().map(|values| values.column));
            }
            Node::Exists { paths, .. } => self.some.extend(paths),
            Node::Intervals { path, intervals, .. } => {
                self.some.insert(*path);
                let Intervals { leaves, .. } = intervals.as_ref();
                self.some.extend(leaves.iter().map(|leaf| leaf.path));
            }
            Node::Spans { path, spans, .. } => {
                self.some.insert(*path);
                self.some.extend(spans.leaves.iter().map(|leaf| leaf.path));
            }
            Node::ColumnMatching { column, .. } => {
                self.some.insert(column.path);
            }
            Node::Within { column, .. } => {
                self.some.insert(*column);
            }
            Node::And(parts) | Node::AtLeast(_, parts) | Node::DisMax(_, parts) => {
                parts.iter().for_each(|part| self.node(part));
            }
            Node::Not(part) | Node::Constant(_, part) => self.node(part),
            Node::Boosting { positive, negative, .. } => {
                self.node(positive);
                self.node(negative);
            }
            Node::Nested(nested) => self.node(&nested.inner),
            // What its functions read is not told apart: no filter has one that decides.
            Node::FunctionScore { .. } => self.all = true,
        }
    }
}
