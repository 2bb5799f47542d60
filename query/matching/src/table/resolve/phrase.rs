//! `match_phrase` and `match_phrase_prefix`: terms side by side.

use std::sync::Arc;

use millrace_dsl::json::text;
use millrace_dsl::query::{MAX_CLAUSES, MatchPhrasePrefixQuery, MatchPhraseQuery};
use millrace_mapping::{Field, FieldType};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::node::{ExpandedScore, Expansion, ExpansionSelection, Join, Node, StatisticsTerm};
use millrace_scoring::operands::{AnalyzedColumn, Weight};
use millrace_scoring::phrase::{Phrase, PhrasePosition, PlaceTerms};
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::full_text::{any_of, has_positions, zero_terms};
use super::graph::{GraphSection, stretches};
use super::tokens::{Token, Tokens};
use super::{LowerClause, Resolver, Target, searchable};

impl LowerClause for MatchPhraseQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.match_phrase(self, None, weight)
    }
}

impl LowerClause for MatchPhrasePrefixQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.match_phrase(&self.phrase, Some(self.max_expansions), weight)
    }
}

impl<'a> Resolver<'a> {
    /// Resolves a phrase; `expansions` is how many terms its last term may stand for, as a prefix.
    fn match_phrase(
        &mut self,
        query: &MatchPhraseQuery,
        expansions: Option<usize>,
        weight: Weight,
    ) -> Result<Node> {
        match self.phrase(query, expansions, weight) {
            Ok(Some(node)) => Ok(node),
            Ok(None) => Ok(zero_terms(query.zero_terms, weight)),
            Err(_) if query.lenient => Ok(Node::None),
            Err(error) => Err(error),
        }
    }

    fn phrase(
        &mut self,
        query: &MatchPhraseQuery,
        expansions: Option<usize>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let clause = if expansions.is_some() { "match_phrase_prefix" } else { "match_phrase" };
        let named = self.named_analyzer(clause, &query.analyzer)?;
        if let Some(node) = self.metadata_term(&query.field, &[&query.query], weight) {
            return match expansions {
                Some(_) => Err(unfit_for_phrase_prefix(&query.field, &query.field)),
                None => node.map(Some),
            };
        }
        let Some(target) = self.target(&query.field) else { return Ok(Some(Node::None)) };
        let field = target.field;
        if expansions.is_some() && !field.field_type.is_text() {
            return Err(unfit_for_phrase_prefix(&field.path, field.type_name()));
        }
        let analyzers = self.index.mapping.analyzers();
        let own = match field.field_type.is_text() {
            true => analyzers.get(quote_analyzer(field)),
            false => None,
        };
        let Some(analyzer) = named.or(own) else {
            return self.exact(&target, &query.query, weight).map(Some);
        };
        let tokens = Tokens::new(analyzer, &text(&query.query).unwrap_or_default())?;
        self.phrase_of(&target, &tokens, query.slop, expansions, weight)
    }

    /// Makes the node of tokens side by side; `None` where there are none.
    pub(super) fn phrase_of(
        &mut self,
        target: &Target<'a>,
        tokens: &Tokens,
        slop: u32,
        expansions: Option<usize>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let field = target.field;
        if tokens.list.is_empty() {
            return Ok(None);
        }
        if let Some(node) = self.shingled_phrase(target, tokens, slop, expansions, weight)? {
            return Ok(Some(node));
        }
        if tokens.list.len() > 1 && tokens.is_graph() {
            return self.phrase_graph(target, tokens, slop, expansions, weight);
        }
        let mut places = tokens.by_position();
        if let [(_, same)] = places.as_slice() {
            return match (expansions, same.as_slice()) {
                (Some(most), _) => self.prefixes(field, same, most, weight).map(Some),
                (None, [term]) => self.exact(target, &Value::String(term.clone()), weight).map(Some),
                (None, _) => self.synonyms(target, same, weight).map(Some),
            };
        }
        self.check_positions(field)?;
        let last = expansions.and_then(|most| Some((most, places.pop()?)));
        let base = places.first().map_or(0, |(position, _)| *position);
        let place = |(position, terms): (u32, Vec<String>)| PhrasePosition {
            offset: position - base,
            terms: PlaceTerms::Fixed(terms),
        };
        let mut places: Vec<PhrasePosition> = places.into_iter().map(place).collect();
        if let Some((most, (position, starts))) = last {
            let slot = self.expansion(field, &starts, most)?;
            places.push(PhrasePosition { offset: position - base, terms: PlaceTerms::Expanded(slot) });
        }
        self.phrase_node(field, Phrase::Places(places, slop), weight).map(Some)
    }

