//! `intervals`: rules to expressions over the terms of an index.

use std::sync::Arc;

use millrace_dsl::query::{
    IntervalFilter, IntervalMode, IntervalRule, IntervalsQuery, MAX_CLAUSES, RegexpQuery, TermSource,
};
use millrace_mapping::analysis::Analyzer;
use millrace_mapping::{Field, FieldType};
use millrace_scoring::automaton::{Pattern, pieces};
use millrace_scoring::intervals::source::Source;
use millrace_scoring::intervals::{Intervals, IntervalsLeaf, LeafTerms};
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};

use super::full_text::has_positions;
use super::graph::{GraphSection, stretches};
use super::tokens::{Token, Tokens};
use super::{LowerClause, Resolver};

/// Most terms of a segment that a pattern may find where the rule does not say otherwise, as Lucene has it.
const MAX_EXPANSIONS: usize = 128;

impl LowerClause for IntervalsQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let mapping = resolver.index.mapping;
        let Some(field) = mapping.field(&self.field) else { return Ok(Node::None) };
        let mut unmapped = false;
        self.rule.fields(&mut |other| unmapped |= mapping.field(other).is_none());
        if unmapped {
            return Ok(Node::None);
        }
        let mut builder = Builder { resolver, leaves: Vec::new() };
        let source = builder.rule(&self.rule, field)?;
        let intervals = Arc::new(Intervals { source, leaves: builder.leaves });
        for _ in &intervals.leaves {
            resolver.count_leaf()?;
        }
        Ok(Node::Intervals { path: field.id, intervals, weight })
    }
}

struct Builder<'a, 'b> {
    resolver: &'a Resolver<'b>,
    leaves: Vec<IntervalsLeaf>,
}

