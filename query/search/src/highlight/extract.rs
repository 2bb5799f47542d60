//! Finds what a query would have marked.
//!
//! Compound clauses are followed here, down to all clauses that are not excluded; what a leaf means for
//! an index is what `table::resolve` makes of it. A clause is looked at whether or not it matched.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_dsl::query::{Query, Role};
use millrace_mapping::{FieldType, PathId, Scalar};
use millrace_matching::table::leaf::Leaf;
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::resolve::{IndexContext, resolve};
use millrace_matching::table::{TableSegment, statistics};
use millrace_scoring::automaton;
use millrace_scoring::intervals::LeafTerms;
use millrace_scoring::node::{Node, ResolvedPredicate};
use millrace_scoring::operands::{TextBound, Weight};
use millrace_scoring::phrase as score;
use millrace_scoring::spans::expression::{Span, SpanLeaf, SpanTerms};
use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::terms::{HighlightTarget, Pattern, PositionTerms, Spans, TargetKind};

/// Lists the highlighting targets of a query in an index.
///
/// # Errors
/// A clause that the index refuses.
pub(crate) fn wanted(
    query: &Query,
    index: IndexContext<'_>,
    shard: Shard<'_>,
) -> Result<Vec<HighlightTarget>> {
    let mut extractor = Extractor { index, shard, wanted: Vec::new() };
    extractor.query(query, 1.0, false)?;
    Ok(extractor.wanted)
}

/// The shard whose hits are marked, for terms that each shard chooses by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard<'a> {
    /// Its segments; none where elements are marked, for which any shard's choice is taken.
    pub segments: &'a [TableSegment],
    /// The work that asks.
    pub work: &'a QueryContext,
}

struct Extractor<'a> {
    index: IndexContext<'a>,
    shard: Shard<'a>,
    wanted: Vec<HighlightTarget>,
}

