//! A predicate of any kind made ready for one segment.
//!
//! A kind of condition is a file with a type of its own: how it is prepared, how its rows are found one by one
//! ([`Scorer`](super::Scorer)) and a window at a time ([`RowFilter`](super::windows::RowFilter)), and what is known of
//! them before. What can be found faster where parts are of a certain kind asks these by the questions below, never
//! for their types.

use std::fmt;
use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use crate::BoxScorer;
use crate::bm25::Bm25;
use crate::failure::Failure;
use crate::reader::InvertedIndex;
use crate::windows::{BoxFilter, ScorerRows};

/// A condition, shared by those it is a part of.
pub type SharedCondition = Arc<dyn Condition>;

/// Condition on the rows of one segment. Its methods are called once a segment, or once a part of one.
pub trait Condition: fmt::Debug + Send + Sync {
    /// Opens a scorer over a segment of `rows` rows.
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxScorer<'a>>;

    /// Opens a scorer of which the best rows are wanted, in steps that are not far from each other. An error of a filter
    /// ends its rows, and is put into `failure`.
    fn best_first<'a>(
        &'a self,
        inverted: &'a dyn InvertedIndex,
        rows: u32,
        _failure: &Failure,
    ) -> Result<BoxScorer<'a>> {
        self.scorer(inverted, rows)
    }

    /// Opens the rows, without scores.
    fn filter<'a>(&'a self, inverted: &'a dyn InvertedIndex, rows: u32) -> Result<BoxFilter<'a>> {
        Ok(Box::new(ScorerRows(self.scorer(inverted, rows)?)))
    }

    /// Returns whether the rows of the filter are found by a scorer, one by one.
    fn by_scorer(&self) -> bool {
        false
    }

    /// Counts the matching rows where the index knows the number without visiting them.
    fn known_count(&self, _of: &RowCount<'_>) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Takes the error that ended a pass, if one did.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Returns whether it adds nothing to scores, and finds its rows without scoring them.
    fn is_unscored(&self) -> bool {
        false
    }

    /// Returns whether every row matches.
    fn is_everything(&self) -> bool {
        false
    }

    /// Returns the rows, where they are known.
    fn row_set(&self) -> Option<&RoaringBitmap> {
        None
    }

    /// Returns the term that is looked for, where rows score by it.
    fn scored_term(&self) -> Option<ScoredTerm<'_>> {
        None
    }

    /// Returns the parts of which any is enough, and whose scores add up.
    fn any_of(&self) -> Option<&[SharedCondition]> {
        None
    }

    /// Returns the parts that are all needed, and whose scores add up.
    fn all_of(&self) -> Option<&[SharedCondition]> {
        None
    }

    /// Returns its role among other parts that are all needed.
    fn role(&self) -> Role<'_> {
        Role::Required
    }
}

/// Role of a part in a conjunction.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// It must match.
    Required,
    /// This must not match.
    Excluded(&'a SharedCondition),
    /// This only scores.
    Optional(&'a SharedCondition),
}

/// A term of a text field that rows score by.
#[derive(Clone, Copy, Debug)]
pub struct ScoredTerm<'a> {
    /// Field.
    pub path: PathId,
    /// Term.
    pub term: &'a String,
    /// Scoring function.
    pub function: &'a Bm25,
}

/// The rows of a segment that are counted.
#[derive(Clone, Copy, Debug)]
pub struct RowCount<'a> {
    /// The inverted index.
    pub inverted: &'a dyn InvertedIndex,
    /// Rows of the segment, deleted ones included.
    pub rows: u32,
    /// Deleted rows.
    pub deleted: &'a RoaringBitmap,
    /// `true` if else all would be visited, so that a column may be read for it.
    pub all: bool,
}

impl RowCount<'_> {
    /// Counts the rows that are not deleted.
    pub(super) fn live(&self) -> u64 {
        u64::from(self.rows).saturating_sub(self.deleted.len())
    }

    /// Takes a number that the index has; it does not know which rows were deleted.
    pub(super) fn indexed(&self, count: impl FnOnce() -> Result<u32>) -> Result<Option<u64>> {
        if self.deleted.is_empty() { Ok(Some(count()?.into())) } else { Ok(None) }
    }
}
