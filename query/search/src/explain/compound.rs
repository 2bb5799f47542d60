//! Nodes that are made of others, or of more than one term, explained by their parts.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_dsl::query::{BoostMode, Combination, NestedScore, ScoreMode};
use millrace_mapping::{PathId, Scalar};
use millrace_scoring::bm25::Bm25;
use millrace_scoring::failure::Failure;
use millrace_scoring::function_score::{FunctionScore, WeightedFunction};
use millrace_scoring::functions::LeafScore;
use millrace_scoring::intervals::{self, Intervals, IntervalsScorer};
use millrace_scoring::nested::{Elements, NestedNode, matching_elements};
use millrace_scoring::node::{Node, NodeFunction};
use millrace_scoring::operands::Weight;
use millrace_scoring::phrase::{Phrase, PhraseScore, PhraseScorer, PlaceTerms};
use millrace_scoring::prepare::prepare;
use millrace_scoring::reader::TextReader;
use millrace_scoring::row_function::{FunctionScope, RowFunction, value_at};
use millrace_scoring::spans::expression::{SpanTerms, Spans};
use millrace_scoring::spans::{self, SpansScorer};
use millrace_scoring::{Scorer, bm25};
use millrace_work::error::Result;

use super::describe::described;
use super::leaf::{ExplainedRow, no_term, score};
use super::{Explanation, few};

fn number(value: f32, text: impl Into<String>) -> Explanation {
    Explanation::found(value, text, Vec::new())
}

/// Adds up the parts of a match where there are several; `None` where there are none.
fn one_or_sum(mut details: Vec<Explanation>) -> Option<Explanation> {
    match details.len() {
        0 => None,
        1 => details.pop(),
        _ => Some(Explanation::sum(details)),
    }
}

