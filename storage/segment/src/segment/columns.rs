//! Columns held by their values: what a row lacks takes no room, in memory and on the way to a file.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListArray, UInt32Array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow::compute;
use arrow::datatypes::Field;
use millrace_mapping::document::Column;
use millrace_runtime::Result;
use roaring::RoaringBitmap;

use super::layout::ColumnShape;
use super::range::ValueRange;

/// A column of rows in memory.
#[derive(Clone, Debug)]
pub(crate) struct Sparse {
    pub(crate) shape: ColumnShape,
    /// The values, one after another, without nulls.
    values: ArrayRef,
    /// Row of each value, ascending; `None` where value `i` is all that row `i` has.
    rows: Option<Arc<Vec<u32>>>,
}

impl Sparse {
    /// Takes over a column of `rows` rows.
    pub(crate) fn new(column: &Column, rows: u32) -> Self {
        let list = column.is_multi_valued();
        let full = !list && column.rows.len() == rows as usize;
        Self {
            shape: ColumnShape { id: column.id, list },
            values: column.to_values(),
            rows: (!full).then(|| Arc::new(column.rows.clone())),
        }
    }

    /// Makes a column of values and the row of each, ascending.
    pub(crate) fn from_parts(shape: ColumnShape, values: ArrayRef, rows: Vec<u32>) -> Self {
        Self { shape, values, rows: Some(Arc::new(rows)) }
    }

    /// The values, one after another.
    pub(crate) fn values(&self) -> &ArrayRef {
        &self.values
    }

    /// Row of each value; `None` where value `i` is all that row `i` has.
    pub(crate) fn rows(&self) -> Option<&[u32]> {
        self.rows.as_ref().map(|rows| rows.as_slice())
    }

    /// Counts the values.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether no row has a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the column in a run of rows, counted from its start.
    pub(crate) fn window(&self, run: Range<u32>) -> Self {
        let part = self.part(run.clone());
        let rows = part.rows.map(|rows| Arc::new(rows.iter().map(|row| row - run.start).collect()));
        Self { shape: self.shape, values: part.values, rows }
    }

    /// Estimates the bytes held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.values.get_array_memory_size() + self.rows.as_ref().map_or(0, |rows| rows.len() * 4)
    }

    /// Finds the rows with a value in the range.
    pub(crate) fn range_rows(&self, range: &ValueRange) -> RoaringBitmap {
        let mut found = RoaringBitmap::new();
        range.matches(&self.values, &mut |at| {
            found.insert(self.rows.as_ref().map_or(at as u32, |rows| rows[at]));
        });
        found
    }

    /// Returns an array over all of `total` rows, a list a row if asked.
    pub(crate) fn to_array(&self, total: u32, list: bool) -> Result<ArrayRef> {
        self.part(0..total).to_array(list)
    }

    /// Returns an array over the given rows, which ascend.
    pub(crate) fn read(&self, selected: &[u32]) -> Result<ArrayRef> {
        let Some(rows) = &self.rows else {
            return Ok(compute::take(&self.values, &UInt32Array::from(selected.to_vec()), None)?);
        };
        let mut positions = Vec::new();
        let mut found = Vec::new();
        let mut at = 0;
        for (place, row) in selected.iter().enumerate() {
            at += rows[at..].partition_point(|other| other < row);
            while rows.get(at) == Some(row) {
                positions.push(at as u32);
                found.push(place as u32);
                at += 1;
            }
        }
        let values = compute::take(&self.values, &UInt32Array::from(positions), None)?;
        ColumnChunk { values, rows: Some(&found), base: 0, len: selected.len() }.to_array(self.shape.list)
    }

    /// Returns the column with its rows moved: row `r` becomes `table[r]`, or falls away where that is
    /// `u32::MAX`; `total` rows are left.
    pub(crate) fn moved(&self, table: &[u32], total: u32) -> Result<Self> {
        let old = |at: usize| self.rows.as_ref().map_or(at, |rows| rows[at] as usize);
        let mut kept: Vec<(u32, u32)> = (0..self.values.len())
            .map(|at| (table.get(old(at)).copied().unwrap_or(u32::MAX), at as u32))
            .filter(|(row, _)| *row != u32::MAX)
            .collect();
        if !kept.is_sorted_by_key(|(row, _)| *row) {
            // Values of a row keep their order.
            kept.sort_by_key(|(row, _)| *row);
        }
        let full = !self.shape.list && kept.len() == total as usize;
        let (rows, positions): (Vec<u32>, Vec<u32>) = kept.into_iter().unzip();
        Ok(Self {
            shape: self.shape,
            values: compute::take(&self.values, &UInt32Array::from(positions), None)?,
            rows: (!full).then(|| Arc::new(rows)),
        })
    }

    /// Borrows the values of a run of rows.
    pub(crate) fn part(&self, run: Range<u32>) -> ColumnChunk<'_> {
        let len = (run.end - run.start) as usize;
        match &self.rows {
            None => ColumnChunk {
                values: self.values.slice(run.start as usize, len),
                rows: None,
                base: run.start,
                len,
            },
            Some(rows) => {
                let start = rows.partition_point(|row| *row < run.start);
                let end = start + rows[start..].partition_point(|row| *row < run.end);
                ColumnChunk {
                    values: self.values.slice(start, end - start),
                    rows: Some(&rows[start..end]),
                    base: run.start,
                    len,
                }
            }
        }
    }
}

