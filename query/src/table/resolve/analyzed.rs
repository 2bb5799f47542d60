//! Starts of terms as the query strings ask for them: normalized only, or analyzed.

use millrace_storage::mapping::Field;
use serde_json::Value;

use super::Resolver;
use super::boolean::Boolean;
use crate::dsl::query::{Normalize, Operator, PrefixQuery, Query, Rewrite};
use crate::error::Result;
use crate::table::node::{Node, Weight};

impl Resolver<'_> {
    /// What terms start with.
    pub(super) fn prefix_of(
        &mut self,
        name: &str,
        text: &str,
        normalize: Normalize,
        rewrite: Option<Rewrite>,
        weight: Weight,
    ) -> Result<Node> {
        let query = PrefixQuery {
            field: name.to_owned(),
            value: text.to_owned(),
            normalize,
            case_insensitive: false,
            rewrite,
            common: Default::default(),
        };
        self.clause(Query::Prefix(query), weight)
    }

    /// Spells a text as the terms of a field are spelled, without cutting it.
    pub(super) fn normalized(&self, _field: &Field, _normalize: &Normalize, text: &str) -> Result<String> {
        Ok(text.to_lowercase())
    }

    /// Terms of an analyzed text, of which the last is a start; `None` where none is left.
    pub(super) fn analyzed_prefix(
        &mut self,
        name: &str,
        analyzer: &str,
        text: &str,
        operator: Operator,
        rewrite: Option<Rewrite>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let positions = self.terms_by_position(analyzer, text)?;
        let last = positions.len().wrapping_sub(1);
        let mut boolean = Boolean::default();
        for (at, terms) in positions.iter().enumerate() {
            let mut same = Vec::with_capacity(terms.len());
            for term in terms {
                same.push(match at == last {
                    true => self.prefix_of(name, term, Normalize::Field, rewrite, weight)?,
                    false => self.term_of(name, &Value::String(term.clone()), weight)?,
                });
            }
            let node = if same.len() == 1 { same.remove(0) } else { Node::AtLeast(1, same) };
            match operator {
                Operator::And => boolean.must.push(node),
                Operator::Or => boolean.should.push(node),
            }
        }
        Ok((boolean.len() > 0).then(|| boolean.node(weight)))
    }
}
