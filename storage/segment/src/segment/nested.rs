//! The elements of a nested path in a segment, as a segment of their own within it.
//!
//! An element is a row of its path: element numbers are `0..elements`, in the order of the root rows
//! and, within one, of the arrays. Columns and inverted index of the path's leaves are addressed by
//! the same [`PathId`]s as those of a segment, with element numbers in the place of row numbers.
//! [`Segment::nested_blocking`](super::Segment::nested_blocking) hands it out.

use std::ops::Range;
use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_runtime::Result;
use roaring::RoaringBitmap;

use super::range::Relation;
use super::{ColumnBatch, Kind, NumberBounds, PageBounds, Segment, ValueRange, memory};
use crate::bundle::{Bundle, NestedBundle, NestedPositions};

/// The elements of one nested path in one segment.
#[derive(Clone, Debug)]
pub struct Nested {
    segment: Segment,
    places: Arc<NestedPositions>,
    bundle: Arc<Bundle>,
}

impl Nested {
    pub(super) fn new(segment: Segment, nested: &NestedBundle) -> Self {
        Self { segment, places: Arc::clone(&nested.places), bundle: Arc::clone(&nested.bundle) }
    }

    /// Number of the nested path.
    pub fn path(&self) -> PathId {
        self.places.path
    }

    /// Counts the elements, those of deleted rows included.
    pub fn elements(&self) -> u32 {
        u32::try_from(self.places.parents.len()).unwrap_or(u32::MAX)
    }

    /// Root row of each element, ascending: `parents()[element]`.
    pub fn parents(&self) -> &[u32] {
        &self.places.parents
    }

    /// Element of the enclosing nested path of each element, ascending; `None` where the path lies in
    /// no other nested path, whose elements belong to root rows directly.
    pub fn outer(&self) -> Option<&[u32]> {
        self.places.outer.map(|_| self.places.within.as_slice())
    }

    /// Elements of a root row.
    pub fn elements_of(&self, row: u32) -> Range<u32> {
        run(&self.places.parents, row)
    }

    /// Elements within an element of the enclosing nested path, or of a root row where there is none.
    pub fn elements_within(&self, enclosing: u32) -> Range<u32> {
        run(self.enclosing(), enclosing)
    }

    /// Position of an element among those of its enclosing element (of its root row where there is
    /// none), counted from 0: the `_nested.offset` of a hit.
    pub fn ordinal(&self, element: u32) -> u32 {
        let enclosing = self.enclosing();
        match enclosing.get(element as usize) {
            Some(of) => element - run(enclosing, *of).start,
            None => 0,
        }
    }

    /// The inverted index of the elements: its rows are element numbers, its paths those of the
    /// leaves below the nested path (not of paths nested in it).
    pub fn bundle(&self) -> &Arc<Bundle> {
        &self.bundle
    }

    /// Finds the elements with any value in the range, among `among` (elements) if given, on the
    /// calling thread; as [`Segment::range_rows`](super::Segment::range_rows).
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn range_rows_blocking(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap> {
        if range.is_empty() {
            return Ok(RoaringBitmap::new());
        }
        match &*self.segment.kind {
            Kind::Memory(memory) => {
                let rows = memory.rows.nested_of(self.path());
                Ok(memory::range_rows(rows.and_then(|rows| rows.column(column)), range, among))
            }
            Kind::Stored(stored) => {
                let Some(record) = stored.nested_column(self.path(), column)? else {
                    return Ok(RoaringBitmap::new());
                };
                match range.relation_to_record(&record.min, &record.max) {
                    Relation::Disjoint => return Ok(RoaringBitmap::new()),
                    Relation::Covers if record.present == self.elements() => {
                        let mut all = RoaringBitmap::new();
                        all.insert_range(0..self.elements());
                        return Ok(among.map_or(all, Clone::clone));
                    }
                    _ => {}
                }
                let mut found = RoaringBitmap::new();
                self.scan_blocking(&[column], among.cloned(), |batch| {
                    range.matches(&batch.columns[0], &mut |at| {
                        found.insert(batch.rows[at]);
                    });
                    true
                })?;
                Ok(found)
            }
        }
    }

    /// Reads columns of the selected elements (all without a selection) batch by batch on the calling
    /// thread until `sink` returns false; `rows` of a batch are element numbers. As
    /// [`Segment::scan_blocking`](super::Segment::scan_blocking).
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn scan_blocking(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
        mut sink: impl FnMut(ColumnBatch) -> bool,
    ) -> Result<()> {
        match &*self.segment.kind {
            Kind::Memory(memory) => {
                let of_path = memory.rows.nested_of(self.path());
                let column = |id| of_path.and_then(|rows| rows.column(id));
                sink(memory::read(&column, self.elements(), columns, rows.as_ref())?);
                Ok(())
            }
            Kind::Stored(stored) => stored.scan_elements(&self.places, columns, rows.as_ref(), &mut sink),
        }
    }

    /// Returns what is known of a column over all elements without reading it; as
    /// [`Segment::column_bounds`](super::Segment::column_bounds).
    pub fn column_bounds(&self, column: PathId) -> PageBounds {
        let rows = 0..self.elements();
        let empty = PageBounds { rows: rows.clone(), values: NumberBounds::Empty, full: false };
        match &*self.segment.kind {
            Kind::Memory(memory) => {
                let of_path = memory.rows.nested_of(self.path());
                match of_path.and_then(|rows| rows.column(column)) {
                    Some(_) => PageBounds { values: NumberBounds::Unknown, ..empty },
                    None => empty,
                }
            }
            // A record that cannot be read says nothing.
            Kind::Stored(stored) => match stored.nested_column(self.path(), column) {
                Ok(Some(record)) if record.present > 0 => PageBounds {
                    values: NumberBounds::of_record(&record.min, &record.max),
                    full: record.present == rows.end,
                    rows,
                },
                Ok(_) => empty,
                Err(_) => PageBounds { values: NumberBounds::Unknown, ..empty },
            },
        }
    }

    fn enclosing(&self) -> &[u32] {
        self.outer().unwrap_or(&self.places.parents)
    }
}

/// Positions of a value in an ascending list.
fn run(list: &[u32], value: u32) -> Range<u32> {
    let start = list.partition_point(|other| *other < value);
    let len = list[start..].partition_point(|other| *other == value);
    // Element numbers are 32-bit.
    start as u32..(start + len) as u32
}
