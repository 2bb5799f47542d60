//! Sparse columns of a stored segment, read by their values: a merge of many columns that most rows
//! lack must not decode a null for each row of each.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, StringViewBuilder, TimestampMillisecondArray, TimestampNanosecondArray,
    UInt64Array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, TimeUnit};
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType as Physical;
use parquet::errors::ParquetError;
use parquet::file::serialized_reader::SerializedPageReader;

use super::columns::Sparse;
use super::file::reading;
use super::layout::{self, ColumnShape};
use super::stored::StoredSegment;

/// Columns of a file from which on it may pay to read sparse ones apart.
pub(super) const MANY_COLUMNS: usize = 128;

/// A column is sparse where fewer than one row in so many has a value.
pub(super) const SPARSE_ROWS: u64 = 4;

/// A column that is read by its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SparseRoot {
    /// Place among the fields of the file.
    pub(crate) root: usize,
    leaf: usize,
    pub(crate) id: PathId,
}

impl StoredSegment {
    /// Lists the columns to be read by their values.
    pub(crate) fn sparse_roots(&self) -> Result<Vec<SparseRoot>> {
        let data = self.data()?;
        let (_, metadata) = data.parts();
        let fields = metadata.schema().fields();
        let mut found = Vec::new();
        if fields.len() <= MANY_COLUMNS {
            return Ok(found);
        }
        let mut leaf = 0;
        for (root, field) in fields.iter().enumerate() {
            let leaves = layout::leaf_count(field.data_type());
            if let Some(id) = layout::number_of(field)
                && leaves == 1
                && !Mapping::is_nested_id(id)
                && self.column_record(id).is_some_and(|record| {
                    u64::from(record.present) * SPARSE_ROWS < u64::from(self.record.rows)
                })
            {
                found.push(SparseRoot { root, leaf, id });
            }
            leaf += leaves;
        }
        Ok(found)
    }

    /// Counts the row groups and the rows of each.
    pub(crate) fn group_rows(&self) -> Result<Vec<usize>> {
        let data = self.data()?;
        let (_, metadata) = data.parts();
        let groups = metadata.metadata().row_groups();
        Ok(groups.iter().map(|group| usize::try_from(group.num_rows()).unwrap_or(0)).collect())
    }

    /// Opens a reader over root columns of one row group.
    pub(crate) fn group_reader(&self, roots: &[usize], group: usize) -> Result<ParquetRecordBatchReader> {
        let data = self.data()?;
        let (file, metadata) = data.parts();
        let mask = ProjectionMask::roots(metadata.parquet_schema(), roots.iter().copied());
        ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone())
            .with_projection(mask)
            .with_batch_size(self.batch_rows())
            .with_row_groups(vec![group])
            .build()
            .map_err(|e| reading(&file.name(), e))
    }

    /// Reads a column in a row group; rows are counted from its start.
    pub(crate) fn read_sparse(&self, column: SparseRoot, group: usize) -> Result<Sparse> {
        let data = self.data()?;
        let (file, metadata) = data.parts();
        let chunk = metadata.metadata().row_group(group);
        let rows = usize::try_from(chunk.num_rows()).unwrap_or(0);
        let descriptor = chunk.column(column.leaf).column_descr_ptr();
        let field = metadata.schema().field(column.root);
        let (element, list) = match field.data_type() {
            DataType::List(item) => (item.data_type(), true),
            other => (other, false),
        };
        let pages = SerializedPageReader::new(Arc::new(file.clone()), chunk.column(column.leaf), rows, None);
        let read = pages
            .and_then(|pages| decode(get_column_reader(descriptor.clone(), Box::new(pages)), rows, element));
        let DecodedChunk { levels, starts, values } = read.map_err(|e| reading(&file.name(), e))?;
        let most = descriptor.max_def_level();
        let mut present = Vec::with_capacity(values.len());
        let mut found = 0;
        if list {
            for (level, start) in levels.iter().zip(&starts) {
                found += usize::from(*start == 0);
                if *level == most {
                    // The first level starts the first row.
                    present.push(found.saturating_sub(1) as u32);
                }
            }
        } else {
            found = levels.len();
            let with_value = levels.iter().enumerate().filter(|(_, level)| **level == most);
            present.extend(with_value.map(|(row, _)| row as u32));
        }
        if present.len() != values.len() || found != rows {
            return Err(Error::Corrupt {
                file: file.name(),
                offset: 0,
                reason: format!("column [{}] does not have the {rows} rows of its group", field.name()),
            });
        }
        Ok(Sparse::from_parts(ColumnShape { id: column.id, list }, values, present))
    }
}

