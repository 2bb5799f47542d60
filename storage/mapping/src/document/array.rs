//! Columns as Arrow arrays.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, ListArray, StringViewArray, StructArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt64Array, make_view, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use super::chunk::{Column, Strings, Values};
use crate::mapping::ColumnKind;

impl ColumnKind {
    /// Returns the Arrow type of one value.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Str => DataType::Utf8View,
            Self::Int(8) => DataType::Int8,
            Self::Int(16) => DataType::Int16,
            Self::Int(32) => DataType::Int32,
            Self::Int(_) => DataType::Int64,
            Self::U64 => DataType::UInt64,
            Self::F32 => DataType::Float32,
            Self::F64 => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::DateMs => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            Self::DateNanos => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Self::Ip => DataType::FixedSizeBinary(16),
            Self::GeoPoint => DataType::Struct(point_fields()),
        }
    }
}

fn point_fields() -> Fields {
    Fields::from(vec![
        Field::new("lat", DataType::Float64, false),
        Field::new("lon", DataType::Float64, false),
    ])
}

/// Layout of the values in an array: one after another, or each to its row with gaps that are null.
enum Layout<'a> {
    Dense,
    Scattered { rows: &'a [u32], len: usize, nulls: NullBuffer },
}

impl Layout<'_> {
    fn place<T: Copy + Default, U: Copy>(&self, values: &[U], convert: impl Fn(U) -> T) -> Vec<T> {
        match self {
            Self::Dense => values.iter().map(|value| convert(*value)).collect(),
            Self::Scattered { rows, len, .. } => {
                let mut placed = vec![T::default(); *len];
                for (row, value) in rows.iter().zip(values) {
                    placed[*row as usize] = convert(*value);
                }
                placed
            }
        }
    }

    fn nulls(&self) -> Option<NullBuffer> {
        match self {
            Self::Dense => None,
            Self::Scattered { nulls, .. } => Some(nulls.clone()),
        }
    }
}

impl Column {
    /// Converts to Arrow over `rows` documents: the element type when no row has two values, else
    /// `List` of it (empty lists never occur: absent is null).
    ///
    /// # Panics
    /// Where the column has a value in row `rows` or beyond.
    pub fn to_array(&self, rows: u32) -> ArrayRef {
        let len = rows as usize;
        assert!(self.rows.last().is_none_or(|last| *last < rows), "column has values beyond {rows} rows");
        if self.is_multi_valued() {
            return self.to_list(len);
        }
        if self.rows.len() == len {
            return self.elements(&Layout::Dense);
        }
        self.elements(&Layout::Scattered { rows: &self.rows, len, nulls: presence(&self.rows, len) })
    }

    /// Converts the values alone, one after another.
    pub fn to_values(&self) -> ArrayRef {
        self.elements(&Layout::Dense)
    }

    fn to_list(&self, len: usize) -> ArrayRef {
        let mut offsets = Vec::with_capacity(len + 1);
        let mut at = 0usize;
        offsets.push(0i32);
        for row in 0..len {
            while self.rows.get(at).is_some_and(|r| *r as usize == row) {
                at += 1;
            }
            offsets.push(i32::try_from(at).expect("a chunk holds fewer than 2^31 values a column"));
        }
        Arc::new(ListArray::new(
            Arc::new(Field::new_list_field(self.kind.data_type(), true)),
            OffsetBuffer::new(offsets.into()),
            self.elements(&Layout::Dense),
            Some(presence(&self.rows, len)),
        ))
    }

    fn elements(&self, layout: &Layout<'_>) -> ArrayRef {
        let nulls = layout.nulls();
        match (&self.values, self.kind) {
            (Values::Str(strings), _) => string_array(strings, layout),
            (Values::I64(values), ColumnKind::Int(8)) => {
                Arc::new(Int8Array::new(layout.place(values, |v| v as i8).into(), nulls))
            }
            (Values::I64(values), ColumnKind::Int(16)) => {
                Arc::new(Int16Array::new(layout.place(values, |v| v as i16).into(), nulls))
            }
            (Values::I64(values), ColumnKind::Int(32)) => {
                Arc::new(Int32Array::new(layout.place(values, |v| v as i32).into(), nulls))
            }
            (Values::I64(values), ColumnKind::DateMs) => Arc::new(
                TimestampMillisecondArray::new(layout.place(values, |v| v).into(), nulls)
                    .with_timezone("UTC"),
            ),
            (Values::I64(values), ColumnKind::DateNanos) => Arc::new(
                TimestampNanosecondArray::new(layout.place(values, |v| v).into(), nulls).with_timezone("UTC"),
            ),
            (Values::I64(values), _) => Arc::new(Int64Array::new(layout.place(values, |v| v).into(), nulls)),
            (Values::U64(values), _) => Arc::new(UInt64Array::new(layout.place(values, |v| v).into(), nulls)),
            (Values::F64(values), ColumnKind::F32) => {
                Arc::new(Float32Array::new(layout.place(values, |v| v as f32).into(), nulls))
            }
            (Values::F64(values), _) => {
                Arc::new(Float64Array::new(layout.place(values, |v| v).into(), nulls))
            }
            (Values::Bool(values), _) => {
                let placed = layout.place(values, |v| v);
                Arc::new(BooleanArray::new(BooleanBuffer::from(placed), nulls))
            }
            (Values::Ip(values), _) => {
                let placed = layout.place(values, |v| v);
                let buffer = Buffer::from_vec(placed.into_flattened());
                Arc::new(FixedSizeBinaryArray::new(16, buffer, nulls))
            }
            (Values::GeoPoint(values), _) => {
                let coordinate = |axis: usize| -> ArrayRef {
                    Arc::new(Float64Array::new(layout.place(values, |point| point[axis]).into(), None))
                };
                Arc::new(StructArray::new(point_fields(), vec![coordinate(0), coordinate(1)], nulls))
            }
        }
    }
}

/// Returns the presence of values by row.
fn presence(rows: &[u32], len: usize) -> NullBuffer {
    let mut bits = vec![0u8; len.div_ceil(8)];
    for row in rows {
        bits[*row as usize / 8] |= 1 << (row % 8);
    }
    NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, len))
}

fn string_array(strings: &Strings, layout: &Layout<'_>) -> ArrayRef {
    let Ok(text) = std::str::from_utf8(&strings.bytes) else {
        // Strings come from `&str`s only; whoever built others gets nulls instead of undefined behaviour.
        let len = match layout {
            Layout::Dense => strings.keys.len(),
            Layout::Scattered { len, .. } => *len,
        };
        return new_null_array(&DataType::Utf8View, len);
    };
    let mut start = 0;
    let distinct: Vec<u128> = strings
        .ends
        .iter()
        .map(|end| {
            // Slicing as `str` checks that every value starts and ends between characters.
            let value = &text[start..*end as usize];
            let view = make_view(value.as_bytes(), 0, start as u32);
            start = *end as usize;
            view
        })
        .collect();
    let views = layout.place(&strings.keys, |key| distinct[key as usize]);
    let buffer = Buffer::from(strings.bytes.as_slice());
    // SAFETY: every view was made of a `str` slice of `text`, which `buffer` holds as the only buffer,
    // at the offset given; or it is 0, the empty string.
    Arc::new(unsafe {
        StringViewArray::new_unchecked(ScalarBuffer::from(views), vec![buffer], layout.nulls())
    })
}
