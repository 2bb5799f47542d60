//! The rows of a posting list: terms of text fields, exact values, fields that exist.

use std::sync::Arc;

use millrace_mapping::{PathId, Scalar};
use millrace_segment::WindowBits;
use millrace_work::error::Result;
use tantivy::postings::Postings;

use crate::bits::{FEW, NO_ROWS, count, intersect, retain};
use crate::blocks::Blocks;
use crate::bm25::Bm25;
use crate::condition::{Condition, RowCount, ScoredTerm, SharedCondition};
use crate::functions::LeafScore;
use crate::match_all::MatchNoneScorer;
use crate::reader::{InvertedIndex, RowPostings, TextReader};
use crate::windows::{BoxFilter, RowFilter};
use crate::{BoxScorer, END, Scorer};

/// A term of a text field.
#[derive(Debug)]
pub(crate) struct Text {
    /// Field.
    pub path: PathId,
    /// Term.
    pub term: String,
    /// Score.
    pub score: LeafScore,
}

impl Text {
    /// Prepares a term that does not score.
    pub(super) fn unscored(path: PathId, term: &str) -> SharedCondition {
        Arc::new(Self { path, term: term.to_owned(), score: LeafScore::Flat(0.0) })
    }
}

impl Condition for Text {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxScorer<'a>> {
        let Some(text) = inverted.text(self.path) else { return Ok(Box::new(MatchNoneScorer)) };
        Ok(match text.postings(&self.term)? {
            Some(postings) => {
                Box::new(TermScorer::of_term(postings, TermScore::of_leaf(&self.score, text), &self.term))
            }
            None => Box::new(MatchNoneScorer),
        })
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxFilter<'a>> {
        let text = inverted.text(self.path);
        Ok(PostingRows::of(text.map(|text| text.row_postings(&self.term)).transpose()?.flatten()))
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        of.indexed(|| Ok(of.inverted.text(self.path).map_or(Ok(0), |text| text.count(&self.term))?))
    }
    fn is_unscored(&self) -> bool {
        self.score.is_nothing()
    }
    fn scored_term(&self) -> Option<ScoredTerm<'_>> {
        match &self.score {
            LeafScore::Flat(_) => None,
            LeafScore::Bm25(function) => Some(ScoredTerm { path: self.path, term: &self.term, function }),
        }
    }
}

/// An exact value that is a term.
#[derive(Debug)]
pub(crate) struct Exact {
    /// Field.
    pub path: PathId,
    /// Value.
    pub value: Scalar,
    /// Score.
    pub score: f32,
}

impl Condition for Exact {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxScorer<'a>> {
        Ok(TermScorer::flat(inverted.exact(self.path, &self.value)?, self.score))
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxFilter<'a>> {
        Ok(PostingRows::of(inverted.exact_rows(self.path, &self.value)?))
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        of.indexed(|| Ok(of.inverted.exact_count(self.path, &self.value)?))
    }
    fn is_unscored(&self) -> bool {
        self.score == 0.0
    }
}

/// A field that has any value.
#[derive(Debug)]
pub(crate) struct Exists {
    /// Field.
    pub path: PathId,
    /// Score.
    pub score: f32,
}

impl Condition for Exists {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxScorer<'a>> {
        Ok(TermScorer::flat(inverted.exists(self.path)?, self.score))
    }
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxFilter<'a>> {
        Ok(PostingRows::of(inverted.exists_rows(self.path)?))
    }
    fn known_count(&self, of: &RowCount<'_>) -> Result<Option<u64>> {
        of.indexed(|| Ok(of.inverted.exists_count(self.path)?))
    }
    fn is_unscored(&self) -> bool {
        self.score == 0.0
    }
}

/// Score of the rows of a posting list.
pub(super) enum TermScore<'a> {
    /// All alike.
    Flat(f32),
    /// By frequency and, where the field keeps norms, length.
    Bm25 {
        /// The term's function.
        function: &'a Bm25,
        /// Source of lengths.
        norms: Option<&'a dyn TextReader>,
    },
}

impl<'a> TermScore<'a> {
    /// Scores terms of a text field.
    pub(super) fn of_leaf(score: &'a LeafScore, text: &'a dyn TextReader) -> Self {
        match score {
            LeafScore::Flat(score) => Self::Flat(*score),
            LeafScore::Bm25(function) => Self::Bm25 { function, norms: text.has_norms().then_some(text) },
        }
    }

    /// Scores a row in which the term occurs `freq` times.
    pub(super) fn of(&self, freq: u32, row: u32) -> f32 {
        match self {
            Self::Flat(score) => *score,
            Self::Bm25 { function, norms } => function.score(freq, norms.map_or(1, |norms| norms.norm(row))),
        }
    }

