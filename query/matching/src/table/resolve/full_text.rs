//! `match` and `match_bool_prefix`: the terms that an analyzer makes of a text.

use millrace_dsl::json::text;
use millrace_dsl::minimum_should_match::MinimumShouldMatch;
use millrace_dsl::query::{
    Fuzziness, FuzzyOptions, MAX_CLAUSES, MatchBoolPrefixQuery, MatchQuery, Operator, ZeroTerms,
};
use millrace_mapping::analysis::Analyzer;
use millrace_mapping::{Field, FieldType};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::node::{Join, Node, StatisticsTerm};
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::graph::{GraphSection, stretches};
use super::tokens::Tokens;
use super::{LowerClause, Resolver, Target, searchable, searchable_strings};

/// Options that turn the tokens of a text into clauses.
pub(super) struct Terms<'q> {
    pub operator: Operator,
    pub minimum: Option<&'q MinimumShouldMatch>,
    pub fuzziness: Option<Fuzziness>,
    pub fuzzy: &'q FuzzyOptions,
    /// `true` if the last term is the start of one.
    pub prefix: bool,
    /// `true` if synonyms of several words are phrases.
    pub synonym_phrases: bool,
}

/// The plain options of a way through a graph, all of whose terms must match.
const EVERY_TERM: Terms<'static> = Terms {
    operator: Operator::And,
    minimum: None,
    fuzziness: None,
    fuzzy: &FuzzyOptions { prefix_length: 0, max_expansions: 50, transpositions: true, rewrite: None },
    prefix: false,
    synonym_phrases: false,
};

impl LowerClause for MatchQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let terms = Terms {
            operator: self.operator,
            minimum: self.minimum_should_match.as_ref(),
            fuzziness: self.fuzziness,
            fuzzy: &self.fuzzy,
            prefix: false,
            synonym_phrases: self.synonym_phrases,
        };
        let found = resolver.analyzed("match", &self.field, &self.query, &self.analyzer, &terms, weight);
        match found {
            Ok(Some(node)) => Ok(node),
            Ok(None) => Ok(zero_terms(self.zero_terms, weight)),
            Err(_) if self.lenient => Ok(Node::None),
            Err(error) => Err(error),
        }
    }
}

impl LowerClause for MatchBoolPrefixQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let terms = Terms {
            operator: self.operator,
            minimum: self.minimum_should_match.as_ref(),
            fuzziness: self.fuzziness,
            fuzzy: &self.fuzzy,
            prefix: true,
            synonym_phrases: true,
        };
        let clause = "match_bool_prefix";
        match resolver.analyzed(clause, &self.field, &self.query, &self.analyzer, &terms, weight) {
            Ok(node) => Ok(node.unwrap_or(Node::None)),
            Err(_) if self.lenient => Ok(Node::None),
            Err(error) => Err(error),
        }
    }
}

impl<'a> Resolver<'a> {
    /// Resolves a text; `None` where it has no terms.
    fn analyzed(
        &mut self,
        clause: &str,
        path: &str,
        query: &Value,
        analyzer: &Option<String>,
        terms: &Terms<'_>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        self.rewrite_known(terms.fuzzy.rewrite.as_ref())?;
        let named = self.named_analyzer(clause, analyzer)?;
        if let Some(node) = self.metadata_term(path, &[query], weight) {
            return match terms.fuzziness {
                Some(_) => Err(super::pattern::unfit_for_fuzzy(path, path)),
                None => node.map(Some),
            };
        }
        let Some(target) = self.target(path) else { return Ok(Some(Node::None)) };
        let Some(analyzer) = named.or(self.search_analyzer(target.field)) else {
            // The value is one term, as it is.
            let prefix = terms.prefix && target.field.field_type == FieldType::Keyword;
            return self.one_value(&target, query, terms, prefix, weight).map(Some);
        };
        searchable(target.field)?;
        let tokens = Tokens::new(analyzer, &text(query).unwrap_or_default())?;
        self.terms_of(&target, &tokens, terms, weight)
    }

