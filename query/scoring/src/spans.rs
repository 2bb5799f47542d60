//! Spans: stretches of positions that terms and other spans make.
//!
//! [`Spans`] says what is looked for ([`expression`]); [`prepare`] looks up the terms of a segment, and a
//! [`SpansScorer`] walks ([`walk`]) over the spans of the rows that may have one, a span at a time. Scores are those of
//! Lucene's `SpanWeight`: each span counts `1 / (1 + width)`, and their sum takes the part of a term's frequency.

pub mod expression;
pub mod walk;

use std::sync::Arc;

use millrace_mapping::{PathId, Scalar};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};

use crate::condition::{Condition, SharedCondition};
use crate::conjunction::ConjunctionScorer;
use crate::disjunction::AtLeast;
use crate::failure::{Failure, Watch};
use crate::functions::LeafScore;
use crate::match_all::MatchNoneScorer;
use crate::phrase::PhraseScore;
use crate::reader::{InvertedIndex, TextReader};
use crate::source::Source;
use crate::spans::expression::{Span, SpanTerms, Spans};
use crate::spans::walk::{END as NO_MORE, Walk};
use crate::synonyms::Synonyms;
use crate::term::Text;
use crate::union::PostingsUnion;
use crate::{BoxScorer, END, Scorer};

/// Spans made ready for a segment.
#[derive(Debug)]
pub struct PreparedSpans {
    spans: Arc<Spans>,
    /// Field whose lengths count.
    path: PathId,
    /// Terms of the leaves, by number.
    terms: Vec<Vec<String>>,
    /// Rows that may have a span.
    candidates: SharedCondition,
    score: LeafScore,
    work: QueryContext,
    /// The error that ended a pass over its rows.
    failure: Failure,
}

/// Looks up the terms of a segment.
///
/// # Errors
/// A term of a field whose positions are not kept.
pub fn prepare(
    spans: &Arc<Spans>,
    path: PathId,
    score: LeafScore,
    segment: &Source,
) -> Result<PreparedSpans> {
    let mut terms = Vec::with_capacity(spans.leaves.len());
    for leaf in &spans.leaves {
        let own: Vec<String> = match &leaf.terms {
            SpanTerms::One(term) => vec![term.clone()],
            SpanTerms::Expanded(slot, _) => match segment.functions.expansion(*slot) {
                Some(found) => found.terms.iter().map(|found| found.term.clone()).collect(),
                None => Vec::new(),
            },
        };
        for term in own.iter().filter(|_| !leaf.positions) {
            let count = match segment.inverted.text(leaf.path) {
                Some(text) => text.count(term)?,
                None => segment.inverted.exact_count(leaf.path, &Scalar::Str(term.clone()))?,
            };
            if count > 0 {
                return Err(without_positions(&leaf.field, term));
            }
        }
        terms.push(own);
    }
    let candidates = candidates(&spans.root, spans, &terms);
    Ok(PreparedSpans {
        spans: Arc::clone(spans),
        path,
        terms,
        candidates,
        score,
        work: segment.work.clone(),
        failure: Failure::default(),
    })
}

fn without_positions(field: &str, term: &str) -> Error {
    Error::Exception {
        kind: "illegal_state_exception",
        status: 400,
        reason: format!(
            "field \"{field}\" was indexed without position data; cannot run SpanTermQuery (term={term})"
        ),
    }
}

/// Makes the condition that every row with a span fulfils.
fn candidates(span: &Span, spans: &Spans, terms: &[Vec<String>]) -> SharedCondition {
    let of = |part: &Span| candidates(part, spans, terms);
    match span {
        Span::Nothing(_) => Arc::new(MatchNoneScorer),
        Span::Leaf(leaf) => {
            let (Some(own), Some(terms)) = (spans.leaves.get(*leaf), terms.get(*leaf)) else {
                return Arc::new(MatchNoneScorer);
            };
            match terms.as_slice() {
                [term] => Text::unscored(own.path, term),
                several => {
                    Arc::new(Synonyms { path: own.path, terms: several.into(), score: LeafScore::Flat(0.0) })
                }
            }
        }
        Span::Near { parts, .. } => {
            ConjunctionScorer::of(parts.iter().filter(|part| !matches!(part, Span::Gap(_))).map(of).collect())
        }
        Span::Any(parts) => AtLeast::of(1, parts.iter().map(of).collect()),
        Span::Without { include, .. } => of(include),
        Span::First(part, _) | Span::Masked(part, _) => of(part),
        Span::Containing { big, little } | Span::Within { big, little } => {
            ConjunctionScorer::of(vec![of(big), of(little)])
        }
        Span::Gap(_) => Arc::new(MatchNoneScorer),
    }
}

