//! Writes the rows of a segment as Parquet.
//!
//! Row groups of 128k rows; pages of at most 4,096 rows, `_source` in pages of about 96 KB without
//! dictionary or statistics so that ten scattered rows decode little; dates and sequence numbers
//! delta-encoded; page index and statistics for everything else.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::checked::ChecksumWriter;
use super::layout::{self, ColumnShape};
use super::rows::Statistics;
use crate::catalog::ColumnRecord;
use crate::{Error, Result};

/// Rows of a row group.
const ROW_GROUP_ROWS: usize = 128 << 10;
/// Encoded bytes of a row group, about, where documents are large.
const ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows of a page, at most.
const PAGE_ROWS: usize = 4_096;
/// Columns beyond which a segment counts as sparse.
const MANY_COLUMNS: usize = 128;
/// Rows of a page of a sparse segment, at most.
const SPARSE_PAGE_ROWS: usize = 64 << 10;
/// Bytes of a `_source` page, about.
const SOURCE_PAGE_BYTES: usize = 96 << 10;
/// Bytes of a dictionary page, at most.
const DICTIONARY_BYTES: usize = 512 << 10;

/// What was written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) rows: u32,
    pub(crate) bytes: u64,
    /// Checksums of the file's blocks.
    pub(crate) sums: Vec<u32>,
    pub(crate) columns: Vec<ColumnRecord>,
}

/// Writes batches of one schema, in row order.
pub(crate) struct Writer<W: Write + Send> {
    file: SerializedFileWriter<ChecksumWriter<W>>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    group: Option<Vec<ArrowColumnWriter>>,
    groups: usize,
    rows_in_group: usize,
    rows: usize,
    statistics: Statistics,
    first_column: usize,
}

/// Rows of a page: more where there are many columns, most of which are sparse then, because a page
/// costs a header, index entries and a compression context whatever it holds.
fn page_rows(schema: &Schema) -> usize {
    if schema.fields().len() > MANY_COLUMNS { SPARSE_PAGE_ROWS } else { PAGE_ROWS }
}

fn properties(schema: &Schema, zstd_level: i32) -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(zstd_level)?;
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("millrace ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(page_rows(schema))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_statistics_enabled(EnabledStatistics::Page);
    for field in schema.fields() {
        let name = field.name().as_str();
        let path = match field.data_type() {
            DataType::List(_) => {
                ColumnPath::new(vec![name.to_owned(), "list".to_owned(), "element".to_owned()])
            }
            _ => ColumnPath::new(vec![name.to_owned()]),
        };
        let element = match field.data_type() {
            DataType::List(item) => item.data_type(),
            other => other,
        };
        properties = match (name, element) {
            (layout::SOURCE, _) => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path.clone(), Encoding::PLAIN)
                .set_column_data_page_size_limit(path.clone(), SOURCE_PAGE_BYTES)
                .set_column_statistics_enabled(path, EnabledStatistics::None),
            (layout::ID, _) => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BYTE_ARRAY),
            (layout::SEQ_NO | layout::FRAME, _) | (_, DataType::Timestamp(..)) => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            _ => properties,
        };
    }
    Ok(properties.build())
}

impl<W: Write + Send> Writer<W> {
    /// Starts a file.
    pub(crate) fn new(out: W, schema: SchemaRef, columns: &[ColumnShape], zstd_level: i32) -> Result<Self> {
        let mut properties = properties(&schema, zstd_level)?;
        add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
        let parquet_schema = ArrowSchemaConverter::new().convert(&schema)?;
        let file = SerializedFileWriter::new(
            ChecksumWriter::new(out),
            parquet_schema.root_schema_ptr(),
            Arc::new(properties),
        )?;
        let factory = ArrowRowGroupWriterFactory::new(&file, Arc::clone(&schema));
        // `_source` comes last, the mapped columns right before it.
        let first_column = schema.fields().len() - 1 - columns.len();
        Ok(Self {
            file,
            factory,
            schema,
            group: None,
            groups: 0,
            rows_in_group: 0,
            rows: 0,
            statistics: Statistics::new(columns),
            first_column,
        })
    }

    /// Appends rows.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut at = 0;
        while at < batch.num_rows() {
            let take = (batch.num_rows() - at).min(ROW_GROUP_ROWS - self.rows_in_group);
            self.write_slice(&batch.slice(at, take))?;
            at += take;
            if self.rows_in_group == ROW_GROUP_ROWS || self.group_bytes() >= ROW_GROUP_BYTES {
                self.end_group()?;
            }
        }
        Ok(())
    }

    fn write_slice(&mut self, batch: &RecordBatch) -> Result<()> {
        self.statistics.update(batch, self.first_column);
        let writers = match &mut self.group {
            Some(writers) => writers,
            None => self.group.insert(self.factory.create_column_writers(self.groups)?),
        };
        let mut writers = writers.iter_mut();
        let mut next =
            || writers.next().ok_or_else(|| Error::Columnar("fewer column writers than leaves".to_owned()));
        for (field, array) in self.schema.fields().iter().zip(batch.columns()) {
            if field.name() == layout::SOURCE {
                let writer = next()?;
                // A page is cut only between calls: hand over about a page's worth at a time.
                let bytes = array.get_array_memory_size().max(1);
                let view_bytes = batch.num_rows() * 16;
                let average = source_bytes(array.as_ref()).unwrap_or(bytes - view_bytes.min(bytes))
                    / array.len().max(1);
                let step = (SOURCE_PAGE_BYTES / 2 / average.max(1)).clamp(1, PAGE_ROWS);
                for start in (0..array.len()).step_by(step) {
                    let slice = array.slice(start, step.min(array.len() - start));
                    for leaf in compute_leaves(field, &slice)? {
                        writer.write(&leaf)?;
                    }
                }
            } else {
                for leaf in compute_leaves(field, array)? {
                    next()?.write(&leaf)?;
                }
            }
        }
        self.rows_in_group += batch.num_rows();
        self.rows += batch.num_rows();
        Ok(())
    }

    /// Estimates the encoded bytes of the open row group, which are in memory.
    fn group_bytes(&self) -> usize {
        self.group.iter().flatten().map(ArrowColumnWriter::get_estimated_total_bytes).sum()
    }

    fn end_group(&mut self) -> Result<()> {
        if let Some(writers) = self.group.take() {
            let mut group = self.file.next_row_group()?;
            for writer in writers {
                writer.close()?.append_to_row_group(&mut group)?;
            }
            group.close()?;
            self.groups += 1;
            self.rows_in_group = 0;
        }
        Ok(())
    }

    /// Writes the footer.
    pub(crate) fn finish(mut self) -> Result<(W, Written)> {
        self.end_group()?;
        let rows =
            u32::try_from(self.rows).map_err(|_| Error::Internal("segment over 2^32 rows".to_owned()))?;
        let (out, bytes, sums) = self.file.into_inner()?.finish();
        Ok((out, Written { rows, bytes, sums, columns: self.statistics.finish() }))
    }
}

/// Sums the lengths of a string column's values.
fn source_bytes(array: &dyn Array) -> Option<usize> {
    let views = array.as_any().downcast_ref::<arrow::array::StringViewArray>()?;
    Some(views.lengths().map(|length| length as usize).sum())
}
