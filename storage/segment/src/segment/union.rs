//! Schema of a merge's file: the columns of all inputs, and their best encodings.

use std::collections::{BTreeMap, HashSet};

use arrow::array::{Array, AsArray, StringViewArray};
use millrace_catalog::ColumnRecord;
use millrace_mapping::PathId;
use millrace_runtime::Result;

use super::Kind;
use super::layout::{self, ColumnShape, NestedShape, Optional, SegmentSchema};
use super::merge::MergeInput;
use super::sparse_file::{MANY_COLUMNS, SPARSE_ROWS};
use super::stored::StoredSegment;
use super::writer::DICTIONARY_BYTES;

/// Values of a column of which it is looked how many are distinct.
const SAMPLED_VALUES: usize = 4_096;
/// Values of a run of these.
const SAMPLED_RUN: usize = 256;

/// Columns of the output: all of the inputs, a list where any input has a list.
pub(super) fn union(inputs: &[MergeInput]) -> Result<SegmentSchema> {
    type Lists = BTreeMap<PathId, bool>;
    let mut columns = Lists::new();
    let mut nested: BTreeMap<PathId, (Option<PathId>, Lists)> = BTreeMap::new();
    let mut optional = Optional::default();
    let add = |lists: &mut Lists, column: ColumnShape| {
        *lists.entry(column.id).or_insert(false) |= column.list;
    };
    for input in inputs {
        let shape = match &*input.segment.kind {
            Kind::Memory(memory) => memory.rows.shape(),
            Kind::Stored(stored) => stored_shape(stored)?,
        };
        shape.columns.into_iter().for_each(|column| add(&mut columns, column));
        optional.routing |= shape.optional.routing;
        optional.ignored |= shape.optional.ignored;
        optional.arrival |= shape.optional.arrival;
        for of_path in shape.nested {
            let (_, lists) = nested.entry(of_path.path).or_insert((of_path.outer, Lists::new()));
            of_path.columns.into_iter().for_each(|column| add(lists, column));
        }
    }
    let shapes =
        |lists: Lists| lists.into_iter().map(|(id, list)| ColumnShape { id, list }).collect::<Vec<_>>();
    let nested = nested.into_iter().map(|(path, (outer, lists))| {
        let columns = shapes(lists);
        NestedShape { path, outer, columns }
    });
    Ok(SegmentSchema { nested: nested.collect(), columns: shapes(columns), optional })
}

/// Columns of a file that are not encoded like the others.
#[derive(Debug, Default)]
pub(super) struct Special {
    /// Most rows have no value, in a file of many columns.
    pub(super) sparse: HashSet<PathId>,
    /// Integers that are best packed as they are: few rows have a value, and the values hardly repeat,
    /// so that a dictionary would have nearly all of them.
    pub(super) packed: HashSet<PathId>,
    /// Strings that hardly repeat: a dictionary would be full before it had those of a row group, and whoever reads a few
    /// rows would decode all of it.
    pub(super) plain: HashSet<PathId>,
}

/// Finds the columns of a merge that are encoded in a special way.
pub(super) fn special(inputs: &[MergeInput], shape: &SegmentSchema, rows: u32) -> Result<Special> {
    let bundles = inputs.iter().map(|input| input.segment.bundle_blocking()).collect::<Result<Vec<_>>>()?;
    let mut special = Special::default();
    for ColumnShape { id, .. } in &shape.columns {
        let present: u64 = inputs
            .iter()
            .map(|input| match &*input.segment.kind {
                Kind::Memory(memory) => memory.rows.column(*id).map_or(0, |column| column.len() as u64),
                Kind::Stored(stored) => stored.column_record(*id).map_or(0, |r| u64::from(r.present)),
            })
            .sum();
        if present * SPARSE_ROWS < u64::from(rows) {
            if shape.columns.len() > MANY_COLUMNS {
                special.sparse.insert(*id);
            }
            if bundles.iter().any(|bundle| bundle.is_inexact(*id)) {
                special.packed.insert(*id);
            }
        }
        if hardly_repeats(inputs, *id)? {
            special.plain.insert(*id);
        }
    }
    Ok(special)
}

/// Returns whether the strings of a column hardly repeat in any input with many of them.
fn hardly_repeats(inputs: &[MergeInput], id: PathId) -> Result<bool> {
    let mut is_plain = false;
    for input in inputs {
        let plain = match &*input.segment.kind {
            Kind::Memory(memory) => {
                memory.rows.column(id).and_then(|column| are_distinct(column.values().as_string_view_opt()?))
            }
            Kind::Stored(stored) => stored.is_plain(id)?,
        };
        match plain {
            Some(false) => return Ok(false),
            Some(true) => is_plain = true,
            None => {}
        }
    }
    Ok(is_plain)
}

/// Returns whether most of some strings are distinct, by a sample; `None` where a dictionary has room for all of them.
fn are_distinct(strings: &StringViewArray) -> Option<bool> {
    let step = strings.len().div_ceil(SAMPLED_VALUES).max(1);
    // Runs, not each value by itself: equal values often stand side by side.
    let runs = (0..strings.len()).step_by(step * SAMPLED_RUN);
    let places: Vec<usize> = runs.flat_map(|from| from..(from + SAMPLED_RUN).min(strings.len())).collect();
    let sample = || places.iter().map(|at| strings.value(*at));
    let bytes: usize = sample().map(str::len).sum();
    if bytes * step <= DICTIONARY_BYTES {
        return None;
    }
    let distinct: HashSet<&str> = sample().collect();
    Some(distinct.len() * 10 >= places.len() * 9)
}

fn stored_shape(stored: &StoredSegment) -> Result<SegmentSchema> {
    let shapes = |columns: &[ColumnRecord]| {
        columns.iter().map(|c| ColumnShape { id: PathId(c.column), list: c.list }).collect()
    };
    let nested = stored.nested_records()?.iter().map(|record| NestedShape {
        path: PathId(record.path),
        outer: record.outer.map(PathId),
        columns: shapes(&record.columns),
    });
    Ok(SegmentSchema {
        columns: shapes(&stored.record.columns),
        nested: nested.collect(),
        optional: Optional {
            routing: stored.has_column(layout::ROUTING)?,
            ignored: stored.has_column(layout::IGNORED)?,
            arrival: stored.has_column(layout::CREATED)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_that_hardly_repeat_are_told_by_a_sample() {
        let strings = |count: usize, distinct: usize| {
            let texts = (0..count).map(|at| format!("a line of a log with the number {}", at % distinct));
            are_distinct(&StringViewArray::from_iter_values(texts))
        };
        assert_eq!(strings(100_000, 100_000), Some(true));
        assert_eq!(strings(100_000, 997), Some(false));
        assert_eq!(strings(1_000, 1_000), None);
        let side_by_side = (0..100_000).map(|at| format!("a line of a log with the number {}", at / 10));
        assert_eq!(are_distinct(&StringViewArray::from_iter_values(side_by_side)), Some(false));
        assert_eq!(strings(0, 1), None);
    }
}