impl<'b> Builder<'_, 'b> {
    fn rule(&mut self, rule: &IntervalRule, field: &'b Field) -> Result<Source> {
        let source = self.unbounded(rule, field)?;
        // Rules without overlaps double what they are made of.
        match source.is_too_large() {
            true => Err(Error::TooManyClauses(MAX_CLAUSES)),
            false => Ok(source),
        }
    }

    fn unbounded(&mut self, rule: &IntervalRule, field: &'b Field) -> Result<Source> {
        match rule {
            IntervalRule::Match { query, max_gaps, mode, source, filter } => {
                let (own, fixed) = self.field(source, field)?;
                positioned_text(own)?;
                let analyzer = self.analyzer(source, own)?;
                let found = match Tokens::new(analyzer, query)? {
                    tokens if tokens.list.is_empty() => Source::Nothing,
                    tokens => self.text(own, &tokens, *max_gaps, *mode)?,
                };
                // Conditions are about the field of the text.
                self.filtered(fixed.of(found), filter.as_deref(), own)
            }
            IntervalRule::Prefix { prefix, source } => {
                let (own, fixed) = self.field(source, field)?;
                positioned_text(own)?;
                let start = self.analyzer(source, own)?.normalize(prefix);
                let pattern = Pattern::prefix(&start, false)?;
                Ok(fixed.of(self.matching(own, pattern, format!("{start}*"), None)?))
            }
            IntervalRule::Wildcard { pattern, max_expansions, source } => {
                let (own, fixed) = self.field(source, field)?;
                positioned(own)?;
                let normal = self.analyzer(source, own)?.normalize(pattern);
                let wildcard = Pattern::of_pieces(&pieces(&normal), false)?;
                Ok(fixed.of(self.matching(own, wildcard, normal, *max_expansions)?))
            }
            IntervalRule::Regexp { pattern, flags, max_expansions, source } => {
                let (own, fixed) = self.field(source, field)?;
                positioned(own)?;
                let states = RegexpQuery::MAX_DETERMINIZED_STATES as i64;
                let expression = Pattern::regexp(pattern, *flags, false, states)?;
                Ok(fixed.of(self.matching(own, expression, pattern.clone(), *max_expansions)?))
            }
            IntervalRule::Fuzzy { term, prefix_length, transpositions, fuzziness, source } => {
                let (own, fixed) = self.field(source, field)?;
                positioned(own)?;
                let normal = self.analyzer(source, own)?.normalize(term);
                let edits = fuzziness.edits(term);
                let near = Pattern::near(&normal, edits, *prefix_length, *transpositions);
                Ok(fixed.of(self.matching(own, near, term.clone(), None)?))
            }
            IntervalRule::AllOf { intervals, mode, max_gaps, filter } => {
                let parts = self.rules(intervals, field)?;
                self.filtered(combined(parts, *max_gaps, *mode)?, filter.as_deref(), field)
            }
            IntervalRule::AnyOf { intervals, filter } => {
                let parts = self.rules(intervals, field)?;
                self.filtered(Source::any(parts), filter.as_deref(), field)
            }
        }
    }

    fn rules(&mut self, rules: &[IntervalRule], field: &'b Field) -> Result<Vec<Source>> {
        rules.iter().map(|rule| self.rule(rule, field)).collect()
    }

    fn filtered(
        &mut self,
        source: Source,
        filter: Option<&IntervalFilter>,
        field: &'b Field,
    ) -> Result<Source> {
        let Some(filter) = filter else { return Ok(source) };
        let other = self.rule(&filter.rule, field)?;
        match &filter.relation {
            Ok(relation) => Ok(source.related(*relation, other)),
            Err(name) => Err(Error::IllegalArgument(format!("Unknown filter type [{name}]"))),
        }
    }

    /// Finds the field whose terms a rule is about.
    fn field(&self, source: &TermSource, field: &'b Field) -> Result<(&'b Field, Fixed)> {
        let Some(name) = &source.use_field else { return Ok((field, Fixed(false))) };
        match self.resolver.index.mapping.field(name) {
            Some(other) => Ok((other, Fixed(true))),
            None => Err(Error::IllegalArgument(format!("no field found with name [{name}]"))),
        }
    }

    /// An analyzer that there is not is the field's own, as in OpenSearch.
    fn analyzer(&self, source: &TermSource, field: &Field) -> Result<&'b Analyzer> {
        let analyzers = self.resolver.index.mapping.analyzers();
        let named = source.analyzer.as_deref().and_then(|name| analyzers.get(name));
        named
            .or_else(|| analyzers.get(&field.search_analyzer))
            .ok_or_else(|| Error::Execution(format!("analyzer [{}] is gone", field.search_analyzer)))
    }

    /// Makes the source of an analyzed text.
    fn text(&mut self, field: &Field, tokens: &Tokens, max_gaps: i32, mode: IntervalMode) -> Result<Source> {
        if let [token] = tokens.list.as_slice() {
            return self.term(field, &token.term);
        }
        let parts = match tokens.spans_positions() {
            true => self.graph(field, tokens)?,
            false => self.positions(field, tokens)?,
        };
        combined(parts, max_gaps, mode)
    }

    /// One source a position; an omitted token of a text counts as part of the next one.
    fn positions(&mut self, field: &Field, tokens: &Tokens) -> Result<Vec<Source>> {
        let mut parts = Vec::new();
        let mut before = 0;
        for (position, terms) in tokens.by_position() {
            let spaces = position.saturating_sub(before).saturating_sub(1);
            before = position;
            let same: Result<Vec<Source>> = terms.iter().map(|term| self.term(field, term)).collect();
            parts.push(Source::any(same?).behind(spaces));
        }
        Ok(parts)
    }

    fn graph(&mut self, field: &Field, tokens: &Tokens) -> Result<Vec<Source>> {
        let mut parts = Vec::new();
        for stretch in stretches(tokens)? {
            let ways: Vec<Vec<Token>> = match stretch {
                GraphSection::Terms(same) => same.into_iter().map(|token| vec![token]).collect(),
                GraphSection::Ways(ways) => ways.into_iter().map(|way| way.list).collect(),
            };
            let mut any = Vec::with_capacity(ways.len());
            for way in ways {
                let mut row = Vec::with_capacity(way.len());
                for token in way {
                    row.push(self.term(field, &token.term)?.behind(token.increment.saturating_sub(1)));
                }
                any.push(combined(row, 0, IntervalMode::Ordered)?);
            }
            parts.push(Source::any(any));
        }
        Ok(parts)
    }

    fn term(&mut self, field: &Field, term: &str) -> Result<Source> {
        let same = |leaf: &IntervalsLeaf| {
            leaf.path == field.id && matches!(&leaf.terms, LeafTerms::One(own) if own == term)
        };
        match self.leaves.iter().position(same) {
            Some(known) => Ok(Source::Leaf(known)),
            None => self.leaf(field, LeafTerms::One(term.to_owned())),
        }
    }

    fn matching(
        &mut self,
        field: &Field,
        pattern: Pattern,
        shown: String,
        max_expansions: Option<usize>,
    ) -> Result<Source> {
        let most = max_expansions.unwrap_or(MAX_EXPANSIONS);
        if most > MAX_CLAUSES {
            return Err(Error::IllegalArgument(format!(
                "maxExpansions [{most}] cannot be greater than BooleanQuery.getMaxClauseCount [{MAX_CLAUSES}]"
            )));
        }
        self.leaf(
            field,
            LeafTerms::Matching { pattern: Arc::new(pattern), shown, most, rules: self.resolver.rules },
        )
    }

    fn leaf(&mut self, field: &Field, terms: LeafTerms) -> Result<Source> {
        if self.leaves.len() >= MAX_CLAUSES {
            return Err(Error::TooManyNestedClauses(MAX_CLAUSES));
        }
        self.leaves.push(IntervalsLeaf { path: field.id, terms });
        Ok(Source::Leaf(self.leaves.len() - 1))
    }
}

