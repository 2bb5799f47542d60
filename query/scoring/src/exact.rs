//! Exact values: terms, or values of a column where the index has no terms of it.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_mapping::{PathId, Scalar};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::condition::SharedCondition;
use crate::constant::Constant;
use crate::disjunction::AtLeast;
use crate::lists::for_each_number;
use crate::match_all::{MatchAllScorer, MatchNoneScorer};
use crate::operands::{ExactValue, Weight};
use crate::ranges::{self, range_rows};
use crate::row_set::{RowSet, drain};
use crate::source::{Source, visit};
use crate::term::{Exact, Exists};

/// Values that are opened as posting lists side by side; more are united first.
const OPEN_LISTS: usize = 16;
/// Values of a column that are found one range at a time; more are found by reading the column.
const OPEN_RANGES: usize = 16;

/// Prepares a value of a field, and its column.
pub(super) fn prepare(
    source: &Source,
    (path, column): (PathId, PathId),
    value: &ExactValue,
    weight: Weight,
    among: Option<&RoaringBitmap>,
) -> Result<SharedCondition> {
    let score = match weight {
        Weight::Bm25(slot) => source.functions.get(slot).map_or(0.0, |function| function.exact_score()),
        other => other.flat(),
    };
    if is_term(source, path, value) {
        return Ok(Arc::new(Exact { path, value: value.value.clone(), score }));
    }
    ranges::prepare(source, (column, None), value.range.as_ref(), among, score)
}

/// Prepares any of several values of a field, and its column.
pub(super) fn prepare_any(
    source: &Source,
    (path, column): (PathId, PathId),
    values: &[ExactValue],
    score: f32,
    among: Option<&RoaringBitmap>,
) -> Result<SharedCondition> {
    let terms = values.first().is_some_and(|value| is_term(source, path, value));
    if terms && values.len() <= OPEN_LISTS {
        let parts = values
            .iter()
            .map(|value| Arc::new(Exact { path, value: value.value.clone(), score: 0.0 }) as SharedCondition)
            .collect();
        return Ok(Arc::new(Constant { score, part: AtLeast::of(1, parts) }));
    }
    if terms {
        let mut rows = RoaringBitmap::new();
        for value in values.iter() {
            source.work.check()?;
            if let Some(mut postings) = source.inverted.exact(path, &value.value)? {
                rows |= drain(postings.as_mut());
            }
        }
        return RowSet::found(source, rows, score);
    }
    let mut rows = RoaringBitmap::new();
    if values.len() <= OPEN_RANGES {
        for range in values.iter().filter_map(|value| value.range.as_ref()) {
            source.work.check()?;
            range_rows(source.reader.as_ref(), column, range, among, &source.work, &mut |some| {
                rows |= some;
                true
            })?;
        }
        return RowSet::found(source, rows, score);
    }
    let wanted: HashSet<u64> = values.iter().filter_map(|value| bits(&value.value)).collect();
    visit(source, column, among.cloned(), &mut |batch, array| {
        for_each_number(array, &mut |at, number| {
            if wanted.contains(&number) {
                rows.insert(batch.rows[at]);
            }
        })
    })?;
    RowSet::found(source, rows, score)
}

/// A number's bits, as [`crate::lists::for_each_number`] gives them.
fn bits(value: &Scalar) -> Option<u64> {
    match value {
        Scalar::I64(number) => Some(*number as u64),
        Scalar::U64(number) => Some(*number),
        Scalar::F64(number) => Some(number.to_bits()),
        _ => None,
    }
}

/// Prepares fields of which any has a value. A field that every row has makes all rows match.
pub(super) fn prepare_exists(source: &Source, paths: &[PathId], score: f32) -> Result<SharedCondition> {
    let rows = source.reader.rows();
    for path in paths {
        if source.inverted.exists_count(*path)? >= rows {
            return Ok(Arc::new(MatchAllScorer(score)));
        }
    }
    Ok(match paths {
        [] => Arc::new(MatchNoneScorer),
        [path] => Arc::new(Exists { path: *path, score }),
        several => {
            let parts =
                several.iter().map(|path| Arc::new(Exists { path: *path, score: 0.0 }) as SharedCondition);
            Arc::new(Constant { score, part: AtLeast::of(1, parts.collect()) })
        }
    })
}

/// Returns whether the value is a term here; strings, booleans and addresses always are.
fn is_term(source: &Source, path: PathId, value: &ExactValue) -> bool {
    matches!(value.value, Scalar::Str(_) | Scalar::Bool(_) | Scalar::Ip(_))
        || value.range.is_none()
        || source.inverted.has_exact(path)
}
