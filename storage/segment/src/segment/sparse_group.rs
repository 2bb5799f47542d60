//! Sparse columns of a row group under construction: kept by their values until the group ends, then
//! encoded at once, so that a row without a value costs two bytes of a level and no more.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::compute;
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMillisecondType, TimestampNanosecondType, UInt64Type,
};
use bytes::Bytes;
use millrace_runtime::{Error, Result};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};

use super::columns::Sparse;

/// The values of a column in the rows of a group so far.
#[derive(Debug, Default)]
pub(super) struct SparseGroup {
    /// Row of each value, counted from the start of the group, ascending.
    rows: Vec<u32>,
    parts: Vec<ArrayRef>,
}

impl SparseGroup {
    /// Appends the values of a column's rows, the first of which is row `base` of the group.
    pub(super) fn push(&mut self, base: u32, column: &Sparse) {
        if column.is_empty() {
            return;
        }
        match column.rows() {
            Some(rows) => self.rows.extend(rows.iter().map(|row| base + row)),
            None => self.rows.extend(base..base + column.len() as u32),
        }
        self.parts.push(Arc::clone(column.values()));
    }

    /// Appends what an array over rows has.
    pub(super) fn push_array(&mut self, base: u32, array: &ArrayRef) -> Result<()> {
        let nulls = array.logical_nulls();
        if let DataType::List(_) = array.data_type() {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            for (row, ends) in offsets.windows(2).enumerate() {
                // Offsets ascend.
                self.rows.extend(std::iter::repeat_n(base + row as u32, (ends[1] - ends[0]) as usize));
            }
            let (start, end) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
            self.parts.push(list.values().slice(start, end - start));
            return Ok(());
        }
        match nulls {
            None => {
                self.rows.extend(base..base + array.len() as u32);
                self.parts.push(Arc::clone(array));
            }
            Some(nulls) => {
                self.rows.extend(nulls.valid_indices().map(|row| base + row as u32));
                self.parts.push(present(array, &nulls)?);
            }
        }
        Ok(())
    }

    /// Estimates the bytes held: about those of a value and its row.
    pub(super) fn bytes(&self) -> usize {
        self.rows.len() * 16
    }

    /// Joins the values; `None` where there are none.
    pub(super) fn values(&self) -> Result<Option<ArrayRef>> {
        if self.parts.is_empty() {
            return Ok(None);
        }
        let parts: Vec<&dyn Array> = self.parts.iter().map(AsRef::as_ref).collect();
        Ok(Some(compute::concat(&parts)?))
    }

    /// Counts the rows that have a value.
    pub(super) fn present(&self) -> usize {
        self.rows.chunk_by(|a, b| a == b).count()
    }

    /// Encodes the column of a group of `total` rows.
    pub(super) fn write(
        &self,
        values: Option<&ArrayRef>,
        total: usize,
        list: bool,
        writer: &mut ColumnWriter<'_>,
    ) -> Result<()> {
        let mut levels = vec![0i16; total];
        let mut starts = Vec::new();
        if list {
            // 0: no list; 3: a value. 1 continues the list of a row.
            let mut taken = Vec::with_capacity(total + self.rows.len());
            starts.reserve(total + self.rows.len());
            let mut next = 0;
            for of_row in self.rows.chunk_by(|a, b| a == b) {
                let absent = of_row[0] as usize - next;
                taken.extend(std::iter::repeat_n(0, absent));
                taken.extend(std::iter::repeat_n(3, of_row.len()));
                starts.extend(std::iter::repeat_n(0, absent + 1));
                starts.extend(std::iter::repeat_n(1, of_row.len() - 1));
                next = of_row[0] as usize + 1;
            }
            taken.extend(std::iter::repeat_n(0, total - next));
            starts.extend(std::iter::repeat_n(0, total - next));
            levels = taken;
        } else {
            for row in &self.rows {
                levels[*row as usize] = 1;
            }
        }
        encode(values, &levels, list.then_some(starts.as_slice()), writer)
    }
}

fn present(array: &ArrayRef, nulls: &NullBuffer) -> Result<ArrayRef> {
    let mask = arrow::array::BooleanArray::new(nulls.inner().clone(), None);
    Ok(compute::filter(array, &mask)?)
}

/// Returns whether a column of this element type can be encoded here.
pub(super) fn takes(element: &DataType) -> bool {
    matches!(
        element,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64
            | DataType::Utf8View
            | DataType::Timestamp(TimeUnit::Millisecond | TimeUnit::Nanosecond, _)
            | DataType::FixedSizeBinary(_)
    )
}

