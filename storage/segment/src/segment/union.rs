//! Schema of a merge's file: the columns of all inputs, and their best encodings.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringViewArray};
use millrace_catalog::ColumnRecord;
use millrace_mapping::PathId;
use millrace_runtime::{CancelSignal, Result};
use parquet::file::metadata::ParquetMetaData;

use super::Kind;
use super::layout::{self, ColumnShape, NestedShape, Optional, SegmentSchema};
use super::merge::MergeInput;
use super::sparse_file::{MANY_COLUMNS, SPARSE_ROWS};
use super::stored::StoredSegment;
use super::writer::DICTIONARY_BYTES;
use crate::bundle::Bundle;

/// Values of a column of which it is looked how many are distinct.
const SAMPLED_VALUES: usize = 4_096;
/// Values of a run of these.
const SAMPLED_RUN: usize = 256;
/// Bytes of the length of a string in a page.
const LENGTH_BYTES: usize = 4;

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

/// Opens the bundles of the inputs. Of a remote store, each may be a download.
pub(super) fn bundles(inputs: &[MergeInput], cancel: &CancelSignal) -> Result<Vec<Arc<Bundle>>> {
    let open = |input: &MergeInput| {
        cancel.check()?;
        input.segment.bundle_blocking()
    };
    inputs.iter().map(open).collect()
}

/// Finds the columns of a merge that are encoded in a special way.
pub(super) fn special(
    inputs: &[MergeInput],
    shape: &SegmentSchema,
    rows: u32,
    cancel: &CancelSignal,
) -> Result<Special> {
    let bundles = bundles(inputs, cancel)?;
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

/// Returns whether the strings of a column hardly repeat, by the bytes of the inputs with many of them. Each merge decides anew:
/// small inputs get a dictionary that may be needless once they are one segment.
fn hardly_repeats(inputs: &[MergeInput], id: PathId) -> Result<bool> {
    let mut known = Vec::with_capacity(inputs.len());
    for input in inputs {
        known.extend(match &*input.segment.kind {
            Kind::Memory(memory) => {
                let strings = memory.rows.column(id).and_then(|column| column.values().as_string_view_opt());
                strings.and_then(StringRepetition::of_strings)
            }
            Kind::Stored(stored) => stored.repetition(id)?,
        });
    }
    Ok(StringRepetition::hardly_repeat(&known))
}

/// Repetition of many strings: those of which a dictionary has room for all are not many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StringRepetition {
    /// Bytes of the strings without a dictionary, about.
    bytes: usize,
    /// `true` if most of the strings are distinct.
    is_distinct: bool,
}

impl StringRepetition {
    /// Takes a sample of some strings.
    fn of_strings(strings: &StringViewArray) -> Option<Self> {
        let step = strings.len().div_ceil(SAMPLED_VALUES).max(1);
        // Runs, not each value by itself: equal values often stand side by side.
        let runs = (0..strings.len()).step_by(step * SAMPLED_RUN);
        let places: Vec<usize> =
            runs.flat_map(|from| from..(from + SAMPLED_RUN).min(strings.len())).collect();
        let sample = || places.iter().map(|at| strings.value(*at));
        let bytes = sample().map(str::len).sum::<usize>() * step;
        let distinct: HashSet<&str> = sample().collect();
        let is_distinct = distinct.len() * 10 >= places.len() * 9;
        (bytes > DICTIONARY_BYTES).then_some(Self { bytes, is_distinct })
    }

    /// Compares the bytes of the chunks of a column with those of its strings: a dictionary of strings that hardly repeat saves
    /// nothing. `present` rows have a value.
    pub(super) fn of_chunks(metadata: &ParquetMetaData, leaf: usize, present: u32) -> Option<Self> {
        let (mut stored, mut bytes) = (0, usize::try_from(present).ok()? * LENGTH_BYTES);
        for group in metadata.row_groups() {
            let chunk = group.column(leaf);
            stored += usize::try_from(chunk.uncompressed_size()).ok()?;
            bytes += usize::try_from(chunk.unencoded_byte_array_data_bytes()?).ok()?;
        }
        (bytes > DICTIONARY_BYTES).then_some(Self { bytes, is_distinct: stored * 10 >= bytes * 9 })
    }

