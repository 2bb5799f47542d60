//! Order of the rows of a merge: one input after another, or by `index.sort.*`.
//!
//! [`arrange`] reads the sort keys of all inputs side by side, never the rows, and says for each row which
//! one it becomes. Segments in memory are sorted for it; stored segments of a sorted index are in order
//! already, and their keys are read a batch at a time. Rows that compare equal keep their order.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, make_comparator, new_null_array};
use arrow::compute::{self, SortOptions};
use arrow::datatypes::{DataType, Schema};
use arrow::row::{RowConverter, Rows, SortField as KeyType};
use millrace_catalog::metadata::{SEQ_NO, SortField};
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::{CancelSignal, Error, Result};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::file::metadata::SortingColumn;
use roaring::RoaringBitmap;

use super::merge::MergeInput;
use super::stored::StoredSegment;
use super::{Kind, Memory, layout};
use crate::bundle::{DROPPED, RowMap};

/// Key of the mark in a segment's `extra` that says its rows are in the order of the index.
pub(super) const SORTED: &str = "sorted";

/// The order of an index, as its columns have it. Fields that are not mapped have no values and decide nothing.
#[derive(Debug)]
pub(super) struct Order {
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    /// The column; `None` is the sequence number.
    column: Option<PathId>,
    element: DataType,
    field: SortField,
}

impl Key {
    fn options(&self) -> SortOptions {
        SortOptions { descending: self.field.descending, nulls_first: self.field.missing_first }
    }
}

impl Order {
    /// Finds the columns to sort by; `None` where there are none.
    pub(super) fn new(sort: &[SortField], mapping: &Mapping) -> Option<Self> {
        let keys = sort.iter().filter_map(|field| {
            let (column, element) = match mapping.field(&field.path) {
                Some(found) => (Some(found.column), found.column_kind().data_type()),
                None if field.path == SEQ_NO => (None, DataType::UInt64),
                None => return None,
            };
            Some(Key { column, element, field: field.clone() })
        });
        let keys: Vec<Key> = keys.collect();
        (!keys.is_empty()).then_some(Self { keys })
    }

    /// The order as the metadata of a file says it: as far as rows have single values.
    pub(super) fn sorting_columns(&self, schema: &Schema) -> Vec<SortingColumn> {
        let leaves = schema.fields().iter().scan(0, |next, field| {
            let first = *next;
            *next += layout::leaf_count(field.data_type());
            Some(first)
        });
        let leaves: Vec<usize> = leaves.collect();
        let found = self.keys.iter().map_while(|key| {
            let at = schema.fields().iter().position(|field| match key.column {
                None => field.name() == layout::SEQ_NO,
                Some(_) => layout::number_of(field) == key.column && field.data_type() == &key.element,
            });
            let column_idx = i32::try_from(*leaves.get(at?)?).ok()?;
            let SortOptions { descending, nulls_first } = key.options();
            Some(SortingColumn { column_idx, descending, nulls_first })
        });
        found.collect()
    }

    fn converter(&self) -> Result<RowConverter> {
        let types = self.keys.iter().map(|key| KeyType::new_with_options(key.element.clone(), key.options()));
        Ok(RowConverter::new(types.collect())?)
    }
}

/// Order of the rows of each input.
#[derive(Debug)]
pub(super) struct RowOrder {
    pub(super) maps: Vec<RowMap>,
    /// Rows of different inputs alternate, or rows of one change their order.
    pub(super) mixed: bool,
    /// The output is in the order of the index.
    pub(super) sorted: bool,
}

/// Decides where rows go.
///
/// A stored segment that is not in the order of the index, because it is older than that, cannot be put into
/// order a batch at a time: what it is merged into keeps the order of the inputs.
pub(super) fn arrange(
    inputs: &[MergeInput],
    order: Option<&Order>,
    cancel: &CancelSignal,
) -> Result<RowOrder> {
    let in_order = |input: &MergeInput| match &*input.segment.kind {
        Kind::Memory(_) => true,
        Kind::Stored(stored) => stored.record.extra.get(SORTED) == Some(&serde_json::Value::Bool(true)),
    };
    let Some(order) = order.filter(|_| inputs.iter().all(in_order)) else {
        return Ok(RowOrder { maps: kept(inputs), mixed: false, sorted: false });
    };
    let maps = sorted(inputs, order, cancel)?;
    let mut last = None;
    let in_turn =
        maps.iter().flatten().filter(|row| **row != DROPPED).all(|row| last.replace(*row) < Some(*row));
    if in_turn {
        return Ok(RowOrder { maps: kept(inputs), mixed: false, sorted: true });
    }
    let maps = maps.into_iter().map(|table| RowMap::Table(table.into())).collect();
    Ok(RowOrder { maps, mixed: true, sorted: true })
}

