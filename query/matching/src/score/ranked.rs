//! The rows that have words of a text field, and pass a filter, scored by their words.

use millrace_storage::mapping::PathId;
use millrace_work::error::Result;

use super::bm25::Bm25;
use super::build::MAX_RANKED;
use super::function_score::Failure;
use super::lengths::Scores;
use super::prepare::{LeafScore, Prepared};
use super::reader::Inverted;
use super::term_windows::{Ranking, Term, TermWindows, Wanted};
use super::windows::all_of;
use super::{END, Scorer};

/// The words of a predicate, all of one field, and what else it asks for.
struct Parts<'a> {
    path: PathId,
    words: Vec<(&'a String, &'a Bm25)>,
    wanted: Wanted,
    /// Parts that do not score.
    others: Vec<&'a Prepared>,
}

impl<'a> Parts<'a> {
    /// Takes a predicate apart; `None` where it is not of this form.
    fn of(prepared: &'a Prepared) -> Option<Self> {
        let (parts, wanted, others): (Vec<&Prepared>, _, _) = match prepared {
            Prepared::AtLeast(1, words) => (words.iter().collect(), Wanted::Any, Vec::new()),
            Prepared::And(parts) => {
                let (others, scoring): (Vec<_>, Vec<_>) = parts.iter().partition(|part| is_unscored(part));
                match scoring.as_slice() {
                    [Prepared::AtLeast(1, words)] => (words.iter().collect(), Wanted::Any, others),
                    _ => (scoring, Wanted::All, others),
                }
            }
            _ => return None,
        };
        let (mut words, mut field) = (Vec::with_capacity(parts.len()), None);
        for part in parts {
            let Prepared::Text { path, term, score: LeafScore::Bm25(function) } = part else { return None };
            if field.replace(*path).is_some_and(|before| before != *path) {
                return None;
            }
            words.push((term, function.as_ref()));
        }
        (words.len() <= MAX_RANKED).then_some(Self { path: field?, words, wanted, others })
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
        let Some(text) = inverted.text(parts.path) else { return Ok(None) };
        let (mut terms, mut scores) = (Vec::new(), Vec::new());
        for (word, function) in parts.words {
            match Term::open(text, std::slice::from_ref(word), true)? {
                Some(opened) => {
                    terms.push(opened);
                    scores.push(Scores::new(function));
                }
                None if parts.wanted == Wanted::Any => {}
                None => return Ok(None),
            }
        }
        if terms.is_empty() {
            return Ok(None);
        }
        let mut windows = TermWindows::new(text, terms, parts.wanted, Ranking::Sum(scores));
        if !parts.others.is_empty() {
            windows = windows.filtered(all_of(parts.others, inverted, rows)?, failure.clone());
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

impl Scorer for Ranked<'_> {
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
