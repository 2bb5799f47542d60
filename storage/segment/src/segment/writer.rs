//! Writes the rows of a segment as Parquet.
//!
//! Row groups of 128k rows; pages of at most 4,096 rows, `_source` in pages of about 96 KB without
//! dictionary or statistics so that ten scattered rows decode little; dates and sequence numbers
//! delta-encoded; page index and statistics for everything else. What many rows lack costs little:
//! runs of nulls are written as such, without an array of them.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use millrace_catalog::ColumnRecord;
use millrace_mapping::PathId;
use millrace_runtime::{CancelSignal, Error, Result};
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::batch::{Batch, Content};
use super::checked::ChecksumWriter;
use super::copied::Chunk;
use super::file::reading;
use super::layout::{self, ColumnShape};
use super::rows::Statistics;
use super::sparse_file::MANY_COLUMNS;
use super::sparse_group::{self, SparseGroup};
use super::stored::StoredSegment;
use super::union::Special;

/// Rows of a row group.
const ROW_GROUP_ROWS: usize = 128 << 10;
/// Encoded bytes of a row group, about, where documents are large.
const ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows of a page, at most.
const PAGE_ROWS: usize = 4_096;
/// Rows of a page of a sparse segment, at most.
const SPARSE_PAGE_ROWS: usize = 64 << 10;
/// Bytes of a `_source` page, about.
const SOURCE_PAGE_BYTES: usize = 96 << 10;
/// Bytes of a dictionary page, at most.
pub(super) const DICTIONARY_BYTES: usize = 512 << 10;

/// Result of writing a segment.
#[derive(Debug)]
pub(crate) struct WrittenSegment {
    pub(crate) rows: u32,
    pub(crate) bytes: u64,
    /// Checksums of the file's blocks.
    pub(crate) sums: Vec<u32>,
    pub(crate) columns: Vec<ColumnRecord>,
    /// Columns of the elements of nested paths.
    pub(crate) nested: Vec<(PathId, Vec<ColumnRecord>)>,
}

/// Writes batches of one schema, in row order.
pub(crate) struct Writer<W: Write + Send> {
    file: SerializedFileWriter<ChecksumWriter<W>>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// Leaf writers of each field.
    leaves: Vec<Range<usize>>,
    group: Option<Vec<ArrowColumnWriter>>,
    groups: usize,
    rows_in_group: usize,
    rows: usize,
    /// Rows of each field that are null and not written yet.
    pending: Vec<usize>,
    /// Values of the fields that are encoded when the group ends.
    sparse: Vec<Option<SparseGroup>>,
    /// Nulls of each type, a row group of them.
    nulls: HashMap<DataType, ArrayRef>,
    statistics: Statistics,
    nested: Vec<(PathId, Fields, Statistics)>,
    first_column: usize,
}

fn element_of(field: &Field) -> &DataType {
    match field.data_type() {
        DataType::List(item) => item.data_type(),
        other => other,
    }
}

/// Lists the nested paths of a schema with the fields of their elements, outer ones first.
fn nested_paths(fields: &Fields, into: &mut Vec<(PathId, Fields, Statistics)>) {
    for field in fields {
        if let (Some(path), Some(fields)) = (layout::number_of(field), layout::elements_of(field)) {
            let shapes: Vec<ColumnShape> = fields.iter().filter_map(|field| column_shape(field)).collect();
            into.push((path, fields.clone(), Statistics::new(&shapes)));
            nested_paths(fields, into);
        }
    }
}

/// The column that a field of an element is.
fn column_shape(field: &Field) -> Option<ColumnShape> {
    let list = matches!(field.data_type(), DataType::List(_));
    match layout::elements_of(field) {
        Some(_) => None,
        None => Some(ColumnShape { id: layout::number_of(field)?, list }),
    }
}

/// Rows of a page: more where there are many columns, most of which are sparse then, because a page
/// costs a header, index entries and a compression context whatever it holds.
fn page_rows(schema: &Schema) -> usize {
    if schema.fields().len() > MANY_COLUMNS { SPARSE_PAGE_ROWS } else { PAGE_ROWS }
}

fn properties(
    schema: &Schema,
    special: &Special,
    sorted: Vec<SortingColumn>,
    zstd_level: i32,
) -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(zstd_level)?;
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("millrace ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(page_rows(schema))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_sorting_columns((!sorted.is_empty()).then_some(sorted));
    for field in schema.fields() {
        properties = of_field(properties, field, special, &[]);
    }
    Ok(properties.build())
}

