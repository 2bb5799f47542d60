//! Conditions on the terms of a field, which are looked up in its dictionary first.

use std::cell::Cell;
use std::sync::Arc;

use millrace_dsl::minimum_should_match::MinimumShouldMatch;
use millrace_mapping::{PathId, Scalar};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::automaton::Pattern;
use crate::column_matching;
use crate::condition::SharedCondition;
use crate::disjunction::AtLeast;
use crate::functions::ExpandedTerm;
use crate::functions::LeafScore;
use crate::match_all::MatchNoneScorer;
use crate::node::StringColumn;
use crate::operands::{RawBound, TextBound};
use crate::row_set::RowSet;
use crate::source::Source;
use crate::term::{Exact, Text};

/// Prepares exact values between two.
pub(super) fn prepare_values(
    source: &Source,
    path: PathId,
    (from, to): (&RawBound, &RawBound),
    score: f32,
) -> Result<SharedCondition> {
    RowSet::found(source, source.inverted.range_rows(path, from, to, source.work.stop())?, score)
}

/// Prepares terms of a text field between two.
pub(super) fn prepare_terms(
    source: &Source,
    path: PathId,
    (from, to): (&TextBound, &TextBound),
    score: f32,
) -> Result<SharedCondition> {
    let rows = match source.inverted.text(path) {
        Some(text) => text.range_rows(from, to, source.work.stop())?,
        None => RoaringBitmap::new(),
    };
    RowSet::found(source, rows, score)
}

/// Bytes of terms, for each row, after which a walk over a dictionary takes longer than to read the column would.
const BYTES_A_ROW: u64 = 1;
/// Bytes of terms, for each row that other clauses leave, after which a walk over ranges takes longer than to read these rows: one
/// term a row.
const BYTES_A_RANGE: u64 = 32;
/// Rows of a segment from which its column may be read instead.
const MANY_ROWS: u32 = 10_000;

/// Prepares the values of a pattern; on text fields, the terms. Where all terms would be walked and these are many, the column is read:
/// a string is looked through faster than the transducer is walked. Strings that hardly repeat are known to be many terms. Ranges are
/// walked first all the same, since a walk may pass few of them.
pub(super) fn prepare_pattern(
    source: &Source,
    (path, text, column): (PathId, bool, Option<StringColumn>),
    pattern: &Pattern,
    score: f32,
    among: Option<&RoaringBitmap>,
) -> Result<SharedCondition> {
    let has_halves = pattern.has_halves();
    let everywhere = has_halves || pattern.start().is_empty() && pattern.literals().next().is_some();
    if let Some(column) = column.filter(|_| everywhere && source.reader.rows() >= MANY_ROWS) {
        let in_column =
            || RowSet::found(source, column_matching::rows(source, column, pattern, among)?, score);
        if !has_halves && source.reader.hardly_repeats(column.path)? {
            return in_column();
        }
        let most = u64::from(source.reader.rows()) * BYTES_A_ROW;
        let steps = Cell::new(match among {
            Some(among) if has_halves => most.min(among.len().saturating_mul(BYTES_A_RANGE)),
            _ => most,
        });
        let walk = pattern.until(source.work.stop()).within(&steps);
        let rows = source.inverted.matching_rows(path, walk)?;
        return match steps.get() {
            0 => in_column(),
            _ => RowSet::found(source, rows, score),
        };
    }
    let pattern = pattern.until(source.work.stop());
    let rows = match text {
        false => source.inverted.matching_rows(path, pattern)?,
        true => match source.inverted.text(path) {
            Some(text) => text.matching_rows(pattern)?,
            None => RoaringBitmap::new(),
        },
    };
    RowSet::found(source, rows, score)
}

/// Prepares the terms that an expansion found in the shard: any of them.
pub(super) fn prepare_expanded(source: &Source, slot: usize) -> SharedCondition {
    any_of(expanded(source, slot))
}

/// Prepares the terms that expansions found in the shard: as many of all of them as are asked for.
pub(super) fn prepare_many_expanded(
    source: &Source,
    slots: &[usize],
    minimum: &MinimumShouldMatch,
) -> SharedCondition {
    let parts: Vec<SharedCondition> = slots.iter().flat_map(|slot| expanded(source, *slot)).collect();
    match minimum.required(parts.len()).max(1) {
        1 => any_of(parts),
        required => AtLeast::of(required, parts),
    }
}

fn expanded(source: &Source, slot: usize) -> Vec<SharedCondition> {
    let Some(found) = source.functions.expansion(slot) else { return Vec::new() };
    let path = found.path;
    let part = |own: &ExpandedTerm| -> SharedCondition {
        let (term, score) = (own.term.clone(), own.score.clone());
        match (found.text, score) {
            (true, score) => Arc::new(Text { path, term, score }),
            (false, LeafScore::Flat(score)) => Arc::new(Exact { path, value: Scalar::Str(term), score }),
            (false, LeafScore::Bm25(function)) => {
                Arc::new(Exact { path, value: Scalar::Str(term), score: function.exact_score() })
            }
        }
    };
    found.terms.iter().map(part).collect()
}

fn any_of(mut parts: Vec<SharedCondition>) -> SharedCondition {
    match parts.len() {
        0 => Arc::new(MatchNoneScorer),
        1 => parts.remove(0),
        _ => AtLeast::of(1, parts),
    }
}
