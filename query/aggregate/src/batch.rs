//! Input of collectors: rows of a segment with the columns that the tree reads, and the buckets of the rows.
//!
//! A [`Batch`] lies in a scope: documents, or the elements of a nested path, whose rows are numbered by
//! themselves; the batch of the scope around it is at hand for the way back. A [`Selection`] picks rows
//! of a batch, each with the number of its bucket; a row stands there as often as it has buckets.

use std::cell::OnceCell;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringViewArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, UInt64Type};
use millrace_mapping::PathId;
use millrace_scoring::one_batch::read_rows;
use millrace_scoring::source::Source;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::metric::Ordinals;
use super::segment::{self, SegmentContext};

/// Rows of one scope of a segment.
pub(crate) struct Batch<'a> {
    /// The segment.
    pub segment: &'a SegmentContext<'a>,
    /// Number of the scope.
    pub scope: usize,
    /// Row numbers, ascending.
    pub rows: &'a [u32],
    /// The columns of the scope, by their places there; those that are not read are absent.
    pub columns: &'a [Option<Column>],
    /// Scores of the rows, where they are wanted.
    pub scores: Option<&'a [f32]>,
    /// The batch of the scope around.
    pub outer: Option<&'a Batch<'a>>,
}

impl SegmentContext<'_> {
    /// Reads the columns of a scope for rows, which ascend, and calls `each` with all in one batch.
    pub(crate) fn with_rows(
        &self,
        scope: usize,
        rows: &[u32],
        scores: Option<&[f32]>,
        outer: Option<&Batch<'_>>,
        each: &mut dyn FnMut(&Batch<'_>) -> Result<()>,
    ) -> Result<()> {
        let source = match scope {
            0 => &self.source,
            _ => match self.scope(scope)? {
                Some((source, _)) => source,
                None => return Ok(()),
            },
        };
        let paths = self.plan.columns(scope, self.index);
        let columns = read_whole(source, paths, rows)?;
        each(&Batch { segment: self, scope, rows, columns: &columns, scores, outer })
    }
}

/// Reads columns of a few rows as one array each.
fn read_whole(source: &Source, paths: &[PathId], rows: &[u32]) -> Result<Vec<Option<Column>>> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    // Rows ascend.
    let selected = RoaringBitmap::from_sorted_iter(rows.iter().copied())
        .map_err(|error| Error::Execution(format!("rows do not ascend: {error}")))?;
    if let Some(kept) = segment::numbers(source, paths, &selected)? {
        return Ok(kept.iter().map(Column::read).collect());
    }
    Ok(match read_rows(source.reader.as_ref(), paths, selected)? {
        Some(batch) => batch.columns.iter().map(Column::read).collect(),
        None => paths.iter().map(|_| None).collect(),
    })
}

/// Rows of a batch and the buckets that they belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection<'a> {
    /// Positions of the rows.
    pub positions: Positions<'a>,
    /// Their buckets.
    pub ordinals: Ordinals<'a>,
}

/// Places in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Positions<'a> {
    /// All, of which there are so many.
    All(usize),
    /// These, ascending but for repetitions.
    Some(&'a [u32]),
}

impl<'a> Selection<'a> {
    /// Counts the pairs of row and bucket.
    pub(crate) fn len(&self) -> usize {
        match self.positions {
            Positions::All(len) => len,
            Positions::Some(positions) => positions.len(),
        }
    }

    /// Calls `each` with every place and its bucket.
    #[inline]
    pub(crate) fn for_each(&self, mut each: impl FnMut(u32, u32)) {
        match (self.positions, self.ordinals) {
            (Positions::All(len), Ordinals::One(one)) => (0..len as u32).for_each(|at| each(at, one)),
            (Positions::All(_), Ordinals::Each(ordinals)) => {
                ordinals.iter().enumerate().for_each(|(at, ordinal)| each(at as u32, *ordinal));
            }
            (Positions::Some(positions), Ordinals::One(one)) => {
                positions.iter().for_each(|at| each(*at, one));
            }
            (Positions::Some(positions), Ordinals::Each(ordinals)) => {
                positions.iter().zip(ordinals).for_each(|(at, ordinal)| each(*at, *ordinal));
            }
        }
    }

