//! Values of columns, whether a row has one value or a list of them.
//!
//! Scorers, sort keys and rules read values by [`for_each_string`] and [`for_each_number`]; [`Lists`] tells where the values of a row lie.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use millrace_work::error::Result;

/// The values of each row, whether a column holds one or several.
#[derive(Debug)]
pub struct Lists {
    /// Values of all rows.
    pub values: ArrayRef,
    offsets: Option<OffsetBuffer<i32>>,
    nulls: Option<arrow::buffer::NullBuffer>,
}

impl Lists {
    /// Looks at a column.
    pub fn new(column: &ArrayRef) -> Self {
        match column.as_list_opt::<i32>() {
            Some(list) => Self {
                values: Arc::clone(list.values()),
                offsets: Some(list.offsets().clone()),
                nulls: list.nulls().cloned(),
            },
            None => Self { values: Arc::clone(column), offsets: None, nulls: None },
        }
    }

    /// Returns true if each row has one value, or none.
    pub fn is_flat(&self) -> bool {
        self.offsets.is_none()
    }

    /// Returns where the values of a row are.
    pub fn row(&self, row: usize) -> std::ops::Range<usize> {
        match &self.offsets {
            None => row..row + 1,
            Some(_) if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) => 0..0,
            Some(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
        }
    }
}

/// Returns true if a string is no longer than `ignore_above` allows.
pub fn fits_ignore_above(value: &str, ignore_above: Option<usize>) -> bool {
    match ignore_above {
        Some(limit) if value.len() > limit => value.encode_utf16().count() <= limit,
        _ => true,
    }
}

/// Calls `visit` with the row and each string of a column.
pub fn for_each_string(
    column: &ArrayRef,
    ignore_above: Option<usize>,
    visit: &mut dyn FnMut(usize, &str),
) -> Result<()> {
    let lists = Lists::new(column);
    let values = cast(&lists.values, &DataType::Utf8View)?;
    let values = values.as_string_view();
    for row in 0..column.len() {
        for at in lists.row(row).filter(|at| values.is_valid(*at)) {
            if fits_ignore_above(values.value(at), ignore_above) {
                visit(row, values.value(at));
            }
        }
    }
    Ok(())
}

/// Calls `visit` with the row and the bits of each number of a column.
pub fn for_each_number(column: &ArrayRef, visit: &mut dyn FnMut(usize, u64)) -> Result<()> {
    let lists = Lists::new(column);
    let (kind, float) = match lists.values.data_type() {
        DataType::UInt64 => (DataType::UInt64, false),
        DataType::Float32 | DataType::Float64 => (DataType::Float64, true),
        _ => (DataType::Int64, false),
    };
    let values = cast(&lists.values, &kind)?;
    for row in 0..column.len() {
        for at in lists.row(row).filter(|at| values.is_valid(*at)) {
            let bits = match (&kind, float) {
                (_, true) => values.as_primitive::<Float64Type>().value(at).to_bits(),
                (DataType::UInt64, _) => values.as_primitive::<UInt64Type>().value(at),
                _ => values.as_primitive::<Int64Type>().value(at) as u64,
            };
            visit(row, bits);
        }
    }
    Ok(())
}
