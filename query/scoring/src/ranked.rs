//! The rows that have words of a text field, and pass a filter, scored by their words.

use millrace_work::error::Result;

use crate::condition::SharedCondition;
use crate::conjunction;
use crate::failure::Failure;
use crate::lengths::Scores;
use crate::max_score::MAX_RANKED;
use crate::reader::InvertedIndex;
use crate::term_windows::{Ranking, RowCondition, Term, TermWindows};
use crate::{END, Scorer};

/// The rows of words.
pub(super) struct RankedRows<'a> {
    windows: TermWindows<'a>,
    doc: u32,
    score: f32,
}

impl<'a> RankedRows<'a> {
    /// Opens words, any or all of which are wanted, over a segment of `rows` rows and goes to its first row; `None` where they
    /// are not all scored terms of one field. The others must match too, and do not score; an error of theirs ends the rows, and
    /// is put into `failure`.
    pub(super) fn open(
        words: impl IntoIterator<Item = &'a SharedCondition>,
        wanted: RowCondition,
        others: Vec<&'a SharedCondition>,
        inverted: &'a dyn InvertedIndex,
        rows: u32,
        failure: &Failure,
    ) -> Result<Option<Self>> {
        let Some(words) = words.into_iter().map(|word| word.scored_term()).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let Some(path) = words.first().map(|word| word.path) else { return Ok(None) };
        if words.len() > MAX_RANKED || words.iter().any(|word| word.path != path) {
            return Ok(None);
        }
        let Some(text) = inverted.text(path) else { return Ok(None) };
        let (mut terms, mut scores) = (Vec::new(), Vec::new());
        for word in words {
            match Term::open(text, std::slice::from_ref(word.term), true)? {
                Some(opened) => {
                    terms.push(opened);
                    scores.push(Scores::new(word.function));
                }
                None if wanted == RowCondition::Any => {}
                None => return Ok(None),
            }
        }
        if terms.is_empty() {
            return Ok(None);
        }
        let mut windows = TermWindows::new(text, terms, wanted, Ranking::Sum(scores));
        if !others.is_empty() {
            windows = windows.filtered(conjunction::filter(others, inverted, rows)?, failure.clone());
        }
        let mut ranked = Self { windows, doc: END, score: 0.0 };
        ranked.seek_match(0);
        Ok(Some(ranked))
    }

    fn seek_match(&mut self, target: u32) -> u32 {
        (self.doc, self.score) = self.windows.seek(target);
        self.doc
    }
}

impl Scorer for RankedRows<'_> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target { self.doc } else { self.seek_match(target) }
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.windows.max_score()
    }
    fn raise_threshold(&mut self, threshold: f32) {
        self.windows.raise_threshold(threshold);
    }
    fn cost(&self) -> u64 {
        self.windows.cost()
    }
}
