//! Starts of terms as the query strings ask for them: normalized only, or analyzed.

use millrace_dsl::query::{Normalize, Operator, PrefixQuery, Rewrite};
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::Result;
use serde_json::Value;

use super::boolean::Boolean;
use super::full_text::any_of;
use super::phrase::quote_analyzer;
use super::tokens::Tokens;
use super::{LowerClause, Resolver, Target};

impl<'a> Resolver<'a> {
    /// Returns the prefix of terms.
    pub(super) fn prefix_of(
        &mut self,
        name: &str,
        text: &str,
        normalize: Normalize,
        rewrite: Option<&Rewrite>,
        weight: Weight,
    ) -> Result<Node> {
        let query = PrefixQuery {
            field: name.to_owned(),
            value: text.to_owned(),
            normalize,
            case_insensitive: false,
            rewrite: rewrite.cloned(),
            common: Default::default(),
        };
        query.resolve(self, weight)
    }

    /// Cuts a text into the terms that are asked of a field; `None` where the field takes it as it is.
    pub(super) fn tokens(
        &self,
        target: &Target<'a>,
        forced: Option<&str>,
        quoted: bool,
        text: &str,
    ) -> Result<Option<Tokens>> {
        let analyzers = self.index.mapping.analyzers();
        let analyzer = match forced {
            Some(name) => analyzers.get(name),
            None if quoted && target.field.field_type.is_text() => {
                analyzers.get(quote_analyzer(target.field))
            }
            None => self.search_analyzer(target.field),
        };
        analyzer.map(|analyzer| Tokens::new(analyzer, text)).transpose()
    }

    /// Terms of an analyzed text, of which the last is a start; `None` where none is left.
    pub(super) fn analyzed_prefix(
        &mut self,
        name: &str,
        tokens: &Tokens,
        operator: Operator,
        rewrite: Option<&Rewrite>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let Some(target) = self.target(name) else { return Ok(Some(Node::None)) };
        let positions = tokens.by_position();
        let last = positions.len().saturating_sub(1);
        let mut boolean = Boolean::default();
        for (at, (_, terms)) in positions.iter().enumerate() {
            let node = match terms.as_slice() {
                _ if at == last => {
                    let mut starts = Vec::with_capacity(terms.len());
                    for term in terms {
                        starts.push(self.prefix_of(name, term, Normalize::Field, rewrite, weight)?);
                    }
                    any_of(starts).unwrap_or(Node::None)
                }
                [term] => self.term_of(name, &Value::String(term.clone()), weight)?,
                _ => self.synonyms(&target, terms, weight)?,
            };
            match operator {
                Operator::And => boolean.must.push(node),
                Operator::Or => boolean.should.push(node),
            }
        }
        Ok((boolean.len() > 0).then(|| boolean.node(weight)))
    }
}