/// Chooses encodings of a field below `above`.
fn of_field(
    mut properties: WriterPropertiesBuilder,
    field: &Field,
    special: &Special,
    above: &[String],
) -> WriterPropertiesBuilder {
    let name = field.name().as_str();
    let mut path = above.to_vec();
    path.push(name.to_owned());
    let element = match field.data_type() {
        DataType::List(item) => {
            path.extend(["list".to_owned(), "element".to_owned()]);
            item.data_type()
        }
        other => other,
    };
    if layout::elements_of(field).is_some()
        && let DataType::Struct(fields) = element
    {
        for field in fields {
            properties = of_field(properties, field, special, &path);
        }
        return properties;
    }
    let path = ColumnPath::new(path);
    match (name, element) {
        (layout::SOURCE, _) => properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path.clone(), Encoding::PLAIN)
            .set_column_data_page_size_limit(path.clone(), SOURCE_PAGE_BYTES)
            .set_column_statistics_enabled(path, EnabledStatistics::None),
        (layout::ID, _) => properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BYTE_ARRAY),
        (layout::SEQ_NO | layout::FRAME, _) | (_, DataType::Timestamp(..)) => delta(properties, path),
        (_, other)
            if other.is_integer()
                && layout::number_of(field).is_some_and(|id| special.packed.contains(&id)) =>
        {
            delta(properties, path)
        }
        (_, DataType::Utf8View) if layout::number_of(field).is_some_and(|id| special.plain.contains(&id)) => {
            properties.set_column_dictionary_enabled(path, false)
        }
        _ => properties,
    }
}

fn delta(properties: WriterPropertiesBuilder, path: ColumnPath) -> WriterPropertiesBuilder {
    properties
        .set_column_dictionary_enabled(path.clone(), false)
        .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
}

impl<W: Write + Send> Writer<W> {
    /// Starts a file; `columns` are those of its mapped fields, `special` names those among them that are
    /// not encoded like the others, `sorted` the columns whose order the rows are in.
    pub(crate) fn new(
        out: W,
        schema: SchemaRef,
        columns: &[ColumnShape],
        special: &Special,
        sorted: Vec<SortingColumn>,
        zstd_level: i32,
    ) -> Result<Self> {
        let mut properties = properties(&schema, special, sorted, zstd_level)?;
        add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
        let parquet_schema = ArrowSchemaConverter::new().convert(&schema)?;
        let file = SerializedFileWriter::new(
            ChecksumWriter::new(out),
            parquet_schema.root_schema_ptr(),
            Arc::new(properties),
        )?;
        let factory = ArrowRowGroupWriterFactory::new(&file, Arc::clone(&schema));
        let mut next = 0;
        let leaves = schema.fields().iter().map(|field| {
            let start = next;
            next += layout::leaf_count(field.data_type());
            start..next
        });
        let leaves = leaves.collect();
        let sparse = schema.fields().iter().map(|field| {
            let is_sparse = layout::number_of(field).is_some_and(|id| special.sparse.contains(&id));
            (is_sparse && sparse_group::takes(element_of(field))).then(SparseGroup::default)
        });
        let sparse = sparse.collect();
        let mut nested = Vec::new();
        nested_paths(schema.fields(), &mut nested);
        let first_column =
            schema.fields().iter().position(|field| layout::number_of(field).is_some()).unwrap_or(0);
        Ok(Self {
            file,
            factory,
            leaves,
            group: None,
            groups: 0,
            rows_in_group: 0,
            rows: 0,
            pending: vec![0; schema.fields().len()],
            sparse,
            nulls: HashMap::new(),
            statistics: Statistics::new(columns),
            nested,
            first_column,
            schema,
        })
    }

