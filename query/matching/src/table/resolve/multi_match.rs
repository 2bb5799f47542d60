//! `multi_match`, and the texts of query strings: one text in several fields.

use millrace_dsl::minimum_should_match::MinimumShouldMatch;
use millrace_dsl::query::{
    Fuzziness, FuzzyOptions, MAX_CLAUSES, MatchBoolPrefixQuery, MatchPhrasePrefixQuery, MatchPhraseQuery,
    MatchQuery, MatchType, MultiMatchQuery, Operator, ZeroTerms,
};
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::boolean::Boolean;
use super::fields::Fields;
use super::full_text::zero_terms;
use super::{LowerClause, Resolver};

/// Options of the search for a text in fields.
#[derive(Clone, Debug)]
pub(super) struct TextOptions<'q> {
    /// Combination of the fields.
    pub match_type: MatchType,
    /// Operator between terms.
    pub operator: Operator,
    /// Number of terms that must match under [`Operator::Or`].
    pub minimum_should_match: Option<MinimumShouldMatch>,
    /// Analyzer instead of those of the fields.
    pub analyzer: Option<&'q str>,
    /// Number of positions by which the terms of a phrase may be moved in all.
    pub slop: u32,
    /// Edits that terms may be away, where they may.
    pub fuzziness: Option<Fuzziness>,
    /// Options for near terms.
    pub fuzzy: FuzzyOptions,
    /// Share of the score of fields that are not the best.
    pub tie_breaker: f32,
    /// `true` if a value that does not fit a field matches nothing instead of being refused.
    pub lenient: bool,
    /// Result for a text without terms; `None` where it is as if it were not there.
    pub zero_terms: Option<ZeroTerms>,
    /// `true` if synonyms of several words are phrases.
    pub synonym_phrases: bool,
    /// `true` if words that analysis removes leave gaps in phrases.
    pub gaps: bool,
}

impl LowerClause for MultiMatchQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.known_analyzer("multi_match", "analyzer", self.analyzer.as_deref())?;
        let named = match self.fields.is_empty() {
            true => resolver.default_fields("multi_match")?,
            false => self.fields.clone(),
        };
        let options = TextOptions {
            match_type: self.match_type,
            operator: self.operator,
            minimum_should_match: minimum(self.minimum_should_match.as_deref())?,
            analyzer: self.analyzer.as_deref(),
            slop: self.slop,
            fuzziness: self.fuzziness,
            fuzzy: self.fuzzy.clone(),
            tie_breaker: self.tie_breaker.unwrap_or(self.match_type.tie_breaker()),
            lenient: self.lenient.unwrap_or(named.all()),
            zero_terms: Some(self.zero_terms),
            synonym_phrases: self.synonym_phrases,
            gaps: true,
        };
        let fields = resolver.fields(&named, None)?;
        Ok(resolver.text(&options, &fields, &self.query, weight)?.unwrap_or(Node::None))
    }
}