    /// Finds an analyzer that a clause names.
    pub(super) fn named_analyzer(&self, clause: &str, name: &Option<String>) -> Result<Option<&'_ Analyzer>> {
        let Some(name) = name else { return Ok(None) };
        match self.index.mapping.analyzers().get(name) {
            Some(analyzer) => Ok(Some(analyzer)),
            None => Err(Error::QueryShard {
                reason: format!("[{clause}] analyzer [{name}] not found"),
                caused_by: None,
            }),
        }
    }

    /// The analyzer that cuts texts for a field; `None` where they are values as they are.
    pub(super) fn search_analyzer(&self, field: &Field) -> Option<&'_ Analyzer> {
        let analyzers = self.index.mapping.analyzers();
        match field.field_type {
            FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => {
                analyzers.get(&field.search_analyzer)
            }
            FieldType::Keyword if splits_on_whitespace(field) => analyzers.get("whitespace"),
            _ => None,
        }
    }

    fn one_value(
        &mut self,
        target: &Target<'a>,
        value: &Value,
        terms: &Terms<'_>,
        prefix: bool,
        weight: Weight,
    ) -> Result<Node> {
        match terms.fuzziness {
            _ if prefix => {
                let value = target.string(self.index.mapping, value)?;
                searchable_strings(target.field)?;
                let pattern = Pattern::prefix(&value, false)?;
                self.count_leaf()?;
                Ok(self.pattern_node(target, String::new(), pattern, None, weight))
            }
            Some(fuzziness) => {
                self.near(target, &text(value).unwrap_or_default(), fuzziness, terms.fuzzy, weight)
            }
            None => {
                self.count_leaf()?;
                self.exact(target, value, weight)
            }
        }
    }

    /// Makes the node of tokens; `None` where there are none.
    fn terms_of(
        &mut self,
        target: &Target<'a>,
        tokens: &Tokens,
        terms: &Terms<'_>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let prefix = terms.prefix && tokens.to_the_end;
        match tokens.list.as_slice() {
            [] => return Ok(None),
            [token] => return self.one_term(target, &token.term, terms, prefix, weight).map(Some),
            _ => {}
        }
        if tokens.is_graph() {
            return self.graph(target, tokens, terms, weight).map(Some);
        }
        let places = tokens.by_position();
        if let [(_, same)] = places.as_slice() {
            return self.synonyms(target, same, weight).map(Some);
        }
        let mut clauses = Vec::with_capacity(places.len().min(MAX_CLAUSES + 1));
        let last = places.len() - 1;
        for (at, (_, same)) in places.iter().enumerate() {
            clauses.push(match same.as_slice() {
                [term] => self.one_term(target, term, terms, prefix && at == last, weight)?,
                _ => self.synonyms(target, same, weight)?,
            });
            if clauses.len() > MAX_CLAUSES {
                return Err(Error::TooManyClauses(MAX_CLAUSES));
            }
        }
        Ok(Some(combined(clauses, terms)))
    }

    /// Makes the node of a token graph: a clause for each stretch.
    fn graph(
        &mut self,
        target: &Target<'a>,
        tokens: &Tokens,
        terms: &Terms<'_>,
        weight: Weight,
    ) -> Result<Node> {
        let stretches = stretches(tokens)?;
        let last = stretches.len().saturating_sub(1);
        let phrases = terms.synonym_phrases && has_positions(target.field);
        let mut clauses = Vec::with_capacity(stretches.len());
        for (at, stretch) in stretches.iter().enumerate() {
            let prefix = terms.prefix && at == last;
            let node = match stretch {
                GraphSection::Terms(same) => match same.as_slice() {
                    [token] => Some(self.one_term(target, &token.term, terms, prefix, weight)?),
                    _ => {
                        let same: Vec<String> = same.iter().map(|token| token.term.clone()).collect();
                        Some(self.synonyms(target, &same, weight)?)
                    }
                },
                GraphSection::Ways(ways) => {
                    let mut any = Vec::with_capacity(ways.len());
                    for way in ways {
                        // A phrase of one term is that term, which may be near others.
                        let is_phrase = way.list.len() > 1 || terms.fuzziness.is_none();
                        any.extend(match phrases && is_phrase {
                            true => self.phrase_of(target, way, 0, prefix.then_some(50), weight)?,
                            false => {
                                let every = Terms {
                                    fuzziness: terms.fuzziness,
                                    fuzzy: terms.fuzzy,
                                    prefix,
                                    ..EVERY_TERM
                                };
                                self.terms_of(target, way, &every, weight)?
                            }
                        });
                    }
                    any_of(any)
                }
            };
            clauses.extend(node);
        }
        Ok(combined(clauses, terms))
    }

    /// Makes the node of one term.
    fn one_term(
        &mut self,
        target: &Target<'a>,
        term: &str,
        terms: &Terms<'_>,
        prefix: bool,
        weight: Weight,
    ) -> Result<Node> {
        if target.field.field_type.is_text() && !prefix && terms.fuzziness.is_none() {
            self.count_leaf()?;
            return Ok(self.text_term(target.field, term.to_owned(), weight));
        }
        if target.field.field_type.is_text() && prefix {
            self.count_leaf()?;
            if let Some(node) = self.shingle_start(target, term, false, None, weight)? {
                return Ok(node);
            }
            let pattern = Pattern::prefix(term, false)?;
            return Ok(self.pattern_node(target, String::new(), pattern, None, weight));
        }
        let prefix = prefix && target.field.field_type == FieldType::Keyword;
        self.one_value(target, &Value::String(term.to_owned()), terms, prefix, weight)
    }

    /// Makes the node of terms that mean the same.
    pub(super) fn synonyms(&mut self, target: &Target<'a>, terms: &[String], weight: Weight) -> Result<Node> {
        let field = target.field;
        if terms.len() > MAX_CLAUSES {
            return Err(Error::TooManyClauses(MAX_CLAUSES));
        }
        self.count_leaf()?;
        if !field.field_type.is_text() {
            let exact = |term: &String| self.exact(target, &Value::String(term.clone()), weight);
            let any = terms.iter().map(exact).collect::<Result<Vec<_>>>()?;
            return Ok(any_of(any).unwrap_or(Node::None));
        }
        let mut distinct = terms.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if let [term] = distinct.as_slice() {
            return Ok(self.text_term(field, term.clone(), weight));
        }
        let statistics = distinct.iter().cloned().map(StatisticsTerm::Text).collect();
        let weight = self.joined(weight, field, statistics, Join::Synonyms);
        Ok(Node::Synonyms { path: field.id, terms: distinct.into(), weight })
    }

    pub(super) fn text_term(&mut self, field: &Field, term: String, weight: Weight) -> Node {
        let weight = match field.field_type {
            FieldType::MatchOnlyText => weight,
            _ => self.bm25(weight, field, StatisticsTerm::Text(term.clone())),
        };
        Node::Text { path: field.id, term, weight }
    }
}