/// The rows of one input after those of another.
fn kept(inputs: &[MergeInput]) -> Vec<RowMap> {
    let mut next = 0u32;
    let maps = inputs.iter().map(|input| {
        let base = next;
        if input.deleted.is_empty() {
            next += input.segment.rows();
            return RowMap::Offset(base);
        }
        let table = (0..input.segment.rows()).map(|row| {
            if input.deleted.contains(row) {
                return DROPPED;
            }
            next += 1;
            next - 1
        });
        RowMap::Table(table.collect())
    });
    maps.collect()
}

/// Rows between two checks for the cancellation of the merge.
const ROWS_A_CHECK: u32 = 8_192;

/// Merges the inputs by their keys.
fn sorted(inputs: &[MergeInput], order: &Order, cancel: &CancelSignal) -> Result<Vec<Vec<u32>>> {
    let converter = order.converter()?;
    let mut maps: Vec<Vec<u32>> =
        inputs.iter().map(|input| vec![DROPPED; input.segment.rows() as usize]).collect();
    let mut runs = Vec::with_capacity(inputs.len());
    for input in inputs {
        runs.push(match &*input.segment.kind {
            Kind::Memory(memory) => SortedRun::of_memory(memory, &input.deleted, order, &converter)?,
            Kind::Stored(stored) => SortedRun::of_stored(stored, &input.deleted, order, &converter)?,
        });
    }
    let mut heap = Heap::default();
    for at in 0..runs.len() {
        if runs[at].ready(order, &converter)? {
            heap.push(at, &runs);
        }
    }
    let mut next = 0_u32;
    while let Some(&at) = heap.0.first() {
        if next.is_multiple_of(ROWS_A_CHECK) {
            cancel.check()?;
        }
        if let Some(place) = maps[at].get_mut(runs[at].row() as usize) {
            *place = next;
        }
        next += 1;
        runs[at].next += 1;
        if !runs[at].ready(order, &converter)? {
            heap.0.swap_remove(0);
        }
        heap.sink(0, &runs);
    }
    Ok(maps)
}

/// Rows of one input in order.
struct SortedRun<'a> {
    keys: Rows,
    /// Places of the rows among the keys, in order.
    places: Vec<u32>,
    next: usize,
    /// Row of the first key.
    base: u32,
    more: Option<StoredKeys<'a>>,
}

/// Keys of a stored segment beyond those at hand.
struct StoredKeys<'a> {
    stored: &'a StoredSegment,
    deleted: &'a RoaringBitmap,
    reader: ParquetRecordBatchReader,
    /// Index of each key's column in a batch.
    places: Vec<Option<usize>>,
    /// First row of the next batch.
    base: u32,
}

impl<'a> SortedRun<'a> {
    fn of_memory(
        memory: &Memory,
        deleted: &RoaringBitmap,
        order: &Order,
        converter: &RowConverter,
    ) -> Result<Self> {
        let rows = memory.rows.batch.num_rows();
        let total = u32::try_from(rows).unwrap_or(u32::MAX);
        let columns = order.keys.iter().map(|key| {
            let values = match key.column {
                None => memory.rows.metadata(layout::SEQ_NO).cloned(),
                Some(id) => {
                    let column = memory.rows.column(id);
                    column.map(|column| column.to_array(total, column.shape.list)).transpose()?
                }
            };
            one_a_row(values, rows, key)
        });
        let keys = converter.convert_columns(&columns.collect::<Result<Vec<_>>>()?)?;
        let mut places: Vec<u32> = (0..total).filter(|row| !deleted.contains(*row)).collect();
        places.sort_by(|a, b| keys.row(*a as usize).cmp(&keys.row(*b as usize)));
        Ok(Self { keys, places, next: 0, base: 0, more: None })
    }

    fn of_stored(
        stored: &'a StoredSegment,
        deleted: &'a RoaringBitmap,
        order: &Order,
        converter: &RowConverter,
    ) -> Result<Self> {
        let of_key = order.keys.iter().map(|key| match key.column {
            None => stored.named_root(layout::SEQ_NO),
            Some(id) => stored.root_of(id),
        });
        let of_key = of_key.collect::<Result<Vec<_>>>()?;
        let mut wanted: Vec<usize> = of_key.iter().copied().flatten().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let places =
            of_key.iter().map(|root| root.and_then(|root| wanted.binary_search(&root).ok())).collect();
        let reader = stored.reader(&wanted, None)?;
        Ok(Self {
            keys: converter.empty_rows(0, 0),
            places: Vec::new(),
            next: 0,
            base: 0,
            more: Some(StoredKeys { stored, deleted, reader, places, base: 0 }),
        })
    }