/// The values of a column in a run of `len` rows from `base` on.
#[derive(Clone, Debug)]
pub(crate) struct ColumnChunk<'a> {
    pub(crate) values: ArrayRef,
    /// Row of each value; `None` where each row of the run has exactly one.
    pub(crate) rows: Option<&'a [u32]>,
    base: u32,
    pub(crate) len: usize,
}

/// Rows without a value between two that have one, from which on it pays to write them apart.
const GAP_ROWS: u32 = 512;

impl ColumnChunk<'_> {
    /// Counts the rows that have a value.
    pub(crate) fn present(&self) -> usize {
        match self.rows {
            None => self.len,
            Some(rows) => rows.chunk_by(|a, b| a == b).count(),
        }
    }

    /// Returns an array over the run, a list a row if asked.
    pub(crate) fn to_array(&self, list: bool) -> Result<ArrayRef> {
        let Some(rows) = self.rows else {
            return Ok(if list { lists_of_one(&self.values) } else { Arc::clone(&self.values) });
        };
        if list {
            let mut offsets = Vec::with_capacity(self.len + 1);
            let mut at = 0usize;
            offsets.push(0i32);
            for row in self.base..self.base + self.len as u32 {
                while rows.get(at) == Some(&row) {
                    at += 1;
                }
                // A column in memory has fewer than 2^31 values.
                offsets.push(at as i32);
            }
            let item = Arc::new(Field::new_list_field(self.values.data_type().clone(), true));
            let values = Arc::clone(&self.values);
            let nulls = Some(self.presence(rows));
            return Ok(Arc::new(ListArray::new(item, OffsetBuffer::new(offsets.into()), values, nulls)));
        }
        if rows.len() == self.len {
            return Ok(Arc::clone(&self.values));
        }
        let mut positions = vec![0u32; self.len];
        for (at, row) in rows.iter().enumerate() {
            positions[(row - self.base) as usize] = at as u32;
        }
        let positions = UInt32Array::new(positions.into(), Some(self.presence(rows)));
        Ok(compute::take(&self.values, &positions, None)?)
    }

    /// Returns the presence of values in the rows of the run.
    fn presence(&self, rows: &[u32]) -> NullBuffer {
        let mut bits = vec![0u8; self.len.div_ceil(8)];
        for row in rows {
            let at = row - self.base;
            bits[at as usize / 8] |= 1 << (at % 8);
        }
        NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, self.len))
    }

    /// Cuts the run where long stretches have no value: feeds each piece with the number of rows
    /// without a value before it; returns those that are left at the end.
    pub(crate) fn pieces(
        &self,
        mut each: impl FnMut(usize, &ColumnChunk<'_>) -> Result<()>,
    ) -> Result<usize> {
        let Some(rows) = self.rows else {
            each(0, self)?;
            return Ok(0);
        };
        let mut done = self.base;
        let mut start = 0;
        while start < rows.len() {
            let mut end = start + 1;
            while end < rows.len() && rows[end] - rows[end - 1] <= GAP_ROWS {
                end += 1;
            }
            let (first, last) = (rows[start], rows[end - 1]);
            let piece = ColumnChunk {
                values: self.values.slice(start, end - start),
                rows: Some(&rows[start..end]),
                base: first,
                len: (last - first + 1) as usize,
            };
            each((first - done) as usize, &piece)?;
            done = last + 1;
            start = end;
        }
        Ok(self.len - (done - self.base) as usize)
    }
}

/// Makes a list of each value.
fn lists_of_one(values: &ArrayRef) -> ArrayRef {
    let offsets = OffsetBuffer::from_repeated_length(1, values.len());
    let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    Arc::new(ListArray::new(item, offsets, Arc::clone(values), None))
}