/// A column chunk: definition levels, repetition levels (none of a column of scalars), values.
struct DecodedChunk {
    levels: Vec<i16>,
    starts: Vec<i16>,
    values: ArrayRef,
}

fn decode(reader: ColumnReader, rows: usize, element: &DataType) -> Result<DecodedChunk, ParquetError> {
    fn all<T: Physical>(
        mut reader: ColumnReaderImpl<T>,
        rows: usize,
        make: impl FnOnce(Vec<T::T>) -> Result<ArrayRef, ParquetError>,
    ) -> Result<DecodedChunk, ParquetError> {
        let (mut levels, mut starts, mut values) = (Vec::with_capacity(rows), Vec::new(), Vec::new());
        let mut read = 0;
        while read < rows {
            let (records, ..) =
                reader.read_records(rows - read, Some(&mut levels), Some(&mut starts), &mut values)?;
            if records == 0 {
                break;
            }
            read += records;
        }
        Ok(DecodedChunk { levels, starts, values: make(values)? })
    }
    let misfit = || ParquetError::General(format!("a column of {element} is stored as something else"));
    match reader {
        ColumnReader::BoolColumnReader(reader) => {
            all(reader, rows, |values| Ok(Arc::new(BooleanArray::from(values))))
        }
        ColumnReader::Int32ColumnReader(reader) => all(reader, rows, |values| match element {
            DataType::Int8 => Ok(Arc::new(Int8Array::from_iter_values(values.iter().map(|v| *v as i8)))),
            DataType::Int16 => Ok(Arc::new(Int16Array::from_iter_values(values.iter().map(|v| *v as i16)))),
            DataType::Int32 => Ok(Arc::new(Int32Array::from(values))),
            _ => Err(misfit()),
        }),
        ColumnReader::Int64ColumnReader(reader) => all(reader, rows, |values| match element {
            DataType::Int64 => Ok(Arc::new(Int64Array::from(values))),
            DataType::UInt64 => {
                Ok(Arc::new(UInt64Array::from_iter_values(values.iter().map(|v| v.cast_unsigned()))))
            }
            DataType::Timestamp(TimeUnit::Millisecond, zone) => {
                Ok(Arc::new(TimestampMillisecondArray::from(values).with_timezone_opt(zone.clone())))
            }
            DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
                Ok(Arc::new(TimestampNanosecondArray::from(values).with_timezone_opt(zone.clone())))
            }
            _ => Err(misfit()),
        }),
        ColumnReader::FloatColumnReader(reader) => {
            all(reader, rows, |values| Ok(Arc::new(Float32Array::from(values))))
        }
        ColumnReader::DoubleColumnReader(reader) => {
            all(reader, rows, |values| Ok(Arc::new(Float64Array::from(values))))
        }
        ColumnReader::ByteArrayColumnReader(reader) => all(reader, rows, |values| {
            if element != &DataType::Utf8View {
                return Err(misfit());
            }
            let mut builder = StringViewBuilder::with_capacity(values.len());
            for value in &values {
                builder.append_value(value.as_utf8()?);
            }
            Ok(Arc::new(builder.finish()))
        }),
        ColumnReader::FixedLenByteArrayColumnReader(reader) => all(reader, rows, |values| {
            let DataType::FixedSizeBinary(width) = element else { return Err(misfit()) };
            let mut bytes = Vec::with_capacity(values.len() * 16);
            values.iter().for_each(|value| bytes.extend_from_slice(value.data()));
            Ok(Arc::new(FixedSizeBinaryArray::try_new(*width, Buffer::from_vec(bytes), None)?))
        }),
        ColumnReader::Int96ColumnReader(_) => Err(misfit()),
    }
}