    fn phrase_graph(
        &mut self,
        target: &Target<'a>,
        tokens: &Tokens,
        slop: u32,
        expansions: Option<usize>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let field = target.field;
        let stretches = stretches(tokens)?;
        if slop > 0 || field.field_type == FieldType::MatchOnlyText {
            // Every way through the graph is a phrase; without positions, only such are looked for in values.
            let mut ways = vec![Tokens { to_the_end: tokens.to_the_end, ..Tokens::default() }];
            for stretch in stretches {
                let parts: Vec<Vec<Token>> = match stretch {
                    GraphSection::Ways(parts) => parts.into_iter().map(|part| part.list).collect(),
                    GraphSection::Terms(same) => same.into_iter().map(|token| vec![token]).collect(),
                };
                if ways.len().saturating_mul(parts.len()) > MAX_CLAUSES {
                    return Err(Error::TooManyClauses(MAX_CLAUSES));
                }
                let joined = |way: &Tokens, part: &Vec<Token>| Tokens {
                    list: way.list.iter().chain(part).cloned().collect(),
                    ..*way
                };
                ways = ways.iter().flat_map(|way| parts.iter().map(move |part| joined(way, part))).collect();
            }
            let mut any = Vec::with_capacity(ways.len());
            for way in ways {
                any.extend(self.phrase_of(target, &way, slop, expansions, weight)?);
            }
            return Ok(any_of(any));
        }
        self.check_positions(field)?;
        let last = stretches.len().saturating_sub(1);
        let mut links = Vec::with_capacity(stretches.len());
        for (at, stretch) in stretches.into_iter().enumerate() {
            let prefix = expansions.filter(|_| at == last);
            let ways = match stretch {
                GraphSection::Terms(same) => {
                    vec![vec![(0, same.into_iter().map(|token| token.term).collect())]]
                }
                GraphSection::Ways(ways) => ways.iter().map(Tokens::by_position).collect(),
            };
            let mut link = Vec::with_capacity(ways.len());
            for mut way in ways {
                let end = prefix.and_then(|most| Some((most, way.pop()?)));
                let base =
                    way.first().or(end.as_ref().map(|(_, end)| end)).map_or(0, |(position, _)| *position);
                let mut places: Vec<PhrasePosition> = way
                    .into_iter()
                    .map(|(position, terms)| PhrasePosition {
                        offset: position - base,
                        terms: PlaceTerms::Fixed(terms),
                    })
                    .collect();
                if let Some((most, (position, starts))) = end {
                    let slot = self.expansion(field, &starts, most)?;
                    places
                        .push(PhrasePosition { offset: position - base, terms: PlaceTerms::Expanded(slot) });
                }
                link.push(places);
            }
            links.push(link);
        }
        self.phrase_node(field, Phrase::Chain(links), weight).map(Some)
    }