fn encode(
    values: Option<&ArrayRef>,
    levels: &[i16],
    starts: Option<&[i16]>,
    writer: &mut ColumnWriter<'_>,
) -> Result<()> {
    macro_rules! write {
        ($writer:expr, $values:expr) => {
            $writer.write_batch($values, Some(levels), starts).map(drop)
        };
    }
    let misfit =
        |what: &DataType| Error::Columnar(format!("a sparse column of {what} has another type in the file"));
    let Some(array) = values else {
        return Ok(match writer {
            ColumnWriter::BoolColumnWriter(writer) => write!(writer, &[]),
            ColumnWriter::Int32ColumnWriter(writer) => write!(writer, &[]),
            ColumnWriter::Int64ColumnWriter(writer) => write!(writer, &[]),
            ColumnWriter::Int96ColumnWriter(writer) => write!(writer, &[]),
            ColumnWriter::FloatColumnWriter(writer) => write!(writer, &[]),
            ColumnWriter::DoubleColumnWriter(writer) => write!(writer, &[]),
            ColumnWriter::ByteArrayColumnWriter(writer) => write!(writer, &[]),
            ColumnWriter::FixedLenByteArrayColumnWriter(writer) => write!(writer, &[]),
        }?);
    };
    match (writer, array.data_type()) {
        (ColumnWriter::BoolColumnWriter(writer), DataType::Boolean) => {
            let values: Vec<bool> = array.as_boolean().values().iter().collect();
            write!(writer, &values)?;
        }
        (ColumnWriter::Int32ColumnWriter(writer), DataType::Int8) => {
            let values: Vec<i32> =
                array.as_primitive::<Int8Type>().values().iter().map(|v| i32::from(*v)).collect();
            write!(writer, &values)?;
        }
        (ColumnWriter::Int32ColumnWriter(writer), DataType::Int16) => {
            let values: Vec<i32> =
                array.as_primitive::<Int16Type>().values().iter().map(|v| i32::from(*v)).collect();
            write!(writer, &values)?;
        }
        (ColumnWriter::Int32ColumnWriter(writer), DataType::Int32) => {
            write!(writer, array.as_primitive::<Int32Type>().values())?;
        }
        (ColumnWriter::Int64ColumnWriter(writer), DataType::Int64) => {
            write!(writer, array.as_primitive::<Int64Type>().values())?;
        }
        (ColumnWriter::Int64ColumnWriter(writer), DataType::UInt64) => {
            let values: Vec<i64> =
                array.as_primitive::<UInt64Type>().values().iter().map(|v| v.cast_signed()).collect();
            write!(writer, &values)?;
        }
        (ColumnWriter::Int64ColumnWriter(writer), DataType::Timestamp(TimeUnit::Millisecond, _)) => {
            write!(writer, array.as_primitive::<TimestampMillisecondType>().values())?;
        }
        (ColumnWriter::Int64ColumnWriter(writer), DataType::Timestamp(TimeUnit::Nanosecond, _)) => {
            write!(writer, array.as_primitive::<TimestampNanosecondType>().values())?;
        }
        (ColumnWriter::FloatColumnWriter(writer), DataType::Float32) => {
            write!(writer, array.as_primitive::<Float32Type>().values())?;
        }
        (ColumnWriter::DoubleColumnWriter(writer), DataType::Float64) => {
            write!(writer, array.as_primitive::<Float64Type>().values())?;
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), DataType::Utf8View) => {
            let values = strings(array);
            write!(writer, &values)?;
        }
        (ColumnWriter::FixedLenByteArrayColumnWriter(writer), DataType::FixedSizeBinary(_)) => {
            let all = array.as_fixed_size_binary();
            let values: Vec<FixedLenByteArray> = (0..all.len())
                .map(|at| FixedLenByteArray::from(ByteArray::from(all.value(at).to_vec())))
                .collect();
            write!(writer, &values)?;
        }
        (_, other) => return Err(misfit(other)),
    }
    Ok(())
}

/// Copies strings into one buffer that they share.
fn strings(array: &ArrayRef) -> Vec<ByteArray> {
    let all = array.as_string_view();
    let total = all.lengths().map(|length| length as usize).sum();
    let mut joined = Vec::with_capacity(total);
    (0..all.len()).for_each(|at| joined.extend_from_slice(all.value(at).as_bytes()));
    let joined = Bytes::from(joined);
    let mut end = 0;
    all.lengths()
        .map(|length| {
            let start = end;
            end += length as usize;
            ByteArray::from(joined.slice(start..end))
        })
        .collect()
}
