//! Finding and scoring rows of one segment, a document at a time.
//!
//! A [`Node`](node::Node) is a predicate as one index's mapping understands it; the table of `millrace-matching` makes it.
//! [`prepare`](prepare::prepare) turns it into a [`Condition`](condition::Condition)
//! for one segment (this part reads columns), a file a kind; its scorer opens postings, and [`collect`] drives it.
//! Patterns walk dictionaries as an [`automaton`]. Segments are read through [`reader`]s, and [`ruled_rows`] tells which rows rules show.
//! Scores are Lucene's legacy BM25 ([`bm25`]), in its arithmetic: terms in `f32`, sums in `f64`.

pub mod automaton;
mod bits;
mod blocks;
pub mod bm25;
mod boosting;
pub mod collect;
mod column_matching;
pub mod condition;
pub mod conjunction;
mod constant;
mod dictionary;
pub mod disjunction;
mod disjunction_max;
mod exact;
pub mod failure;
#[doc(hidden)]
pub mod fixture;
pub mod function_score;
pub mod functions;
pub mod geo;
mod heap;
pub mod interesting_terms;
pub mod intervals;
mod lengths;
pub mod lists;
pub mod match_all;
mod max_score;
pub mod metadata;
pub mod metadata_columns;
pub mod negation;
pub mod nested;
pub mod node;
pub mod one_batch;
pub mod operands;
mod optional;
pub mod path_values;
pub mod phrase;
mod phrase_values;
mod phrase_windows;
mod positions;
pub mod prepare;
pub mod ranges;
mod ranked;
pub mod reader;
pub mod row_function;
mod row_postings;
pub mod row_set;
pub mod ruled_rows;
pub mod scaled;
mod scorer_union;
mod sloppy;
pub mod source;
pub mod spans;
pub mod steps;
mod synonyms;
mod term;
mod term_windows;
mod union;
pub mod values;
pub mod visible_terms;
pub mod windows;

/// Row that [`Scorer::doc`] returns at the end; tantivy's sentinel.
pub const END: u32 = tantivy::TERMINATED;

/// Matching rows in ascending order, with their scores. A new scorer stands on its first row.
pub trait Scorer: Send {
    /// Returns the current row, [`END`] at the end.
    fn doc(&self) -> u32;
    /// Goes to the next row.
    fn advance(&mut self) -> u32 {
        match self.doc() {
            END => END,
            doc => self.seek(doc + 1),
        }
    }
    /// Goes to the first row at or behind `target`; stays where it is already there.
    fn seek(&mut self, target: u32) -> u32;
    /// Scores the current row.
    fn score(&mut self) -> f32;
    /// Returns a bound that no score of this scorer exceeds.
    fn max_score(&self) -> f32;
    /// Bounds the scores of the rows from `target` to a row, which is returned too. Targets do not
    /// descend.
    fn bound(&mut self, _target: u32) -> (f32, u32) {
        (self.max_score(), END)
    }
    /// Says that rows that score no more than `threshold` are of no interest: from the next step on they may
    /// be left out. The threshold never falls.
    fn raise_threshold(&mut self, _bar: f32) {}
    /// Estimates how many rows it would visit.
    fn cost(&self) -> u64;
}

/// Returns whether scores that no more than add up to `sum` may exceed a threshold. Sums of a few scores are exact but for the
/// last bits of a double.
fn may_exceed(sum: f64, threshold: f32) -> bool {
    bound_of(sum) > threshold
}

/// Returns a bound on a score that adds up to at most `sum`.
fn bound_of(sum: f64) -> f32 {
    (sum * (1.0 + 1e-12)) as f32
}

/// A scorer that may borrow from the segment.
pub type BoxScorer<'a> = Box<dyn Scorer + 'a>;

#[cfg(test)]
mod tests;