/// The rows with a span.
pub struct SpansScorer<'a> {
    walk: Box<dyn Walk>,
    candidates: BoxScorer<'a>,
    /// Postings of the leaves, by number.
    leaves: Vec<PostingsUnion>,
    /// Positions in the current row, by leaf.
    positions: Vec<Vec<u32>>,
    /// Source of lengths, where they are kept.
    norms: Option<&'a dyn TextReader>,
    score: PhraseScore<'a>,
    frequency: f32,
    watch: Watch<'a>,
}

impl std::fmt::Debug for SpansScorer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpansScorer").finish_non_exhaustive()
    }
}

impl Condition for PreparedSpans {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>> {
        Ok(Box::new(SpansScorer::open(self, inverted, rows)?))
    }
    fn by_scorer(&self) -> bool {
        true
    }
    fn failure(&self) -> Option<Error> {
        self.failure.take().or_else(|| self.candidates.failure())
    }
}

impl<'a> SpansScorer<'a> {
    /// Opens the scorer of a segment.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn open(prepared: &'a PreparedSpans, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<Self> {
        let mut leaves = Vec::with_capacity(prepared.terms.len());
        for (leaf, terms) in prepared.spans.leaves.iter().zip(&prepared.terms) {
            let mut postings = Vec::with_capacity(terms.len());
            if let Some(text) = inverted.text(leaf.path) {
                for term in terms {
                    postings.extend(text.postings(term)?);
                }
            }
            leaves.push(PostingsUnion::new(postings));
        }
        let mut scorer = Self {
            walk: walk::over(&prepared.spans.root),
            candidates: prepared.candidates.scorer(inverted, rows)?,
            positions: vec![Vec::new(); leaves.len()],
            leaves,
            norms: inverted.text(prepared.path).filter(|text| text.has_norms()),
            score: match &prepared.score {
                LeafScore::Flat(score) => PhraseScore::Flat(*score),
                LeafScore::Bm25(function) => PhraseScore::Bm25(function),
            },
            frequency: 0.0,
            watch: Watch::new(&prepared.work, &prepared.failure),
        };
        let first = scorer.candidates.doc();
        scorer.seek_match(first);
        Ok(scorer)
    }
}

impl SpansScorer<'_> {
    /// Returns how often the current row has the spans, by their widths.
    pub fn frequency(&self) -> f32 {
        self.frequency
    }

    /// Goes on from a candidate to the first row with a span.
    fn seek_match(&mut self, mut doc: u32) -> u32 {
        let first_only = matches!(self.score, PhraseScore::Flat(_));
        while doc != END {
            if !self.watch.goes_on() {
                return END;
            }
            for (leaf, positions) in self.leaves.iter_mut().zip(&mut self.positions) {
                match leaf.seek(doc) == doc {
                    true => leaf.positions(positions),
                    false => positions.clear(),
                }
            }
            self.walk.reset();
            self.frequency = 0.0;
            while self.walk.next(&self.positions) != NO_MORE {
                if !self.watch.goes_on() {
                    return END;
                }
                // In the arithmetic of Lucene: a double is added to a float.
                let share = 1.0 / (1.0 + self.walk.width() as f64);
                self.frequency = (f64::from(self.frequency) + share) as f32;
                if first_only {
                    return doc;
                }
            }
            if self.frequency > 0.0 {
                break;
            }
            doc = self.candidates.advance();
        }
        doc
    }
}

impl Scorer for SpansScorer<'_> {
    fn doc(&self) -> u32 {
        if self.watch.ended() { END } else { self.candidates.doc() }
    }
    fn advance(&mut self) -> u32 {
        if self.watch.ended() {
            return END;
        }
        let next = self.candidates.advance();
        self.seek_match(next)
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc() >= target {
            return self.doc();
        }
        let next = self.candidates.seek(target);
        self.seek_match(next)
    }
    fn score(&mut self) -> f32 {
        match &self.score {
            PhraseScore::Flat(score) => *score,
            PhraseScore::Bm25(function) => {
                function.score_of(self.frequency, self.norms.map_or(1, |norms| norms.norm(self.doc())))
            }
        }
    }
    fn max_score(&self) -> f32 {
        match &self.score {
            PhraseScore::Flat(score) => *score,
            PhraseScore::Bm25(function) => function.max_score(),
        }
    }
    fn cost(&self) -> u64 {
        self.candidates.cost()
    }
}

#[cfg(test)]
mod tests;