    /// Appends rows.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut at = 0;
        while at < batch.rows {
            let take = (batch.rows - at).min(ROW_GROUP_ROWS - self.rows_in_group);
            self.write_rows(batch, at..at + take)?;
            at += take;
            if self.rows_in_group == ROW_GROUP_ROWS || self.group_bytes() >= ROW_GROUP_BYTES {
                self.end_group()?;
            }
        }
        Ok(())
    }

    /// Returns whether the row groups of a segment without deleted rows are worth being taken over as they are: the schema is
    /// this one, and neither they nor the open one are small.
    pub(crate) fn takes(&self, stored: &StoredSegment) -> Result<bool> {
        let data = stored.data()?;
        let (_, metadata) = data.parts();
        let metadata = metadata.metadata();
        let groups = metadata.num_row_groups().max(1);
        let large = stored.record.rows as usize / groups >= ROW_GROUP_ROWS / 2
            || usize::try_from(stored.record.data_bytes).unwrap_or(0) / groups >= ROW_GROUP_BYTES / 4;
        let open = self.rows_in_group == 0 || self.rows_in_group >= ROW_GROUP_ROWS / 2;
        let ours = self.file.schema_descr().root_schema();
        Ok(large && open && metadata.file_metadata().schema_descr().root_schema() == ours)
    }

    /// Takes over the row groups of a segment, none of whose rows is deleted; ends between two of them once the signal is given.
    pub(crate) fn copy(&mut self, stored: &StoredSegment, cancel: &CancelSignal) -> Result<()> {
        self.end_group()?;
        let data = stored.data()?;
        let (file, metadata) = data.parts();
        let metadata = metadata.metadata();
        let name = file.name();
        for (at, group) in metadata.row_groups().iter().enumerate() {
            cancel.check()?;
            let mut out = self.file.next_row_group()?;
            for (column, of_column) in group.columns().iter().enumerate() {
                let (chunk, closed) = Chunk::find(file, metadata, at, column, of_column);
                out.append_column(&chunk, closed).map_err(|error| reading(&name, error))?;
            }
            out.close()?;
            self.groups += 1;
        }
        self.rows += stored.record.rows as usize;
        self.statistics.add(&stored.record.columns);
        for (path, _, statistics) in &mut self.nested {
            let records = stored.nested_records()?;
            if let Some(record) = records.iter().find(|record| record.path == path.0) {
                statistics.add(&record.columns);
            }
        }
        Ok(())
    }

    fn write_rows(&mut self, batch: &Batch, run: Range<usize>) -> Result<()> {
        if self.group.is_none() {
            self.group = Some(self.factory.create_column_writers(self.groups)?);
        }
        for (at, content) in batch.contents.iter().enumerate() {
            let column = at.checked_sub(self.first_column).filter(|at| *at < self.statistics.len());
            // A row group has fewer than 2^32 rows.
            let base = self.rows_in_group as u32;
            if let Some(sparse) = &mut self.sparse[at] {
                match content {
                    Content::Null => {}
                    Content::Array(array) => sparse.push_array(base, &array.slice(run.start, run.len()))?,
                    Content::Sparse(column) => {
                        sparse.push(base, &column.window(run.start as u32..run.end as u32));
                    }
                }
                continue;
            }
            match content {
                Content::Null => self.pending[at] += run.len(),
                Content::Array(array) => {
                    let array = array.slice(run.start, run.len());
                    match column {
                        Some(column) => self.statistics.update_rows(column, &array),
                        None => self.update_nested(at, &array),
                    }
                    self.write_array(at, &array)?;
                }
                Content::Sparse(sparse) => {
                    // Rows of a segment are counted in 32 bits.
                    let part = sparse.part(run.start as u32..run.end as u32);
                    if let Some(column) = column {
                        self.statistics.update(column, part.present(), &part.values);
                    }
                    let list = matches!(self.schema.field(at).data_type(), DataType::List(_));
                    let left = part.pieces(|gap, piece| {
                        self.pending[at] += gap;
                        self.write_array(at, &piece.to_array(list)?)
                    })?;
                    self.pending[at] += left;
                }
            }
        }
        self.rows_in_group += run.len();
        self.rows += run.len();
        Ok(())
    }

    /// Writes rows of a field behind the nulls that are pending.
    fn write_array(&mut self, at: usize, array: &ArrayRef) -> Result<()> {
        self.write_pending(at)?;
        let schema = Arc::clone(&self.schema);
        let field = schema.field(at);
        if field.name() != layout::SOURCE {
            return self.write_leaves(at, array);
        }
        // A page is cut only between calls: hand over about a page's worth at a time.
        let bytes = array.get_array_memory_size().max(1);
        let view_bytes = array.len() * 16;
        let average =
            source_bytes(array.as_ref()).unwrap_or(bytes - view_bytes.min(bytes)) / array.len().max(1);
        let step = (SOURCE_PAGE_BYTES / 2 / average.max(1)).clamp(1, PAGE_ROWS);
        for start in (0..array.len()).step_by(step) {
            self.write_leaves(at, &array.slice(start, step.min(array.len() - start)))?;
        }
        Ok(())
    }

    fn write_pending(&mut self, at: usize) -> Result<()> {
        while self.pending[at] > 0 {
            let data_type = self.schema.field(at).data_type();
            let nulls = self
                .nulls
                .entry(data_type.clone())
                .or_insert_with(|| new_null_array(data_type, ROW_GROUP_ROWS))
                .slice(0, self.pending[at].min(ROW_GROUP_ROWS));
            self.write_leaves(at, &nulls)?;
            self.pending[at] -= nulls.len();
        }
        Ok(())
    }

    fn write_leaves(&mut self, at: usize, array: &ArrayRef) -> Result<()> {
        let leaves = self.leaves[at].clone();
        let writers = self.group.as_mut().and_then(|group| group.get_mut(leaves));
        let writers =
            writers.ok_or_else(|| Error::Columnar("fewer column writers than leaves".to_owned()))?;
        for (writer, leaf) in writers.iter_mut().zip(compute_leaves(self.schema.field(at), array)?) {
            writer.write(&leaf)?;
        }
        Ok(())
    }

    /// Takes the elements of a nested path in an array of a root field into account.
    fn update_nested(&mut self, at: usize, array: &ArrayRef) {
        let field = self.schema.field(at);
        if let (Some(path), true) = (layout::number_of(field), layout::elements_of(field).is_some()) {
            update_elements(&mut self.nested, path, array);
        }
    }

    /// Estimates the encoded bytes of the open row group, which are in memory.
    fn group_bytes(&self) -> usize {
        let sparse: usize = self.sparse.iter().flatten().map(SparseGroup::bytes).sum();
        let others = self.group.iter().flatten().map(ArrowColumnWriter::get_estimated_total_bytes);
        sparse + others.sum::<usize>()
    }

    fn end_group(&mut self) -> Result<()> {
        if self.group.is_some() {
            for at in 0..self.pending.len() {
                self.write_pending(at)?;
            }
        }
        if let Some(writers) = self.group.take() {
            let mut group = self.file.next_row_group()?;
            let mut writers = writers.into_iter();
            for (at, field) in self.schema.fields().iter().enumerate() {
                let of_field = writers.by_ref().take(self.leaves[at].len());
                let Some(sparse) = &mut self.sparse[at] else {
                    for writer in of_field {
                        writer.close()?.append_to_row_group(&mut group)?;
                    }
                    continue;
                };
                of_field.for_each(drop);
                let sparse = std::mem::take(sparse);
                let values = sparse.values()?;
                if let Some(values) = &values {
                    self.statistics.update(at - self.first_column, sparse.present(), values);
                }
                let list = matches!(field.data_type(), DataType::List(_));
                let column = group.next_column()?;
                let mut column =
                    column.ok_or_else(|| Error::Columnar("fewer columns than leaves".to_owned()))?;
                sparse.write(values.as_ref(), self.rows_in_group, list, column.untyped())?;
                column.close()?;
            }
            group.close()?;
            self.groups += 1;
            self.rows_in_group = 0;
        }
        Ok(())
    }

    /// Writes the footer.
    pub(crate) fn finish(mut self) -> Result<(W, WrittenSegment)> {
        self.end_group()?;
        let rows =
            u32::try_from(self.rows).map_err(|_| Error::Internal("segment over 2^32 rows".to_owned()))?;
        let (out, bytes, sums) = self.file.into_inner()?.finish();
        let mut nested: Vec<_> =
            self.nested.into_iter().map(|(path, _, statistics)| (path, statistics.finish())).collect();
        nested.sort_unstable_by_key(|(path, _)| *path);
        Ok((out, WrittenSegment { rows, bytes, sums, columns: self.statistics.finish(), nested }))
    }
}

/// Takes the values of elements into account, those of paths nested in them included.
fn update_elements(statistics: &mut [(PathId, Fields, Statistics)], path: PathId, lists: &ArrayRef) {
    let list = lists.as_list::<i32>();
    let offsets = list.value_offsets();
    let (start, end) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    let elements = list.values().slice(start, end - start);
    let elements = elements.as_struct();
    let Some(at) = statistics.iter().position(|(other, ..)| *other == path) else { return };
    let fields = statistics[at].1.clone();
    let mut column = 0;
    for (field, array) in fields.iter().zip(elements.columns()) {
        if column_shape(field).is_some() {
            // Statistics are of the columns in the order of the fields.
            statistics[at].2.update_rows(column, array);
            column += 1;
        } else if let (Some(inner), true) = (layout::number_of(field), layout::elements_of(field).is_some()) {
            update_elements(statistics, inner, array);
        }
    }
}

/// Sums the lengths of a string column's values.
fn source_bytes(array: &dyn Array) -> Option<usize> {
    let views = array.as_any().downcast_ref::<arrow::array::StringViewArray>()?;
    Some(views.lengths().map(|length| length as usize).sum())
}
