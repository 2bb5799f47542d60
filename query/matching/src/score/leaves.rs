//! Scorers of single conditions: postings, row sets, everything, nothing.

use roaring::RoaringBitmap;
use roaring::bitmap::IntoIter;
use tantivy::postings::Postings;

use super::blocks::Blocks;
use super::bm25::Bm25;
use super::reader::TextReader;
use super::union::PostingsUnion;
use super::{END, Scorer};

/// No row.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Scorer for Nothing {
    fn doc(&self) -> u32 {
        END
    }
    fn advance(&mut self) -> u32 {
        END
    }
    fn seek(&mut self, _target: u32) -> u32 {
        END
    }
    fn score(&mut self) -> f32 {
        0.0
    }
    fn max_score(&self) -> f32 {
        0.0
    }
    fn cost(&self) -> u64 {
        0
    }
}

/// Every row of a segment, with one score.
#[derive(Debug)]
pub(crate) struct Everything {
    row: u32,
    rows: u32,
    score: f32,
}

impl Everything {
    /// Starts at row 0 of `rows`.
    pub(crate) fn new(rows: u32, score: f32) -> Self {
        Self { row: if rows == 0 { END } else { 0 }, rows, score }
    }
}

impl Scorer for Everything {
    fn doc(&self) -> u32 {
        self.row
    }
    fn advance(&mut self) -> u32 {
        self.seek(self.row.saturating_add(1))
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.row < target {
            self.row = if target >= self.rows { END } else { target };
        }
        self.row
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.score
    }
    fn cost(&self) -> u64 {
        self.rows.into()
    }
}

/// The rows of a bitmap, with one score.
pub(crate) struct RowSet {
    rows: IntoIter,
    row: u32,
    cost: u64,
    score: f32,
}

impl RowSet {
    /// Starts at the least row.
    pub(crate) fn new(rows: RoaringBitmap, score: f32) -> Self {
        let cost = rows.len();
        let mut rows = rows.into_iter();
        let row = rows.next().unwrap_or(END);
        Self { rows, row, cost, score }
    }
}

impl Scorer for RowSet {
    fn doc(&self) -> u32 {
        self.row
    }
    fn advance(&mut self) -> u32 {
        self.row = self.rows.next().unwrap_or(END);
        self.row
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.row < target {
            self.rows.advance_to(target);
            self.row = self.rows.next().unwrap_or(END);
        }
        self.row
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.score
    }
    fn cost(&self) -> u64 {
        self.cost
    }
}

/// How the rows of a posting list score.
pub(crate) enum TermScore<'a> {
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

impl TermScore<'_> {
    /// Scores a row in which the term occurs `freq` times.
    fn of(&self, freq: u32, row: u32) -> f32 {
        match self {
            Self::Flat(score) => *score,
            Self::Bm25 { function, norms } => function.score(freq, norms.map_or(1, |norms| norms.norm(row))),
        }
    }

    /// Returns what no score exceeds.
    fn most(&self) -> f32 {
        match self {
            Self::Flat(score) => *score,
            Self::Bm25 { function, .. } => function.max_score(),
        }
    }
}

/// The rows of a posting list.
pub(crate) struct TermScorer<'a> {
    postings: Box<dyn Postings>,
    score: TermScore<'a>,
    /// The term, where its runs may be known.
    term: Option<&'a str>,
    blocks: Option<Blocks>,
    threshold: f32,
}

impl<'a> TermScorer<'a> {
    /// Starts at the first row.
    pub(crate) fn new(postings: Box<dyn Postings>, score: TermScore<'a>) -> Self {
        Self { postings, score, term: None, blocks: None, threshold: f32::NEG_INFINITY }
    }

    /// Starts at the first row of a term of a text field.
    pub(crate) fn of_term(postings: Box<dyn Postings>, score: TermScore<'a>, term: &'a str) -> Self {
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

/// The rows of several posting lists, scored as one term that occurs as often as all of them.
pub(crate) struct SynonymScorer<'a> {
    postings: PostingsUnion,
    score: TermScore<'a>,
}

impl<'a> SynonymScorer<'a> {
    /// Starts at the first row.
    pub(crate) fn new(postings: Vec<Box<dyn Postings>>, score: TermScore<'a>) -> Self {
        Self { postings: PostingsUnion::new(postings), score }
    }
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