impl Resolver<'_> {
    /// A text in fields; `None` where no term of it is left and that shall be as if it were not there.
    pub(super) fn text(
        &mut self,
        options: &TextOptions<'_>,
        fields: &Fields,
        text: &str,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let mapped: Vec<(&str, f32)> = fields
            .iter()
            .map(|(name, boost)| (name.as_str(), *boost))
            .filter(|(name, _)| self.is_mapped(name))
            .collect();
        if mapped.is_empty() {
            return Ok(Some(Node::None));
        }
        let mut parts = Vec::new();
        if options.match_type == MatchType::CrossFields {
            for group in self.groups(&mapped, options.analyzer) {
                parts.extend(match group.as_slice() {
                    [(name, boost)] => self.text_in(options, name, text, scaled(weight, *boost))?,
                    several => self.blended(options, several, text, weight)?,
                });
            }
        } else {
            for (name, boost) in mapped {
                parts.extend(self.text_in(options, name, text, scaled(weight, boost))?);
            }
        }
        if parts.is_empty() {
            return Ok(options.zero_terms.map(|zero| zero_terms(zero, weight)));
        }
        best_of(parts, options.tie_breaker).map(Some)
    }

    /// A text in one field.
    fn text_in(
        &mut self,
        options: &TextOptions<'_>,
        name: &str,
        text: &str,
        weight: Weight,
    ) -> Result<Option<Node>> {
        if options.zero_terms.is_none() && !self.has_terms(name, options, text)? {
            return Ok(None);
        }
        if options.match_type == MatchType::Phrase && !options.gaps {
            return self.without_gaps(options, name, text, weight);
        }
        let value = Value::String(text.to_owned());
        let zero = options.zero_terms.unwrap_or_default();
        let analyzer = options.analyzer.map(str::to_owned);
        let phrase = |query: Value| MatchPhraseQuery {
            analyzer: analyzer.clone(),
            slop: options.slop,
            zero_terms: zero,
            lenient: options.lenient,
            ..MatchPhraseQuery::new(name, query)
        };
        let node = match options.match_type {
            MatchType::BestFields | MatchType::MostFields | MatchType::CrossFields => {
                let query = MatchQuery {
                    operator: options.operator,
                    minimum_should_match: options.minimum_should_match.clone(),
                    analyzer: analyzer.clone(),
                    fuzziness: options.fuzziness,
                    fuzzy: options.fuzzy.clone(),
                    zero_terms: zero,
                    lenient: options.lenient,
                    synonym_phrases: options.synonym_phrases,
                    ..MatchQuery::new(name, value)
                };
                query.resolve(self, weight)
            }
            MatchType::Phrase => phrase(value).resolve(self, weight),
            MatchType::PhrasePrefix => {
                MatchPhrasePrefixQuery { phrase: phrase(value), max_expansions: options.fuzzy.max_expansions }
                    .resolve(self, weight)
            }
            MatchType::BoolPrefix => MatchBoolPrefixQuery {
                operator: options.operator,
                minimum_should_match: options.minimum_should_match.clone(),
                analyzer: analyzer.clone(),
                fuzziness: options.fuzziness,
                fuzzy: options.fuzzy.clone(),
                lenient: options.lenient,
                ..MatchBoolPrefixQuery::new(name, value)
            }
            .resolve(self, weight),
        };
        node.map(Some)
    }

    /// A phrase whose terms stand side by side whatever was between them.
    fn without_gaps(
        &mut self,
        options: &TextOptions<'_>,
        name: &str,
        text: &str,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let Some(target) = self.target(name) else { return Ok(Some(Node::None)) };
        let phrase = match self.tokens(&target, options.analyzer, true, text)? {
            None => self.term_of(name, &Value::String(text.to_owned()), weight).map(Some),
            Some(mut tokens) => {
                tokens.list.iter_mut().for_each(|token| token.increment = token.increment.min(1));
                self.phrase_of(&target, &tokens, options.slop, None, weight)
            }
        };
        match phrase {
            Err(error) if options.lenient && !unforgivable(&error) => Ok(Some(Node::None)),
            other => other,
        }
    }

    /// Returns whether any term of a text is left for a field.
    fn has_terms(&self, name: &str, options: &TextOptions<'_>, text: &str) -> Result<bool> {
        let Some(target) = self.target(name) else { return Ok(true) };
        let quoted = matches!(options.match_type, MatchType::Phrase | MatchType::PhrasePrefix);
        let tokens = self.tokens(&target, options.analyzer, quoted, text)?;
        Ok(tokens.is_none_or(|tokens| !tokens.list.is_empty()))
    }

    /// Refuses an analyzer that the index does not have.
    pub(super) fn known_analyzer(&self, clause: &str, option: &str, name: Option<&str>) -> Result<()> {
        match name {
            Some(name) if self.index.mapping.analyzers().get(name).is_none() => Err(Error::QueryShard {
                reason: format!("[{clause}] {option} [{name}] not found"),
                caused_by: None,
            }),
            _ => Ok(()),
        }
    }

    /// Groups fields by what cuts a text into terms for them.
    fn groups<'n>(&self, fields: &[(&'n str, f32)], forced: Option<&str>) -> Vec<Vec<(&'n str, f32)>> {
        let mut groups: Vec<(String, Vec<(&'n str, f32)>)> = Vec::new();
        for (name, boost) in fields {
            let analyzer = match (forced, self.target(name)) {
                (Some(forced), _) => format!("analyzer {forced}"),
                (None, Some(target)) if target.field.field_type.is_text() => {
                    format!("analyzer {}", target.field.search_analyzer)
                }
                (None, Some(target)) => match &target.field.normalizer {
                    Some(normalizer) => format!("normalizer {normalizer}"),
                    None if self.search_analyzer(target.field).is_some() => "analyzer whitespace".to_owned(),
                    None => String::new(),
                },
                (None, None) => String::new(),
            };
            match groups.iter_mut().find(|(known, _)| *known == analyzer) {
                Some((_, group)) => group.push((name, *boost)),
                None => groups.push((analyzer, vec![(name, *boost)])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// A text in fields that are one: each term may be in any of them, and is as frequent in each as
    /// where it is most frequent.
    fn blended(
        &mut self,
        options: &TextOptions<'_>,
        fields: &[(&str, f32)],
        text: &str,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let target = fields.first().and_then(|(name, _)| self.target(name));
        let tokens = match &target {
            Some(target) => self.tokens(target, options.analyzer, false, text)?,
            None => None,
        };
        let positions = match tokens {
            Some(tokens) => tokens.by_position().into_iter().map(|(_, terms)| terms).collect(),
            None => vec![vec![text.to_owned()]],
        };
        if positions.is_empty() {
            return Ok(options.zero_terms.map(|zero| zero_terms(zero, weight)));
        }
        let single = positions.len() == 1;
        let mut boolean = Boolean::default();
        for terms in positions {
            if boolean.len() == MAX_CLAUSES {
                return Err(Error::TooManyClauses(MAX_CLAUSES));
            }
            let part = self.blended_terms(options, fields, &terms, weight)?;
            if single {
                return Ok(Some(part));
            }
            match options.operator {
                Operator::And => boolean.must.push(part),
                Operator::Or => boolean.should.push(part),
            }
        }
        boolean.require(options.minimum_should_match.as_ref());
        Ok(Some(boolean.node(weight)))
    }

    fn blended_terms(
        &mut self,
        options: &TextOptions<'_>,
        fields: &[(&str, f32)],
        terms: &[String],
        weight: Weight,
    ) -> Result<Node> {
        let (mut blended, mut others) = (Vec::new(), Vec::new());
        let mut slots = Vec::new();
        for (name, boost) in fields {
            for term in terms {
                let value = Value::String(term.clone());
                let node = match self.term_of(name, &value, scaled(weight, *boost)) {
                    Err(error) if options.lenient && !unforgivable(&error) => Node::None,
                    other => other?,
                };
                match &node {
                    Node::Text { weight: Weight::Bm25(slot), .. }
                    | Node::Exact { weight: Weight::Bm25(slot), .. } => {
                        slots.push(*slot);
                        blended.push(node);
                    }
                    _ => others.push(node),
                }
            }
        }
        if slots.len() > 1 {
            self.blend(&slots);
        }
        if !blended.is_empty() {
            others.push(best_of(blended, options.tie_breaker)?);
        }
        best_of(others, options.tie_breaker)
    }

    /// A term as the field holds it, not analyzed any more.
    pub(super) fn term_of(&mut self, name: &str, term: &Value, weight: Weight) -> Result<Node> {
        if let Some(node) = self.metadata_term(name, &[term], weight) {
            return node;
        }
        let Some(target) = self.target(name) else { return Ok(Node::None) };
        self.count_leaf()?;
        self.exact(&target, term, weight)
    }

    /// Lets the terms of these statistics be as frequent as the most frequent of them.
    fn blend(&mut self, slots: &[usize]) {
        let group = slots.first().copied();
        for slot in slots {
            if let Some(statistics) = self.statistics.get_mut(*slot) {
                statistics.blend = group;
            }
        }
    }
}

/// Reads a `minimum_should_match`.
pub(super) fn minimum(text: Option<&str>) -> Result<Option<MinimumShouldMatch>> {
    text.map(MinimumShouldMatch::parse).transpose()
}

/// Returns whether an error is one of the whole query, which leniency about values does not cover.
pub(super) fn unforgivable(error: &Error) -> bool {
    matches!(error, Error::TooManyClauses(_) | Error::TooManyNestedClauses(_))
}

/// Multiplies the weight of a clause.
pub(super) fn scaled(weight: Weight, boost: f32) -> Weight {
    match weight {
        Weight::Constant(score) => Weight::Constant(score * boost),
        other => other,
    }
}

/// Any of several conditions, with the best score and a share of the others.
pub(super) fn best_of(mut parts: Vec<Node>, tie_breaker: f32) -> Result<Node> {
    if parts.len() > 1 && !(0.0..=1.0).contains(&tie_breaker) {
        return Err(Error::IllegalArgument("tieBreakerMultiplier must be in [0, 1]".to_owned()));
    }
    parts.retain(|part| !matches!(part, Node::None));
    Ok(match parts.len() {
        0 => Node::None,
        1 => parts.remove(0),
        _ => Node::DisMax(tie_breaker, parts),
    })
}
