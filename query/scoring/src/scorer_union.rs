//! The rows of several scorers, as if they were one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{BoxScorer, END, Scorer};

/// Combination of the scores of the parts on a row.
pub(super) trait ScoreCombiner: Default {
    /// Key of the combination.
    type Key: Copy + Send;

    /// Takes the score of a part.
    fn add(&mut self, score: f32);
    /// Returns the score of the row.
    fn total(&self, by: Self::Key) -> f32;
}

/// Rows that at least so many parts match, scored by those that do.
pub(super) struct UnionScorer<'a, J: ScoreCombiner> {
    parts: Vec<BoxScorer<'a>>,
    required: usize,
    by: J::Key,
    /// Parts that are ahead of the current row, least row first.
    ahead: BinaryHeap<Reverse<(u32, usize)>>,
    /// Parts that stand on the current row.
    here: Vec<usize>,
    doc: u32,
}

impl<'a, J: ScoreCombiner> UnionScorer<'a, J> {
    /// Starts at the first row; `required` is at least 1.
    pub(super) fn new(parts: Vec<BoxScorer<'a>>, required: usize, by: J::Key) -> Self {
        let ahead = parts
            .iter()
            .enumerate()
            .filter(|(_, part)| part.doc() != END)
            .map(|(at, part)| Reverse((part.doc(), at)))
            .collect();
        let required = required.max(1);
        let mut union = Self { here: Vec::with_capacity(parts.len()), parts, required, by, ahead, doc: END };
        union.seek_match();
        union
    }

    /// Takes the parts at the next row that enough of them share.
    fn seek_match(&mut self) -> u32 {
        loop {
            let Some(Reverse((doc, _))) = self.ahead.peek() else {
                self.doc = END;
                return END;
            };
            let doc = *doc;
            while let Some(Reverse((at_doc, at))) = self.ahead.peek().copied()
                && at_doc == doc
            {
                self.ahead.pop();
                self.here.push(at);
            }
            if self.here.len() >= self.required {
                self.doc = doc;
                return doc;
            }
            self.leave(doc + 1);
        }
    }

    /// Moves the parts of the current row to `target` or behind it.
    fn leave(&mut self, target: u32) {
        for at in self.here.drain(..) {
            let doc = self.parts[at].seek(target);
            if doc != END {
                self.ahead.push(Reverse((doc, at)));
            }
        }
    }
}

impl<J: ScoreCombiner> Scorer for UnionScorer<'_, J> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn advance(&mut self) -> u32 {
        if self.doc == END {
            return END;
        }
        self.leave(self.doc + 1);
        self.seek_match()
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target {
            return self.doc;
        }
        self.leave(target);
        while let Some(Reverse((doc, at))) = self.ahead.peek().copied()
            && doc < target
        {
            self.ahead.pop();
            let doc = self.parts[at].seek(target);
            if doc != END {
                self.ahead.push(Reverse((doc, at)));
            }
        }
        self.seek_match()
    }
    fn score(&mut self) -> f32 {
        self.here.sort_unstable();
        let mut joined = J::default();
        for at in &self.here {
            joined.add(self.parts[*at].score());
        }
        joined.total(self.by)
    }
    fn max_score(&self) -> f32 {
        let mut joined = J::default();
        self.parts.iter().for_each(|part| joined.add(part.max_score()));
        joined.total(self.by)
    }
    fn cost(&self) -> u64 {
        self.parts.iter().map(|part| part.cost()).sum()
    }
}