    /// Returns the bucket of a pair.
    #[inline]
    pub(crate) fn ordinal(&self, at: usize) -> u32 {
        match self.ordinals {
            Ordinals::One(one) => one,
            Ordinals::Each(ordinals) => ordinals[at],
        }
    }
}

/// A column of a batch: the values of each row, whether it holds one or several.
#[derive(Debug)]
pub(crate) struct Column {
    array: ArrayRef,
    /// Values of all rows, one after the other.
    pub values: ArrayRef,
    offsets: Option<OffsetBuffer<i32>>,
    nulls: Option<NullBuffer>,
    longs: OnceCell<Int64Array>,
    doubles: OnceCell<Float64Array>,
    strings: OnceCell<StringViewArray>,
}

impl Column {
    /// Takes a column as a segment reads it.
    pub(crate) fn new(array: &ArrayRef) -> Self {
        let (values, offsets, nulls) = match array.as_list_opt::<i32>() {
            Some(list) => (list.values().clone(), Some(list.offsets().clone()), list.nulls().cloned()),
            None => (array.clone(), None, array.logical_nulls()),
        };
        Self {
            array: array.clone(),
            values,
            offsets,
            nulls: nulls.filter(|nulls| nulls.null_count() > 0),
            longs: OnceCell::new(),
            doubles: OnceCell::new(),
            strings: OnceCell::new(),
        }
    }

    /// Takes a column as a segment reads it; `None` where no row has a value.
    pub(crate) fn read(array: &ArrayRef) -> Option<Self> {
        (*array.data_type() != DataType::Null).then(|| Self::new(array))
    }

    /// Returns the column as it was read.
    pub(crate) fn array(&self) -> ArrayRef {
        self.array.clone()
    }

    /// Returns whether every row has exactly one value.
    pub(crate) fn is_plain(&self) -> bool {
        self.offsets.is_none() && self.nulls.is_none()
    }

    /// Returns whether a row may have several values.
    pub(crate) fn is_list(&self) -> bool {
        self.offsets.is_some()
    }

    /// Returns where the values of a row are.
    #[inline]
    pub(crate) fn row(&self, at: usize) -> Range<usize> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
            return 0..0;
        }
        match &self.offsets {
            None => at..at + 1,
            Some(offsets) => offsets[at] as usize..offsets[at + 1] as usize,
        }
    }

    /// Returns the values as whole numbers: dates as they are, booleans as 0 and 1, unsigned ones by their bits.
    pub(crate) fn longs(&self) -> Result<&Int64Array> {
        if let Some(longs) = self.longs.get() {
            return Ok(longs);
        }
        let longs = match self.values.data_type() {
            DataType::UInt64 => {
                let values = self.values.as_primitive::<UInt64Type>();
                Int64Array::new(values.values().inner().clone().into(), values.nulls().cloned())
            }
            DataType::Null => Int64Array::new_null(self.values.len()),
            _ => cast(&self.values, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
        };
        Ok(self.longs.get_or_init(|| longs))
    }

    /// Returns the values as floating point numbers: dates as milliseconds, booleans as 0 and 1.
    pub(crate) fn doubles(&self) -> Result<&Float64Array> {
        if let Some(doubles) = self.doubles.get() {
            return Ok(doubles);
        }
        let nanos = matches!(self.values.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, _));
        let doubles = match self.values.data_type() {
            DataType::Timestamp(..) => {
                let unit = if nanos { 1_000_000 } else { 1 };
                self.longs()?.unary(|value| value.div_euclid(unit) as f64)
            }
            _ => cast(&self.values, &DataType::Float64)?.as_primitive::<Float64Type>().clone(),
        };
        Ok(self.doubles.get_or_init(|| doubles))
    }

    /// Returns the values as strings.
    pub(crate) fn strings(&self) -> Result<&StringViewArray> {
        if let Some(strings) = self.strings.get() {
            return Ok(strings);
        }
        let strings = cast(&self.values, &DataType::Utf8View)?.as_string_view().clone();
        Ok(self.strings.get_or_init(|| strings))
    }
}