impl Extractor<'_> {
    fn query(&mut self, query: &Query, boost: f32, hidden: bool) -> Result<()> {
        let boost = boost * query.common().boost;
        if query.is_compound() {
            return query.parts().into_iter().try_for_each(|(role, part)| match role {
                Role::Matching => self.query(part, boost, hidden),
                Role::Enclosed => self.query(part, boost, true),
                Role::Lowering | Role::Apart | Role::Inner => Ok(()),
            });
        }
        self.leaf(query, boost, hidden)
    }

    fn leaf(&mut self, leaf: &Query, boost: f32, hidden: bool) -> Result<()> {
        let leaf = Predicate::Leaf(Arc::new(Leaf::new(leaf.clone(), boost, true)));
        let resolved = resolve(&leaf, self.index)?;
        let before = self.wanted.len();
        self.node(&resolved.node, &resolved, boost, hidden)?;
        // Terms of one leaf that share a score were given as a set.
        if let Node::Constant(..) = &resolved.node {
            self.join(before);
        }
        Ok(())
    }

    /// Makes one pattern of the terms since a place in the list, where there are several.
    fn join(&mut self, from: usize) {
        let mut terms = HashSet::new();
        for wanted in &self.wanted[from..] {
            match &wanted.what {
                TargetKind::Term(term) => terms.insert(term.clone()),
                _ => return,
            };
        }
        if terms.len() > 1 {
            self.wanted.truncate(from + 1);
            self.wanted[from].what = TargetKind::Pattern(Pattern::OneOf(terms));
        }
    }

    fn node(&mut self, node: &Node, resolved: &ResolvedPredicate, boost: f32, hidden: bool) -> Result<()> {
        let of = |weight: &Weight| match weight {
            Weight::None => boost,
            Weight::Constant(own) => *own,
            Weight::Bm25(at) => resolved.statistics.get(*at).map_or(boost, |term| term.boost),
        };
        match node {
            Node::Text { path, term, weight } => {
                self.add(*path, of(weight), hidden, TargetKind::Term(term.clone()))
            }
            Node::Exact { path, value, weight, .. } => {
                if let Some(term) = self.string(*path, &value.value) {
                    self.add(*path, of(weight), hidden, TargetKind::Term(term));
                }
            }
            Node::AnyExact { path, values, weight, .. } => {
                let terms: Vec<String> =
                    values.iter().filter_map(|value| self.string(*path, &value.value)).collect();
                let what = match terms.as_slice() {
                    [] => return Ok(()),
                    [one] => TargetKind::Term(one.clone()),
                    _ => TargetKind::Pattern(Pattern::OneOf(terms.into_iter().collect())),
                };
                self.add(*path, of(weight), hidden, what);
            }
            Node::Matching { path, pattern, weight, .. } => {
                self.automaton(*path, pattern, of(weight), hidden);
            }
            Node::Expanded(at) => self.expanded(*at, resolved, hidden),
            Node::ManyExpanded { slots, .. } if self.shard.segments.is_empty() => {
                slots.iter().for_each(|at| self.expanded(*at, resolved, hidden));
            }
            Node::ManyExpanded { slots, .. } => {
                let found = statistics::expanded(&resolved.expansions, self.shard.segments, self.shard.work)?;
                for slot in slots {
                    let Some(found) = found.expansion(*slot) else { continue };
                    let boost = resolved.expansions.get(*slot).map_or(boost, |expansion| expansion.boost);
                    for term in &found.terms {
                        self.add(found.path, boost, hidden, TargetKind::Term(term.term.clone()));
                    }
                }
            }
            Node::Synonyms { path, terms, weight } => {
                for term in terms.iter() {
                    self.add(*path, of(weight), hidden, TargetKind::Term(term.clone()));
                }
            }
            Node::Phrase { path, phrase, weight, .. } => {
                for places in rows(phrase) {
                    let places = places.into_iter().map(|place| (place.offset, place_of(&place, resolved)));
                    let slop = if let score::Phrase::Places(_, slop) = phrase.as_ref() { *slop } else { 0 };
                    let phrase = Spans::phrase(places.collect(), slop);
                    self.add(*path, of(weight), hidden, TargetKind::Spans(phrase));
                }
            }
            Node::Intervals { intervals, weight, .. } => {
                for leaf in &intervals.leaves {
                    match &leaf.terms {
                        LeafTerms::One(term) => {
                            self.add(leaf.path, of(weight), hidden, TargetKind::Term(term.clone()));
                        }
                        LeafTerms::Matching { pattern, .. } => {
                            self.automaton(leaf.path, pattern, of(weight), hidden);
                        }
                    }
                }
            }
            Node::Spans { path, spans, weight } => match (&spans.root, spans.leaves.as_slice()) {
                (Span::Leaf(_), [SpanLeaf { terms: SpanTerms::One(term), .. }]) => {
                    self.add(*path, of(weight), hidden, TargetKind::Term(term.clone()));
                }
                (root, leaves) => {
                    let places = leaves.iter().map(|leaf| {
                        let place = match &leaf.terms {
                            SpanTerms::One(term) => fixed_place(vec![term.clone()]),
                            SpanTerms::Expanded(at, _) => expanded_place(*at, resolved),
                        };
                        PositionTerms { marked: leaf.path == *path, ..place }
                    });
                    let spans = Spans { root: root.clone(), places: places.collect() };
                    self.add(*path, of(weight), hidden, TargetKind::Spans(spans));
                }
            },
            Node::TextRange { path, from, to, weight } => {
                let bytes = |bound: &TextBound| {
                    bound.as_ref().map(|(text, included)| (text.as_bytes().to_vec(), *included))
                };
                let pattern = Pattern::Range { from: bytes(from), to: bytes(to) };
                self.add(*path, of(weight), hidden, TargetKind::Pattern(pattern));
            }
            Node::RawRange { path, from, to, weight, .. } => {
                let field = self.index.mapping.field_by_id(*path);
                if field
                    .is_some_and(|field| field.field_type == FieldType::Keyword || field.field_type.is_text())
                {
                    let pattern = Pattern::Range { from: from.clone(), to: to.clone() };
                    self.add(*path, of(weight), hidden, TargetKind::Pattern(pattern));
                }
            }
            Node::And(parts) | Node::AtLeast(_, parts) | Node::DisMax(_, parts) => {
                parts.iter().try_for_each(|part| self.node(part, resolved, boost, hidden))?;
            }
            Node::Constant(score, part) => self.node(part, resolved, *score, hidden)?,
            Node::Boosting { positive, .. } => self.node(positive, resolved, boost, hidden)?,
            Node::FunctionScore { base, .. } => self.node(base, resolved, boost, true)?,
            Node::Nested(nested) => self.node(&nested.inner, resolved, boost, true)?,
            _ => {}
        }
        Ok(())
    }

    fn expanded(&mut self, at: usize, resolved: &ResolvedPredicate, hidden: bool) {
        if let Some(expansion) = resolved.expansions.get(at) {
            self.automaton(expansion.path, &expansion.pattern, expansion.boost, hidden);
        }
    }

    fn automaton(&mut self, path: PathId, pattern: &Arc<automaton::Pattern>, boost: f32, hidden: bool) {
        let field = self.index.mapping.field_by_id(path);
        if field.is_some_and(|field| !matches!(field.field_type, FieldType::FlatObject | FieldType::Range(_)))
        {
            self.add(path, boost, hidden, TargetKind::Pattern(Pattern::Automaton(Arc::clone(pattern))));
        }
    }

    fn add(&mut self, field: PathId, boost: f32, hidden: bool, what: TargetKind) {
        self.wanted.push(HighlightTarget { field, boost, hidden, what });
    }

    /// The term of an exact value, of fields whose values are terms as they are shown.
    fn string(&self, path: PathId, value: &Scalar) -> Option<String> {
        let field = self.index.mapping.field_by_id(path)?;
        match value {
            Scalar::Str(text) if field.field_type != FieldType::FlatObject => Some(text.clone()),
            _ => None,
        }
    }
}