/// Returns the node for a text without terms.
pub(super) fn zero_terms(zero_terms: ZeroTerms, weight: Weight) -> Node {
    match zero_terms {
        ZeroTerms::None => Node::None,
        ZeroTerms::All => Node::All(weight),
    }
}

/// Returns whether postings of a field carry positions.
pub(super) fn has_positions(field: &Field) -> bool {
    let options = field.params.get("index_options").and_then(Value::as_str);
    field.index
        && matches!(field.field_type, FieldType::Text | FieldType::SearchAsYouType(_))
        && !matches!(options, Some("docs" | "freqs"))
}

fn splits_on_whitespace(field: &Field) -> bool {
    field.params.get("split_queries_on_whitespace").and_then(Value::as_bool).unwrap_or(false)
}

/// Any of the nodes; `None` where there are none.
pub(super) fn any_of(mut nodes: Vec<Node>) -> Option<Node> {
    match nodes.len() {
        0 => None,
        1 => nodes.pop(),
        _ => Some(Node::AtLeast(1, nodes)),
    }
}

/// Combines the clauses of a text.
fn combined(mut clauses: Vec<Node>, terms: &Terms<'_>) -> Node {
    let count = clauses.len();
    let required = match (terms.operator, terms.minimum) {
        // None of the clauses is optional: a number of those is never reached.
        (Operator::And, Some(spec)) if spec.required(0) > 0 => return Node::None,
        (Operator::And, _) => count,
        (Operator::Or, None) => 1,
        (Operator::Or, Some(spec)) => spec.required(count).max(1),
    };
    match (required, count) {
        (_, 0) => Node::None,
        (required, count) if required > count => Node::None,
        (_, 1) => clauses.remove(0),
        (required, count) if required == count => Node::And(clauses),
        (required, _) => Node::AtLeast(required, clauses),
    }
}