impl ExplainedRow<'_> {
    /// Explains nodes that have parts; `None` for all others.
    pub(super) fn compound(&self, node: &Node) -> Result<Option<Explanation>> {
        Ok(Some(match node {
            Node::And(parts) => self.all_of(node, parts)?,
            Node::AtLeast(required @ 1.., parts) => self.at_least(node, *required, parts)?,
            Node::DisMax(tie_breaker, parts) => self.best_of(node, *tie_breaker, parts)?,
            Node::Boosting { positive, .. } => match score(node, self.source, self.row)? {
                None => self.node(positive)?,
                Some(score) => {
                    let text = self.named(node);
                    Explanation::found(
                        score,
                        format!("weight({text}), result of:"),
                        vec![self.node(positive)?],
                    )
                }
            },
            Node::FunctionScore { base, functions, combination } => {
                self.function_score(node, base, functions, combination)?
            }
            Node::Nested(nested) => self.nested(node, nested)?,
            Node::Intervals { intervals, weight, .. } => self.intervals(node, intervals, *weight)?,
            Node::Expanded(slot) => match self.expanded(*slot)? {
                Some(details) => one_or_sum(details).unwrap_or_else(no_term),
                None => return Ok(None),
            },
            Node::ManyExpanded { slots, minimum } => {
                let (mut details, mut known) = (Vec::new(), 0);
                for slot in slots {
                    let Some(own) = self.expanded(*slot)? else { return Ok(None) };
                    details.extend(own);
                    known += self.source.functions.expansion(*slot).map_or(0, |found| found.terms.len());
                }
                let required = minimum.required(known).max(1);
                match details.len() < required {
                    true => few(details.len(), required, details),
                    false => one_or_sum(details).unwrap_or_else(no_term),
                }
            }
            _ => return Ok(None),
        }))
    }

    fn all_of(&self, node: &Node, parts: &[Node]) -> Result<Explanation> {
        let (mut details, mut failed) = (Vec::new(), false);
        for part in parts {
            match part {
                Node::Not(excluded) => {
                    if score(excluded, self.source, self.row)?.is_some() {
                        failed = true;
                        let text = self.named(excluded);
                        details.push(Explanation::missed(
                            format!("match on prohibited clause ({text})"),
                            vec![number(1.0, text)],
                        ));
                    }
                }
                Node::AtLeast(0, optional) => {
                    for part in optional {
                        let explained = self.node(part)?;
                        if explained.matched {
                            details.push(explained);
                        }
                    }
                }
                _ => {
                    let explained = self.node(part)?;
                    details.push(match explained.matched {
                        true => explained,
                        false => {
                            failed = true;
                            let text = self.named(part);
                            Explanation::missed(
                                format!("no match on required clause ({text})"),
                                vec![explained],
                            )
                        }
                    });
                }
            }
        }
        Ok(match score(node, self.source, self.row)? {
            Some(sum) if !failed => Explanation::found(sum, "sum of:", details),
            _ => {
                Explanation::missed("Failure to meet condition(s) of required/prohibited clause(s)", details)
            }
        })
    }

    fn at_least(&self, node: &Node, required: usize, parts: &[Node]) -> Result<Explanation> {
        let mut details = self.matching(parts)?;
        Ok(match (details.len(), score(node, self.source, self.row)?) {
            (matching, _) if matching < required => few(matching, required, details),
            (1, _) if parts.len() == 1 => details.remove(0),
            (_, Some(sum)) => Explanation::found(sum, "sum of:", details),
            (matching, None) => few(matching, required, details),
        })
    }

    fn best_of(&self, node: &Node, tie_breaker: f32, parts: &[Node]) -> Result<Explanation> {
        let details = self.matching(parts)?;
        Ok(match score(node, self.source, self.row)? {
            None => Explanation::missed("No matching clause", Vec::new()),
            Some(score) => {
                let text = match tie_breaker {
                    0.0 => "max of:".to_owned(),
                    share => format!("max plus {share:?} times others of:"),
                };
                Explanation::found(score, text, details)
            }
        })
    }

    fn matching(&self, parts: &[Node]) -> Result<Vec<Explanation>> {
        let mut details = Vec::new();
        for part in parts {
            let explained = self.node(part)?;
            if explained.matched {
                details.push(explained);
            }
        }
        Ok(details)
    }

    /// The terms of an expansion that the row has; `None` where they have no scores of their own.
    fn expanded(&self, slot: usize) -> Result<Option<Vec<Explanation>>> {
        let Some(found) = self.source.functions.expansion(slot) else { return Ok(None) };
        let inverted = &self.source.inverted;
        let text = inverted.text(found.path).filter(|_| found.text);
        let name = self.mapping.field_by_id(found.path).map_or("", |field| field.path.as_ref());
        let mut details = Vec::new();
        for term in &found.terms {
            let LeafScore::Bm25(function) = &term.score else { return Ok(None) };
            let postings = match (found.text, text) {
                (true, Some(text)) => text.postings(&term.term)?,
                (true, None) => None,
                (false, _) => inverted.exact(found.path, &Scalar::Str(term.term.clone()))?,
            };
            let Some(mut postings) = postings else { continue };
            if postings.doc() < self.row {
                postings.seek(self.row);
            }
            if postings.doc() == self.row {
                let (freq, length) = match text {
                    Some(text) => (postings.term_freq(), text.has_norms().then(|| text.norm(self.row))),
                    None => (1, Some(1)),
                };
                let named = format!("{name}:{}", term.term);
                details.push(self.weighed(&named, function, freq, length));
            }
        }
        Ok(Some(details))
    }

    /// A phrase that scores by BM25.
    pub(super) fn phrase(&self, node: &Node, phrase: &Phrase, slot: usize) -> Result<Option<Explanation>> {
        let Node::Phrase { path, weight, .. } = node else { return Ok(None) };
        let (Some(function), Some(text)) =
            (self.source.functions.get(slot), self.source.inverted.text(*path))
        else {
            return Ok(None);
        };
        let phrase = phrase.expanded(&|slot| match self.source.functions.expansion(slot) {
            Some(found) => found.terms.iter().map(|found| found.term.clone()).collect(),
            None => Vec::new(),
        });
        let Some(mut scorer) = PhraseScorer::open(&phrase, text, PhraseScore::Bm25(function))? else {
            return Ok(Some(no_term()));
        };
        if scorer.seek(self.row) != self.row {
            return Ok(Some(no_term()));
        }
        let mut terms = Vec::new();
        for place in phrase.places() {
            let PlaceTerms::Fixed(own) = &place.terms else { continue };
            terms.extend(own.iter().map(|term| (*path, term.clone())));
        }
        let shown =
            Node::Phrase { path: *path, phrase: Arc::new(phrase.clone()), values: None, weight: *weight };
        let counted = (scorer.score(), scorer.frequency());
        self.summed(&self.named(&shown), (function, text), counted, terms).map(Some)
    }

    /// Spans that score by BM25.
    pub(super) fn spans(
        &self,
        (path, own): (PathId, &Arc<Spans>),
        slot: usize,
    ) -> Result<Option<Explanation>> {
        let (Some(function), Some(text)) = (self.source.functions.get(slot), self.source.inverted.text(path))
        else {
            return Ok(None);
        };
        let prepared = spans::prepare(own, path, LeafScore::Bm25(Arc::clone(function)), self.source)?;
        let rows = self.source.reader.rows();
        let mut scorer = SpansScorer::open(&prepared, self.source.inverted.as_ref(), rows)?;
        if scorer.seek(self.row) != self.row {
            return Ok(Some(no_term()));
        }
        let expanded = |slot: usize| {
            let found = self.source.functions.expansion(slot)?;
            Some(found.terms.iter().map(|found| found.term.clone()).collect::<Vec<_>>())
        };
        // Each term counts once, in their order.
        let mut terms = BTreeSet::new();
        own.root.for_each_leaf(&mut |leaf| {
            let Some(leaf) = own.leaves.get(leaf) else { return };
            let own = match &leaf.terms {
                SpanTerms::One(term) => vec![term.clone()],
                SpanTerms::Expanded(slot, _) => expanded(*slot).unwrap_or_default(),
            };
            terms.extend(own.into_iter().map(|term| (Arc::clone(&leaf.field), term, leaf.path)));
        });
        let terms = terms.into_iter().map(|(_, term, path)| (path, term)).collect();
        let shown = own.root.text(&own.leaves, &expanded);
        let counted = (scorer.score(), scorer.frequency());
        self.summed(&shown, (function, text), counted, terms).map(Some)
    }

    /// Explains a score of several terms together: the sum of what each weighs.
    fn summed(
        &self,
        name: &str,
        (function, text): (&Bm25, &dyn TextReader),
        (score, freq): (f32, f32),
        terms: Vec<(PathId, String)>,
    ) -> Result<Explanation> {
        let statistics = function.statistics();
        let mut idfs = Vec::new();
        for (path, term) in terms {
            let count = self.doc_freq(path, &term)?;
            // Terms that do not occur do not count.
            if count == 0 {
                continue;
            }
            // As the score has it: of another field, which spans may pass for, more documents may have the term.
            let docs = statistics.docs.max(count);
            idfs.push(Explanation::found(
                bm25::idf(docs, count),
                "idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:",
                vec![
                    Explanation::count(count, "n, number of documents containing term"),
                    Explanation::count(docs, "N, total number of documents with field"),
                ],
            ));
        }
        let length = text.has_norms().then(|| text.norm(self.row));
        let idf = match idfs.len() {
            1 => idfs.remove(0),
            _ => Explanation::found(function.max_score() / function.boost(), "idf, sum of:", idfs),
        };
        let tf = self.frequency_part(score / function.max_score(), freq, length, function, true);
        let parts = vec![number(function.boost(), "boost"), idf, tf];
        let inner = format!("score(freq={freq:?}), computed as boost * idf * tf from:");
        Ok(Explanation::found(
            score,
            format!("weight({name} in {}) [PerFieldSimilarity], result of:", self.row),
            vec![Explanation::found(score, inner, parts)],
        ))
    }

    /// Counts the documents of the shard that have a term.
    fn doc_freq(&self, path: PathId, term: &str) -> Result<u64> {
        let own = [&self.source.inverted];
        let all: Vec<_> = if self.peers.is_empty() { own.to_vec() } else { self.peers.iter().collect() };
        let mut count = 0;
        for inverted in all {
            if let Some(text) = inverted.text(path) {
                count += u64::from(text.count(term)?);
            }
        }
        Ok(count)
    }

    fn intervals(&self, node: &Node, own: &Arc<Intervals>, weight: Weight) -> Result<Explanation> {
        let prepared = intervals::prepare(own, weight, self.source)?;
        let rows = self.source.reader.rows();
        let mut scorer = IntervalsScorer::open(&prepared, self.source.inverted.as_ref(), rows)?;
        if scorer.seek(self.row) != self.row {
            return Ok(Explanation::missed("no matching intervals", Vec::new()));
        }
        let text = self.named(node);
        Ok(Explanation::found(
            scorer.score(),
            "Saturation function on interval frequency, computed as w * S / (S + k) from:",
            vec![
                number(scorer.max_score(), "w, weight of this function"),
                number(1.0, "k, pivot feature value that would give a score contribution equal to w/2"),
                number(scorer.sum(), format!("S, the sloppy frequency of the interval query {text}")),
            ],
        ))
    }

    fn nested(&self, node: &Node, nested: &NestedNode) -> Result<Explanation> {
        let Some(total) = score(node, self.source, self.row)? else {
            return Ok(Explanation::missed("No matching children", Vec::new()));
        };
        let elements = matching_elements(nested, self.source, &[self.row])?.pop().unwrap_or_default();
        let mode = match nested.mode {
            NestedScore::Avg => "Avg",
            NestedScore::Sum => "Total",
            NestedScore::Min => "Min",
            NestedScore::Max => "Max",
            NestedScore::None => "None",
        };
        let numbers = || elements.iter().map(|element| element.element);
        let (first, last) = (numbers().min().unwrap_or(0), numbers().max().unwrap_or(0));
        let text = format!(
            "Score based on {} child docs in range from {first} to {last}, using score mode {mode}",
            elements.len()
        );
        let Some(path) = nested.chain.first() else { return Ok(number(total, text)) };
        let (Some((source, _)), Some(best)) = (Elements::source(self.source, *path)?, elements.first())
        else {
            return Ok(number(total, text));
        };
        let inner = ExplainedRow { source: &source, peers: &[], row: best.element, ..*self };
        Ok(Explanation::found(total, text, vec![inner.node(&nested.inner)?]))
    }

    fn function_score(
        &self,
        node: &Node,
        base: &Node,
        functions: &[NodeFunction],
        combination: &Combination,
    ) -> Result<Explanation> {
        let explained = self.node(base)?;
        let Some(total) = score(node, self.source, self.row)? else {
            if !explained.matched {
                return Ok(explained);
            }
            let least = combination.min_score.unwrap_or_default();
            let details = vec![explained, number(least, "min score")];
            return Ok(Explanation::missed("Score value is too low, expected at least min score", details));
        };
        if functions.is_empty() {
            return Ok(explained);
        }
        let place = FunctionScope::new(self.source);
        let mut details = Vec::new();
        for function in functions {
            details.extend(self.function(function, &place)?);
        }
        let factor = self.factor(base, functions, combination, &place)?;
        let joined = match details.len() {
            0 => number(1.0, "No function matched"),
            1 if functions.len() == 1 && functions.iter().all(|own| own.filter.is_none()) => {
                details.remove(0)
            }
            _ => {
                let mode = match combination.score_mode {
                    ScoreMode::First => "first",
                    ScoreMode::Avg => "avg",
                    ScoreMode::Max => "max",
                    ScoreMode::Sum => "sum",
                    ScoreMode::Min => "min",
                    ScoreMode::Multiply => "multiply",
                };
                Explanation::found(factor, format!("function score, score mode [{mode}]"), details)
            }
        };
        let most = combination.max_boost;
        let joined = Explanation::found(factor.min(most), "min of:", vec![joined, number(most, "maxBoost")]);
        let text = match combination.boost_mode {
            BoostMode::Replace => return Ok(joined),
            BoostMode::Multiply => "function score, product of:",
            BoostMode::Sum => "sum of",
            BoostMode::Avg => "avg of",
            BoostMode::Min => "min of",
            BoostMode::Max => "max of",
        };
        Ok(Explanation::found(total, text, vec![explained, joined]))
    }

    /// Joins the functions at the row as the scorer does.
    fn factor(
        &self,
        base: &Node,
        functions: &[NodeFunction],
        combination: &Combination,
        place: &FunctionScope,
    ) -> Result<f32> {
        let (rows, inverted) = (self.source.reader.rows(), self.source.inverted.as_ref());
        let mut filters = Vec::with_capacity(functions.len());
        for function in functions {
            let filter = function.filter.as_ref();
            filters.push(filter.map(|filter| prepare(filter, self.source, None)).transpose()?);
        }
        let mut applied = Vec::with_capacity(functions.len());
        for (function, filter) in functions.iter().zip(&filters) {
            let scorer = filter.as_ref().map(|filter| filter.scorer(inverted, rows)).transpose()?;
            applied.push(WeightedFunction::new(&function.function, scorer, function.weight, place));
        }
        let base = prepare(base, self.source, None)?;
        let base = base.scorer(inverted, rows)?;
        let failure = Failure::default();
        let combination = Combination { min_score: None, ..*combination };
        Ok(FunctionScore::new(base, applied, combination, (&self.source.work, &failure)).factor(self.row)?
            as f32)
    }

    /// Explains a function; `None` where it does not apply to the row.
    fn function(&self, function: &NodeFunction, place: &FunctionScope) -> Result<Option<Explanation>> {
        if let Some(filter) = &function.filter
            && score(filter, self.source, self.row)?.is_none()
        {
            return Ok(None);
        }
        let value = value_at(&function.function, place, self.row)? as f32;
        let own = match &function.function {
            RowFunction::One => number(1.0, "constant score 1.0 - no function provided"),
            RowFunction::FieldValue { field, factor, modifier, missing, .. } => {
                let missing = missing.map_or_else(String::new, |missing| format!("?:{missing:?}"));
                let modifier = format!("{modifier:?}").to_lowercase();
                number(
                    value,
                    format!(
                        "field value function: {modifier}(doc['{field}'].value{missing} * factor={factor:?})"
                    ),
                )
            }
            RowFunction::Decay { mode, offset, .. } => {
                let mode = format!("{mode:?}").to_uppercase();
                let inner = format!("decay by {mode} of the distances beyond {offset:?}");
                Explanation::found(value, "Function for a field:", vec![number(value, inner)])
            }
            RowFunction::Nearness { pivot, .. } => Explanation::found(
                value,
                "Distance score, computed as weight * pivotDistance / (pivotDistance + abs(distance)) from:",
                vec![number(*pivot as f32, "pivotDistance")],
            ),
            RowFunction::Random { seed, .. } => {
                number(value, format!("random score function (seed: {})", seed.0))
            }
        };
        let own = match function.weight {
            None => own,
            Some(weight) => {
                Explanation::found(value * weight, "product of:", vec![own, number(weight, "weight")])
            }
        };
        Ok(Some(match &function.filter {
            None => own,
            Some(filter) => {
                let text = described(filter, self.mapping, false).unwrap_or_else(|| self.text.to_owned());
                Explanation::found(
                    own.score(),
                    "function score, product of:",
                    vec![number(1.0, format!("match filter: {text}")), own],
                )
            }
        }))
    }
}