    /// Returns a bound on all scores.
    pub(super) fn most(&self) -> f32 {
        match self {
            Self::Flat(score) => *score,
            Self::Bm25 { function, .. } => function.max_score(),
        }
    }
}

/// The rows of a posting list.
struct TermScorer<'a> {
    postings: Box<dyn Postings>,
    score: TermScore<'a>,
    /// The term, where its runs may be known.
    term: Option<&'a str>,
    blocks: Option<Blocks>,
    threshold: f32,
}

impl<'a> TermScorer<'a> {
    /// Opens rows that score alike, as far as there are any.
    fn flat(postings: Option<Box<dyn Postings>>, score: f32) -> BoxScorer<'a> {
        match postings {
            Some(postings) => Box::new(Self::new(postings, TermScore::Flat(score))),
            None => Box::new(MatchNoneScorer),
        }
    }

    /// Starts at the first row.
    fn new(postings: Box<dyn Postings>, score: TermScore<'a>) -> Self {
        Self { postings, score, term: None, blocks: None, threshold: f32::NEG_INFINITY }
    }

    /// Starts at the first row of a term of a text field.
    fn of_term(postings: Box<dyn Postings>, score: TermScore<'a>, term: &'a str) -> Self {
        Self { term: Some(term), ..Self::new(postings, score) }
    }

    fn blocks(&mut self) -> Option<&mut Blocks> {
        if let Some(term) = self.term.take()
            && let TermScore::Bm25 { function, norms: Some(text) } = &self.score
        {
            self.blocks = Blocks::open(*text, term, function);
        }
        self.blocks.as_mut()
    }

    /// Leaves out the runs that cannot score above the threshold.
    fn above_bar(&mut self) -> u32 {
        let threshold = self.threshold;
        loop {
            let doc = self.postings.doc();
            let Some(blocks) = self.blocks.as_mut() else { return doc };
            if doc == END {
                return doc;
            }
            match blocks.next_above(doc, threshold) {
                END => {
                    // Behind the last row; nothing is decoded on the way.
                    self.postings.seek(END);
                }
                next if next > doc => {
                    self.postings.seek(next);
                }
                _ => return doc,
            }
        }
    }
}

impl Scorer for TermScorer<'_> {
    fn doc(&self) -> u32 {
        self.postings.doc()
    }
    fn advance(&mut self) -> u32 {
        let doc = self.postings.advance();
        if self.threshold > 0.0 { self.above_bar() } else { doc }
    }
    fn seek(&mut self, target: u32) -> u32 {
        // Postings must not be asked to seek backwards.
        if self.postings.doc() >= target {
            return self.postings.doc();
        }
        let doc = self.postings.seek(target);
        if self.threshold > 0.0 { self.above_bar() } else { doc }
    }
    fn bound(&mut self, target: u32) -> (f32, u32) {
        let most = self.score.most();
        self.blocks().map_or((most, END), |blocks| blocks.bound(target))
    }
    fn raise_threshold(&mut self, threshold: f32) {
        if self.blocks().is_some() {
            self.threshold = threshold;
        }
    }
    fn score(&mut self) -> f32 {
        match &self.score {
            TermScore::Flat(score) => *score,
            scored => scored.of(self.postings.term_freq(), self.postings.doc()),
        }
    }
    fn max_score(&self) -> f32 {
        self.score.most()
    }
    fn cost(&self) -> u64 {
        self.postings.size_hint().into()
    }
}

/// The rows of a posting list, window by window.
pub(super) struct PostingRows(Box<dyn RowPostings>);

impl PostingRows {
    /// Opens rows, as far as there are any.
    pub(super) fn of<'a>(postings: Option<Box<dyn RowPostings>>) -> BoxFilter<'a> {
        match postings {
            Some(postings) => Box::new(Self(postings)),
            None => Box::new(MatchNoneScorer),
        }
    }
}

impl RowFilter for PostingRows {
    fn next(&mut self, target: u32) -> u32 {
        self.0.seek_row(target)
    }
    fn keep(&mut self, first: u32, bits: &mut WindowBits) -> Result<()> {
        if count(bits) <= FEW {
            retain(first, bits, |row| self.0.seek_row(row) == row);
        } else {
            let mut found = NO_ROWS;
            self.0.fill(first, &mut found);
            intersect(bits, &found);
        }
        Ok(())
    }
    fn cost(&self) -> u64 {
        self.0.cost()
    }
}
