//! `nested` meets a mapping: its path becomes a number, its clause is resolved for the elements.

use std::sync::Arc;

use millrace_dsl::query::NestedQuery;
use millrace_mapping::PathId;
use millrace_scoring::nested::NestedNode;
use millrace_scoring::node::Node;
use millrace_work::error::{Error, Result};

use super::Resolver;
use crate::table::predicate::Predicate;

/// The nested path that clauses are resolved for.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    id: PathId,
    path: Arc<str>,
}

impl Resolver<'_> {
    pub(super) fn nested(&mut self, query: &NestedQuery, inner: &Predicate) -> Result<Node> {
        let mapping = self.index.mapping;
        let refused = |what: &str| {
            let reason = format!("[nested] {what}");
            Err(Error::QueryShard {
                reason: format!("failed to create query: {reason}"),
                caused_by: Some(("illegal_state_exception".to_owned(), reason)),
            })
        };
        let path = query.path.as_str();
        let Some(id) = mapping.nested_id(path) else {
            return match mapping.is_object(path) {
                true => refused(&format!("nested object under path [{path}] is not of nested type")),
                false if query.ignore_unmapped => Ok(Node::None),
                false => refused(&format!("failed to find nested object under path [{path}]")),
            };
        };
        let Some((chain, to_document)) = self.chain(path, id) else {
            // The path is not inside of the enclosing clause's: no element of it is.
            return Ok(Node::None);
        };
        let around = self.scope.replace(Scope { id, path: path.into() });
        let inner = self.node(inner);
        self.scope = around;
        let node = NestedNode { chain, to_document, inner: inner?, mode: query.score_mode };
        Ok(Node::Nested(Box::new(node)))
    }

    /// Returns the nested path whose elements are searched; none for documents.
    pub(super) fn nested_id(&self) -> Option<PathId> {
        self.scope.as_ref().map(|scope| scope.id)
    }

    /// Lists a nested path and those around it as far as the enclosing clause's, and tells whether
    /// there is no such clause.
    fn chain(&self, path: &str, id: PathId) -> Option<(Vec<PathId>, bool)> {
        let (mut chain, mut at) = (vec![id], path);
        loop {
            let around = at.rsplit_once('.').and_then(|(above, _)| self.index.mapping.nested_path(above));
            match (around, &self.scope) {
                (None, None) => return Some((chain, true)),
                (None, Some(_)) => return None,
                (Some(around), Some(scope)) if *around == *scope.path => return Some((chain, false)),
                (Some(around), _) => {
                    chain.push(self.index.mapping.nested_id(around)?);
                    at = around;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
