//! `match`: the terms that an analyzer makes of a text.

use millrace_storage::mapping::{Field, FieldType};

use super::{Resolver, searchable};
use crate::dsl::json::text;
use crate::dsl::query::{MAX_CLAUSES, MatchQuery, Operator, ZeroTerms};
use crate::error::{Error, Result};
use crate::table::node::{Node, StatisticsTerm, Weight};

impl Resolver<'_> {
    pub(super) fn match_(&mut self, query: &MatchQuery, weight: Weight) -> Result<Node> {
        if let Some(node) = self.metadata_term(&query.field, &[&query.query], weight) {
            return node;
        }
        let mapping = self.index.mapping;
        let Some(target) = self.target(&query.field) else { return Ok(Node::None) };
        let field = target.field;
        if !matches!(field.field_type, FieldType::Text | FieldType::MatchOnlyText) {
            return self.exact(&target, &query.query, weight);
        }
        searchable(field)?;
        let name = query.analyzer.as_deref().unwrap_or(&field.search_analyzer);
        let analyzer = mapping.analyzers().get(name).ok_or_else(|| Error::QueryShard {
            reason: format!("[match] analyzer [{name}] not found"),
            caused_by: None,
        })?;
        let mut tokens: Vec<(u32, String)> = Vec::new();
        analyzer.analyze(&text(&query.query).unwrap_or_default(), &mut |token| {
            // One more than allowed is kept, so that the excess is seen.
            if tokens.len() <= MAX_CLAUSES {
                tokens.push((token.position, token.text.clone()));
            }
        });
        if tokens.len() > MAX_CLAUSES {
            return Err(Error::TooManyClauses(MAX_CLAUSES));
        }
        if tokens.is_empty() {
            return Ok(match query.zero_terms {
                ZeroTerms::None => Node::None,
                ZeroTerms::All => Node::All(weight),
            });
        }
        let mut clauses: Vec<Node> = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while at < tokens.len() {
            let position = tokens[at].0;
            let end = at + tokens[at..].iter().take_while(|(p, _)| *p == position).count();
            let mut same: Vec<Node> =
                tokens[at..end].iter().map(|(_, term)| self.text_term(field, term.clone(), weight)).collect();
            clauses.push(if same.len() == 1 { same.remove(0) } else { Node::AtLeast(1, same) });
            at = end;
        }
        if clauses.len() == 1 {
            return Ok(clauses.remove(0));
        }
        let count = clauses.len();
        let required = match (query.operator, &query.minimum_should_match) {
            (Operator::And, _) => return Ok(Node::And(clauses)),
            (Operator::Or, None) => 1,
            (Operator::Or, Some(spec)) => spec.required(count).max(1),
        };
        Ok(if required > count { Node::None } else { Node::AtLeast(required, clauses) })
    }

    pub(super) fn text_term(&mut self, field: &Field, term: String, weight: Weight) -> Node {
        let weight = match field.field_type {
            FieldType::MatchOnlyText => weight,
            _ => self.bm25(weight, field, StatisticsTerm::Text(term.clone())),
        };
        Node::Text { path: field.id, term, weight }
    }
}