    /// Makes the node of a phrase of several places.
    fn phrase_node(&mut self, field: &Field, phrase: Phrase, weight: Weight) -> Result<Node> {
        searchable(field)?;
        for _ in phrase.places() {
            self.count_leaf()?;
        }
        let path = field.id;
        if field.field_type == FieldType::MatchOnlyText {
            let values = AnalyzedColumn {
                column: field.column,
                analyzers: Arc::clone(self.index.mapping.analyzers()),
                analyzer: Arc::clone(&field.analyzer),
            };
            return Ok(Node::Phrase { path, phrase: Arc::new(phrase), values: Some(values), weight });
        }
        let mut terms = Vec::new();
        for place in phrase.places() {
            match &place.terms {
                PlaceTerms::Fixed(fixed) => terms.extend(fixed.iter().cloned().map(StatisticsTerm::Text)),
                PlaceTerms::Expanded(slot) => terms.push(StatisticsTerm::Expanded(*slot)),
            }
        }
        if matches!(phrase, Phrase::Chain(_)) {
            // Spans count a term once.
            let mut distinct: Vec<StatisticsTerm> = Vec::with_capacity(terms.len());
            for term in terms {
                if !distinct.contains(&term) {
                    distinct.push(term);
                }
            }
            terms = distinct;
        }
        let weight = self.joined(weight, field, terms, Join::Phrase);
        Ok(Node::Phrase { path, phrase: Arc::new(phrase), values: None, weight })
    }

    /// Makes the node of terms that start with a text, each scored by itself.
    fn prefixes(&mut self, field: &Field, starts: &[String], most: usize, weight: Weight) -> Result<Node> {
        if !field.index {
            return Ok(Node::None);
        }
        self.count_leaf()?;
        let slot = self.expansion(field, starts, most)?;
        if let Some(expansion) = self.expansions.get_mut(slot) {
            // What stands alone is a clause a term.
            if most > MAX_CLAUSES {
                expansion.keep = ExpansionSelection::AtMost(MAX_CLAUSES);
            }
            match weight {
                Weight::Constant(boost) => expansion.boost = boost,
                _ => (expansion.boost, expansion.score) = (0.0, ExpandedScore::Boost),
            }
        }
        let constant = field.field_type == FieldType::MatchOnlyText;
        Ok(match (constant, weight) {
            (true, Weight::Constant(score)) => Node::Constant(score, Box::new(Node::Expanded(slot))),
            _ => Node::Expanded(slot),
        })
    }

    /// Notes that terms that start with a text are to be found.
    fn expansion(&mut self, field: &Field, starts: &[String], most: usize) -> Result<usize> {
        let pattern = match starts {
            [start] => Pattern::prefix(start, false)?,
            several => Pattern::prefixes(several)?,
        };
        self.expansions.push(Expansion {
            path: field.id,
            nested: self.nested_id(),
            field: Arc::clone(&field.path),
            text: true,
            pattern: Arc::new(pattern),
            lead: String::new(),
            keep: ExpansionSelection::First(most.max(1)),
            score: match field.field_type {
                FieldType::MatchOnlyText => ExpandedScore::Boost,
                _ => ExpandedScore::Own,
            },
            boost: 1.0,
            rules: self.rules,
        });
        Ok(self.expansions.len() - 1)
    }

    fn check_positions(&self, field: &Field) -> Result<()> {
        if has_positions(field) || (field.field_type == FieldType::MatchOnlyText && field.index) {
            return Ok(());
        }
        let reason =
            format!("field:[{}] was indexed without position data; cannot run PhraseQuery", field.path);
        Err(Error::QueryShard {
            reason: format!("failed to create query: {reason}"),
            caused_by: Some(("illegal_state_exception".to_owned(), reason)),
        })
    }
}

/// The analyzer of phrases.
pub(super) fn quote_analyzer(field: &Field) -> &str {
    match field.params.get("search_quote_analyzer").and_then(Value::as_str) {
        Some(name) => name,
        None => &field.search_analyzer,
    }
}

fn unfit_for_phrase_prefix(field: &str, kind: &str) -> Error {
    Error::IllegalArgument(format!(
        "Can only use phrase prefix queries on text fields - not on [{field}] which is of type [{kind}]"
    ))
}