    /// Returns whether there is a next row; reads on where need be.
    fn ready(&mut self, order: &Order, converter: &RowConverter) -> Result<bool> {
        while self.next == self.places.len() {
            let Some(more) = &mut self.more else { return Ok(false) };
            let Some(batch) = more.reader.next() else { return Ok(false) };
            let batch = batch.map_err(|error| more.stored.read_error(error))?;
            let columns = order.keys.iter().zip(&more.places).map(|(key, place)| {
                one_a_row(place.map(|place| Arc::clone(batch.column(place))), batch.num_rows(), key)
            });
            self.keys = converter.convert_columns(&columns.collect::<Result<Vec<_>>>()?)?;
            self.base = more.base;
            let rows = u32::try_from(batch.num_rows())
                .map_err(|_| Error::Internal("a batch of over 2^32 rows".to_owned()))?;
            self.places.clear();
            self.places.extend((0..rows).filter(|row| !more.deleted.contains(self.base + row)));
            self.next = 0;
            more.base += rows;
        }
        Ok(true)
    }

    fn row(&self) -> u32 {
        self.base + self.places[self.next]
    }

    fn compare(&self, other: &Self) -> Ordering {
        let key = |run: &Self| run.places[run.next] as usize;
        self.keys.row(key(self)).cmp(&other.keys.row(key(other)))
    }
}

/// Runs that have a next row, the one whose row is next in front.
#[derive(Default)]
struct Heap(Vec<usize>);

impl Heap {
    fn push(&mut self, at: usize, runs: &[SortedRun<'_>]) {
        self.0.push(at);
        let mut child = self.0.len() - 1;
        while child > 0 {
            let parent = (child - 1) / 2;
            if !self.before(child, parent, runs) {
                break;
            }
            self.0.swap(child, parent);
            child = parent;
        }
    }

    /// Brings a run whose next row has changed to its place.
    fn sink(&mut self, mut at: usize, runs: &[SortedRun<'_>]) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            if left < self.0.len() && self.before(left, least, runs) {
                least = left;
            }
            if right < self.0.len() && self.before(right, least, runs) {
                least = right;
            }
            if least == at {
                return;
            }
            self.0.swap(at, least);
            at = least;
        }
    }

    fn before(&self, a: usize, b: usize, runs: &[SortedRun<'_>]) -> bool {
        let (a, b) = (self.0[a], self.0[b]);
        // Of equal rows those of earlier inputs come first.
        runs[a].compare(&runs[b]).then(a.cmp(&b)).is_lt()
    }
}

/// Returns the value of each row that counts for a key.
fn one_a_row(values: Option<ArrayRef>, rows: usize, key: &Key) -> Result<ArrayRef> {
    let Some(values) = values.filter(|values| values.data_type() != &DataType::Null) else {
        return Ok(new_null_array(&key.element, rows));
    };
    let DataType::List(_) = values.data_type() else { return Ok(values) };
    let lists = values.as_list::<i32>();
    let all = lists.values();
    let compare = make_comparator(all, all, SortOptions::default())?;
    let better = if key.field.greatest { Ordering::Greater } else { Ordering::Less };
    let chosen = (0..lists.len()).map(|row| {
        let ends = lists.value_offsets();
        let mut places = ends[row] as usize..ends[row + 1] as usize;
        let first = places.next().filter(|_| lists.is_valid(row))?;
        let best = places.fold(first, |best, at| if compare(at, best) == better { at } else { best });
        u32::try_from(best).ok()
    });
    Ok(compute::take(all, &UInt32Array::from_iter(chosen), None)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn key(greatest: bool) -> Key {
        let field = SortField { path: "a".to_owned(), descending: false, greatest, missing_first: false };
        Key { column: Some(PathId(1)), element: DataType::Int64, field }
    }

    #[test]
    fn of_several_values_the_least_or_the_greatest_counts() {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(5), Some(2), Some(9)]),
            None,
            Some(vec![Some(-4)]),
        ]);
        let lists: ArrayRef = Arc::new(lists);
        for (greatest, expected) in [(false, [Some(2), None, Some(-4)]), (true, [Some(9), None, Some(-4)])] {
            let found = one_a_row(Some(Arc::clone(&lists)), 3, &key(greatest)).unwrap();
            assert_eq!(found.as_primitive::<Int64Type>(), &Int64Array::from(expected.to_vec()));
        }
        assert_eq!(one_a_row(None, 2, &key(false)).unwrap().null_count(), 2);
    }
}
