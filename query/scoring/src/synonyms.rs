//! Terms of a text field that stand for each other.

use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_work::error::Result;

use crate::condition::Condition;
use crate::disjunction::DisjunctionScorer;
use crate::functions::LeafScore;
use crate::match_all::MatchNoneScorer;
use crate::reader::InvertedIndex;
use crate::term::{PostingRows, TermScore};
use crate::union::PostingsUnion;
use crate::windows::BoxFilter;
use crate::{BoxScorer, Scorer};

/// Several terms, scored as one.
#[derive(Debug)]
pub(crate) struct Synonyms {
    /// Field.
    pub path: PathId,
    /// Terms.
    pub terms: Arc<[String]>,
    /// Score.
    pub score: LeafScore,
}

impl Condition for Synonyms {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxScorer<'a>> {
        let Some(text) = inverted.text(self.path) else { return Ok(Box::new(MatchNoneScorer)) };
        let mut postings = Vec::with_capacity(self.terms.len());
        for term in self.terms.iter() {
            postings.extend(text.postings(term)?);
        }
        let score = TermScore::of_leaf(&self.score, text);
        Ok(Box::new(SynonymScorer { postings: PostingsUnion::new(postings), score }))
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxFilter<'a>> {
        let mut parts = Vec::with_capacity(self.terms.len());
        if let Some(text) = inverted.text(self.path) {
            for term in self.terms.iter() {
                parts.push(PostingRows::of(text.row_postings(term)?));
            }
        }
        Ok(Box::new(DisjunctionScorer(parts)))
    }
    fn is_unscored(&self) -> bool {
        self.score.is_nothing()
    }
}

/// The rows of several posting lists, scored as one term that occurs as often as all of them.
struct SynonymScorer<'a> {
    postings: PostingsUnion,
    score: TermScore<'a>,
}

impl Scorer for SynonymScorer<'_> {
    fn doc(&self) -> u32 {
        self.postings.doc()
    }
    fn advance(&mut self) -> u32 {
        self.postings.advance()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.postings.seek(target)
    }
    fn score(&mut self) -> f32 {
        match &self.score {
            TermScore::Flat(score) => *score,
            scored => scored.of(self.postings.freq(), self.postings.doc()),
        }
    }
    fn max_score(&self) -> f32 {
        self.score.most()
    }
    fn cost(&self) -> u64 {
        self.postings.cost()
    }
}