/// Set for a rule that names its field itself.
struct Fixed(bool);

impl Fixed {
    fn of(&self, source: Source) -> Source {
        if self.0 { Source::Fixed(Box::new(source)) } else { source }
    }
}

/// Puts parts together.
fn combined(mut parts: Vec<Source>, max_gaps: i32, mode: IntervalMode) -> Result<Source> {
    let limited = |source: Source| if max_gaps == -1 { source } else { source.max_gaps(max_gaps) };
    match parts.len() {
        0 => return Ok(Source::Nothing),
        1 => return Ok(parts.remove(0)),
        _ => {}
    }
    Ok(match mode {
        IntervalMode::Ordered if max_gaps == 0 => Source::block(parts)?,
        IntervalMode::Ordered => limited(Source::ordered(parts)),
        IntervalMode::Unordered => limited(Source::unordered(parts)),
        IntervalMode::NoOverlap => {
            let mut rest = parts.into_iter();
            let mut joined = rest.next().unwrap_or(Source::Nothing);
            for (at, next) in rest.enumerate() {
                let before = if at == 0 { joined } else { limited(joined) };
                joined = Source::any(vec![
                    Source::ordered(vec![before.clone(), next.clone()]),
                    Source::ordered(vec![next, before]),
                ]);
                if joined.is_too_large() {
                    return Err(Error::TooManyClauses(MAX_CLAUSES));
                }
            }
            limited(joined)
        }
    })
}

fn positioned_text(field: &Field) -> Result<()> {
    match field.field_type {
        FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => positioned(field),
        _ => Err(Error::IllegalArgument(format!(
            "Can only use interval queries on text fields - not on [{}] which is of type [{}]",
            field.path,
            field.type_name()
        ))),
    }
}

fn positioned(field: &Field) -> Result<()> {
    match has_positions(field) {
        true => Ok(()),
        false => Err(Error::IllegalArgument(format!(
            "Cannot create intervals over field [{}] with no positions indexed",
            field.path
        ))),
    }
}
