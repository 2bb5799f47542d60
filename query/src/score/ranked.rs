//! The rows that have words of a text field, and pass a filter, scored by their words.

use super::build::MAX_RANKED;
use super::function_score::Failure;
use super::lengths::Scores;
use super::prepare::{LeafScore, Prepared};
use super::reader::Inverted;
use super::term_windows::{Ranking, Term, TermWindows, Wanted};
use super::windows::all_of;
use super::{END, Scorer};
use crate::error::Result;

/// The words of a predicate and what else it asks for.
struct Parts<'a> {
    words: Vec<&'a Prepared>,
    wanted: Wanted,
    /// Parts that do not score.
    others: Vec<&'a Prepared>,
}

impl<'a> Parts<'a> {
    /// Takes a predicate apart; `None` where it is not of this form.
    fn of(prepared: &'a Prepared) -> Option<Self> {
        let parts = match prepared {
            Prepared::AtLeast(1, words) => {
                Self { words: words.iter().collect(), wanted: Wanted::Any, others: Vec::new() }
            }
            Prepared::And(parts) => {
                let (others, scoring): (Vec<_>, Vec<_>) = parts.iter().partition(|part| is_unscored(part));
                match scoring.as_slice() {
                    [Prepared::AtLeast(1, words)] => {
                        Self { words: words.iter().collect(), wanted: Wanted::Any, others }
                    }
                    _ => Self { words: scoring, wanted: Wanted::All, others },
                }
            }
            _ => return None,
        };
        let field = |word: &&Prepared| match word {
            Prepared::Text { path, score: LeafScore::Bm25(_), .. } => Some(*path),
            _ => None,
        };
        let mut fields = parts.words.iter().map(field);
        let first = fields.next()??;
        (parts.words.len() <= MAX_RANKED && fields.all(|field| field == Some(first))).then_some(parts)
    }
}

/// Whether a part adds nothing to scores, and finds its rows without scoring them.
fn is_unscored(part: &Prepared) -> bool {
    match part {
        Prepared::All(score)
        | Prepared::Exact { score, .. }
        | Prepared::Exists { score, .. }
        | Prepared::Rows(_, score)
        | Prepared::Range { score, .. }
        | Prepared::Constant(score, _)
        | Prepared::Text { score: LeafScore::Flat(score), .. }
        | Prepared::Synonyms { score: LeafScore::Flat(score), .. }
        | Prepared::Phrase { score: LeafScore::Flat(score), .. } => *score == 0.0,
        Prepared::None | Prepared::Not(_) => true,
        Prepared::And(parts) | Prepared::AtLeast(1.., parts) => parts.iter().all(is_unscored),
        _ => false,
    }
}

/// The rows of words.
pub(super) struct Ranked<'a> {
    windows: TermWindows<'a>,
    doc: u32,
    score: f32,
}

impl<'a> Ranked<'a> {
    /// Opens a predicate over a segment of `rows` rows and goes to its first row; `None` where it is not of this form. A
    /// filter's error ends the rows, and is put into `failure`.
    pub(super) fn open(
        prepared: &'a Prepared,
        inverted: &'a dyn Inverted,
        rows: u32,
        failure: &Failure,
    ) -> Result<Option<Self>> {
        let Some(parts) = Parts::of(prepared) else { return Ok(None) };
        let (mut terms, mut scores, mut of) = (Vec::new(), Vec::new(), None);
        for word in &parts.words {
            let Prepared::Text { path, term, score: LeafScore::Bm25(function) } = word else {
                return Ok(None);
            };
            let Some(text) = inverted.text(*path) else { return Ok(None) };
            of = Some(text);
            match Term::open(text, std::slice::from_ref(term), true)? {
                Some(opened) => {
                    terms.push(opened);
                    scores.push(Scores::new(function));
                }
                None if parts.wanted == Wanted::Any => {}
                None => return Ok(None),
            }
        }
        let Some(text) = of.filter(|_| !terms.is_empty()) else { return Ok(None) };
        let mut windows = TermWindows::new(text, terms, parts.wanted, Ranking::Sum(scores));
        if !parts.others.is_empty() {
            windows = windows.filtered(all_of(parts.others, inverted, rows)?, failure.clone());
        }
        let mut ranked = Self { windows, doc: END, score: 0.0 };
        ranked.settle(0);
        Ok(Some(ranked))
    }

    fn settle(&mut self, target: u32) -> u32 {
        (self.doc, self.score) = self.windows.seek(target);
        self.doc
    }
}

impl Scorer for Ranked<'_> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn advance(&mut self) -> u32 {
        if self.doc == END { END } else { self.settle(self.doc + 1) }
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target { self.doc } else { self.settle(target) }
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.windows.max_score()
    }
    fn raise_bar(&mut self, bar: f32) {
        self.windows.raise_bar(bar);
    }
    fn cost(&self) -> u64 {
        self.windows.cost()
    }
}