/// Most ways through a phrase whose links have alternatives.
const MAX_ROWS: usize = 64;

/// Lists the rows of places that a phrase stands for.
fn rows(phrase: &score::Phrase) -> Vec<Vec<score::PhrasePosition>> {
    let links = match phrase {
        score::Phrase::Places(places, _) => return vec![places.clone()],
        score::Phrase::Chain(links) => links,
    };
    let mut rows: Vec<Vec<score::PhrasePosition>> = vec![Vec::new()];
    for link in links {
        let mut longer = Vec::new();
        for row in &rows {
            let behind = row.last().map_or(0, |place| place.offset + 1);
            for alternative in link {
                let first = alternative.first().map_or(0, |place| place.offset);
                let moved = alternative.iter().map(|place| score::PhrasePosition {
                    offset: behind + place.offset - first,
                    terms: place.terms.clone(),
                });
                longer.push(row.iter().cloned().chain(moved).collect());
            }
        }
        longer.truncate(MAX_ROWS);
        rows = longer;
    }
    rows
}

fn place_of(place: &score::PhrasePosition, resolved: &ResolvedPredicate) -> PositionTerms {
    match &place.terms {
        score::PlaceTerms::Fixed(terms) => fixed_place(terms.clone()),
        score::PlaceTerms::Expanded(at) => expanded_place(*at, resolved),
    }
}

fn fixed_place(terms: Vec<String>) -> PositionTerms {
    PositionTerms { terms, pattern: None, marked: true }
}

fn expanded_place(at: usize, resolved: &ResolvedPredicate) -> PositionTerms {
    let pattern = resolved.expansions.get(at).map(|expansion| Arc::clone(&expansion.pattern));
    PositionTerms { terms: Vec::new(), pattern, marked: true }
}