    /// Returns whether most of the strings are distinct.
    pub(super) fn is_distinct(self) -> bool {
        self.is_distinct
    }

    /// Returns whether nearly all bytes are of strings that hardly repeat.
    fn hardly_repeat(known: &[Self]) -> bool {
        let all: usize = known.iter().map(|own| own.bytes).sum();
        let distinct: usize = known.iter().filter(|own| own.is_distinct).map(|own| own.bytes).sum();
        all > 0 && distinct * 10 >= all * 9
    }
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
    use std::sync::Arc;

    use arrow::array::ArrayRef;
    use arrow::record_batch::RecordBatch;
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
    use parquet::file::properties::{WriterProperties, WriterVersion};

    use super::*;

    /// Lines of a log, of which so many are distinct; as many as that stand side by side.
    fn lines(count: usize, distinct: usize, side_by_side: usize) -> StringViewArray {
        let texts = (0..count).map(|at| at / side_by_side % distinct);
        StringViewArray::from_iter_values(
            texts.map(|number| format!("a line of a log with the number {number}")),
        )
    }

    #[test]
    fn strings_that_hardly_repeat_are_told_by_a_sample() {
        let sampled = |count, distinct, side_by_side| {
            let repetition = StringRepetition::of_strings(&lines(count, distinct, side_by_side));
            repetition.map(|own| own.is_distinct)
        };
        assert_eq!(sampled(100_000, 100_000, 1), Some(true));
        assert_eq!(sampled(100_000, 997, 1), Some(false));
        assert_eq!(sampled(1_000, 1_000, 1), None);
        assert_eq!(sampled(100_000, 100_000, 10), Some(false));
        assert_eq!(sampled(0, 1, 1), None);
    }

    /// The repetition of strings as a file with dictionaries tells of it.
    fn stored(strings: StringViewArray, has_dictionary: bool) -> Option<StringRepetition> {
        let present = u32::try_from(strings.len()).unwrap();
        let batch = RecordBatch::try_from_iter([("k", Arc::new(strings) as ArrayRef)]).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_dictionary_enabled(has_dictionary)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES)
            .set_max_row_group_row_count(Some(60_000))
            .build();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let file = Bytes::from(file);
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).unwrap();
        StringRepetition::of_chunks(metadata.metadata(), 0, present)
    }

    #[test]
    fn needless_dictionaries_are_told_by_their_bytes() {
        let repetition = |strings, has_dictionary| stored(strings, has_dictionary).map(|own| own.is_distinct);
        assert_eq!(repetition(lines(100_000, 100_000, 1), true), Some(true));
        assert_eq!(repetition(lines(100_000, 100_000, 1), false), Some(true));
        assert_eq!(repetition(lines(100_000, 997, 1), true), Some(false));
        assert_eq!(repetition(lines(100_000, 100_000, 100), true), Some(false));
        assert_eq!(repetition(lines(1_000, 1_000, 1), true), None);
        let numbers: ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..200_000));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let metadata = ArrowReaderMetadata::load(&Bytes::from(file), ArrowReaderOptions::new()).unwrap();
        assert_eq!(StringRepetition::of_chunks(metadata.metadata(), 0, 200_000), None);
    }

    /// A merge decides by all of its inputs, whatever encodings these have.
    #[test]
    fn merges_decide_anew() {
        let distinct = stored(lines(100_000, 100_000, 1), true).unwrap();
        let repeated = stored(lines(100_000, 997, 1), true).unwrap();
        let few = StringRepetition::of_strings(&lines(20_000, 20_000, 1)).unwrap();
        let repeats_few = StringRepetition { is_distinct: false, ..few };
        assert!(StringRepetition::hardly_repeat(&[distinct, few]));
        assert!(StringRepetition::hardly_repeat(&[distinct, distinct, distinct, repeats_few]));
        assert!(!StringRepetition::hardly_repeat(&[distinct, repeated]));
        assert!(!StringRepetition::hardly_repeat(&[]));
    }
}
