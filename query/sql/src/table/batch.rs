//! Makes the columns of some rows of a segment: of stored columns, of sources and of what every document has.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Int64Array, RecordBatch, RecordBatchOptions,
    StringViewArray, StringViewBuilder, UInt32Array, new_null_array,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType;
use millrace_dsl::source_filter::SourceFilter;
use millrace_mapping::{FieldType, PathId};
use millrace_matching::table::{TableIndex, TableSegment};
use millrace_segment::{ColumnBatch, RowParts};
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;
use serde_json::Value;

use super::scan::{Output, ScanState};
use crate::column::{ColumnSource, SqlColumn};
use crate::elements::{
    ElementColumn, ElementRows, ElementValue, element_arrays, element_steps, split_by_elements,
};

/// Buffers of strings may be so many times as large as the strings.
const COMPACT_RATIO: usize = 4;
/// Bytes that a string takes beside its buffer.
const VIEW_BYTES: usize = 16;

/// Copies strings that take little of their buffers: a few rows would hold whole pages.
fn compact(array: ArrayRef) -> ArrayRef {
    let Some(strings) = array.as_string_view_opt() else { return array };
    let held: usize = strings.data_buffers().iter().map(Buffer::len).sum();
    let used = strings.total_buffer_bytes_used() + strings.len() * VIEW_BYTES;
    if held > COMPACT_RATIO * used { Arc::new(strings.gc()) } else { array }
}
/// Most rows of a segment that are few: each may lie on a page of its own.
const FEW_ROWS: u64 = 128;
/// Most bytes of stored rows that are read at once.
const FEW_BYTES: u64 = 1 << 20;

/// Fewest columns of texts instead of which sources are read.
const MIN_TEXTS: usize = 4;

/// Columns that a scan reads of one index.
#[derive(Default)]
pub(super) struct ScanColumns {
    /// Columns, each once.
    pub(super) ids: Vec<PathId>,
    /// Positions of the columns.
    positions: HashMap<PathId, usize>,
    /// Columns of texts that are read from sources, as they were indexed from there.
    texts: HashSet<PathId>,
    /// `true` if sources are read.
    pub(super) source: bool,
    /// `true` if ids or routing values are read.
    pub(super) metadata: bool,
    /// `true` if numbers of operations are read.
    versions: bool,
    /// `true` if elements of nested paths are read.
    pub(super) elements: bool,
    /// `true` if fragments of texts are read.
    highlights: bool,
    /// `true` if the rows and their bytes are few enough to be read at once.
    few: bool,
    /// Rows for which clauses hold, by number of the clause.
    pub(super) marks: Vec<(usize, RoaringBitmap)>,
}

impl ScanColumns {
    /// Adds a column.
    fn add(&mut self, id: PathId) {
        if let Entry::Vacant(position) = self.positions.entry(id) {
            position.insert(self.ids.len());
            self.ids.push(id);
        }
    }

    /// Returns whether the columns are read with large values beside them: sources, ids, or numbers of operations.
    pub(super) fn reads_stored(&self) -> bool {
        self.source || self.metadata
    }

    /// Returns whether all rows are read at once: columns and what is read beside them.
    pub(super) fn reads_at_once(&self) -> bool {
        self.few && self.reads_stored() && !self.elements
    }

    /// Returns whether the store is read for more than decoded columns.
    pub(super) fn blocks(&self) -> bool {
        self.reads_stored() || self.elements
    }
}

/// Returns whether every row of a segment has a text in a column that was indexed, as it is, from a member of its source.
fn is_text_of_source(column: &SqlColumn, id: PathId, index: &TableIndex, segment: &TableSegment) -> bool {
    let Some(field) = index.mapping.field(&column.name) else { return false };
    let is_own = field.id == id && field.column == id && *field.path == *column.name;
    let is_text = field.field_type == FieldType::Keyword || field.field_type.is_text();
    column.is_text()
        && (is_own && is_text && field.normalizer.is_none())
        && !column.name.contains('.')
        && !segment.reader.is_list(id)
        && segment.reader.bounds(id).full
}

/// Reads a column in some rows of a segment.
fn read_column(
    segment: &TableSegment,
    (column, source): (&SqlColumn, &ColumnSource),
    id: PathId,
    rows: &[u32],
) -> Result<ArrayRef> {
    let mut parts = Vec::new();
    segment.reader.read(&[id], Some(rows.iter().copied().collect()), &mut |part| {
        parts.extend(part.columns);
        true
    })?;
    let arrays = parts.iter().map(|array| column.of_array(source, array));
    let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
    Ok(concat(&arrays.iter().map(|array| array.as_ref()).collect::<Vec<_>>())?)
}

impl ScanState {
    /// Returns the columns that are read of an index.
    fn wanted(&self, index: usize) -> ScanColumns {
        let mut wanted = ScanColumns::default();
        for output in &self.outputs {
            let Output::Column(at) = output else { continue };
            match self.columns.get(*at).and_then(|column| column.sources.get(index)) {
                Some(ColumnSource::Column { id, .. }) => wanted.add(*id),
                Some(ColumnSource::Source(_)) => wanted.source = true,
                Some(ColumnSource::Id | ColumnSource::Routing) => wanted.metadata = true,
                Some(ColumnSource::SeqNo | ColumnSource::PrimaryTerm) => {
                    (wanted.metadata, wanted.versions) = (true, true);
                }
                Some(ColumnSource::Highlight(_)) => (wanted.source, wanted.highlights) = (true, true),
                Some(ColumnSource::Elements(own)) => {
                    wanted.elements = true;
                    wanted.source |= matches!(own.value, ElementValue::Source(..));
                }
                _ => {}
            }
        }
        wanted
    }

    /// Returns the columns that are read of so many rows of a segment.
    pub(super) fn wanted_of(&self, segment: &TableSegment, rows: u64) -> ScanColumns {
        let bytes = rows.saturating_mul(segment.reader.row_bytes());
        match rows <= FEW_ROWS && bytes <= FEW_BYTES {
            true => ScanColumns { few: true, ..self.wanted_of_few(segment) },
            false => self.wanted(segment.index),
        }
    }

    /// Returns the columns that are read of few rows of a segment. Texts come from sources where these are read anyway, or instead
    /// of several columns: a page of a column holds the texts of thousands of rows, one of sources fewer.
    fn wanted_of_few(&self, segment: &TableSegment) -> ScanColumns {
        let mut wanted = self.wanted(segment.index);
        let Some(index) = self.finder.table().snapshot.indices.get(segment.index) else { return wanted };
        let is_whole = matches!(SourceFilter::of_mapping(&index.mapping), SourceFilter::All);
        if wanted.elements || !is_whole {
            return wanted;
        }
        let (mut texts, mut others) = (HashSet::new(), HashSet::new());
        for output in &self.outputs {
            let Output::Column(at) = output else { continue };
            let column = self.columns.get(*at);
            let Some((column, source)) = column.and_then(|own| Some((own, own.sources.get(segment.index)?)))
            else {
                continue;
            };
            let ColumnSource::Column { id, .. } = source else { continue };
            match is_text_of_source(column, *id, index, segment) {
                true => texts.insert(*id),
                false => others.insert(*id),
            };
        }
        texts.retain(|id| !others.contains(id));
        if !wanted.source && texts.len() < MIN_TEXTS {
            return wanted;
        }
        let ids = std::mem::take(&mut wanted.ids);
        wanted.positions.clear();
        ids.into_iter().filter(|id| !texts.contains(id)).for_each(|id| wanted.add(id));
        wanted.source = true;
        wanted.texts = texts;
        wanted
    }

    /// Makes the outputs of few rows of a segment, which it reads. Blocks; runs on a compute thread.
    pub(super) fn batches_of_few(
        &self,
        number: u32,
        wanted: &ScanColumns,
        rows: RoaringBitmap,
        scores: &[f32],
    ) -> Result<Vec<RecordBatch>> {
        let Some(segment) = self.finder.table().snapshot.segments.get(number as usize) else {
            return Ok(Vec::new());
        };
        if wanted.ids.is_empty() {
            return Ok(vec![self.batch(number, wanted, rows.iter().collect(), &[], scores.to_vec())?]);
        }
        let mut parts = Vec::new();
        segment.reader.read(&wanted.ids, Some(rows), &mut |part| {
            parts.push(part);
            true
        })?;
        let (mut batches, mut sent) = (Vec::with_capacity(parts.len()), 0);
        for ColumnBatch { rows, columns } in parts {
            let end = (sent + rows.len()).min(scores.len());
            let own = scores.get(sent..end).unwrap_or_default().to_vec();
            sent += rows.len();
            batches.push(self.batch(number, wanted, rows, &columns, own)?);
        }
        Ok(batches)
    }

    /// Makes the outputs of some rows of a segment, whose `arrays` of [`ScanColumns::ids`] and scores are read already.
    pub(super) fn batch(
        &self,
        number: u32,
        wanted: &ScanColumns,
        rows: Vec<u32>,
        arrays: &[ArrayRef],
        scores: Vec<f32>,
    ) -> Result<RecordBatch> {
        let snapshot = &self.finder.table().snapshot;
        let (Some(segment), count) = (snapshot.segments.get(number as usize), rows.len()) else {
            return Err(Error::Execution(format!("segment {number} is not in the snapshot")));
        };
        let mut sources = Vec::new();
        let mut stored = Vec::new();
        if wanted.source || wanted.metadata {
            stored = match wanted.metadata || wanted.highlights {
                true => {
                    let parts = RowParts { source: wanted.source, versions: wanted.versions };
                    segment.reader.fetch(&rows, parts)?
                }
                false => segment.reader.sources(&rows)?,
            };
            if stored.len() != count {
                return Err(Error::Execution(format!(
                    "segment {number} returned {} of {count} rows",
                    stored.len()
                )));
            }
        }
        if wanted.source {
            let filter =
                snapshot.indices.get(segment.index).map(|index| SourceFilter::of_mapping(&index.mapping));
            for row in &stored {
                let source = match row.source.is_empty() {
                    true => Value::Null,
                    false => serde_json::from_slice(&row.source).map_err(|error| {
                        let row = row.row;
                        Error::Execution(format!(
                            "the source of row {row} of segment {number} is not JSON: {error}"
                        ))
                    })?,
                };
                sources.push(match &filter {
                    None | Some(SourceFilter::All) => source,
                    Some(filter) => filter.apply(source),
                });
            }
        }
        let mut columns = Vec::with_capacity(self.outputs.len());
        let mut elements = self.element_arrays(number, segment.index, &rows, &sources)?.into_iter();
        for output in &self.outputs {
            columns.push(match output {
                Output::Score if scores.is_empty() => new_null_array(&DataType::Float32, count),
                Output::Score => Arc::new(Float32Array::from(scores.clone())),
                Output::Segment => Arc::new(UInt32Array::from_value(number, count)),
                Output::Row => Arc::new(UInt32Array::from(rows.clone())),
                Output::Mark(at) => {
                    let found = wanted.marks.iter().find(|(mark, _)| mark == at).map(|(_, rows)| rows);
                    let holds = |row: &u32| found.is_some_and(|found| found.contains(*row));
                    Arc::new(rows.iter().map(|row| Some(holds(row))).collect::<BooleanArray>())
                }
                Output::Column(at) => {
                    let column = self.columns.get(*at);
                    let source = column.and_then(|column| column.sources.get(segment.index));
                    let (Some(column), Some(source)) = (column, source) else {
                        return Err(Error::Execution(format!("column {at} is not of the table")));
                    };
                    match source {
                        ColumnSource::Missing => new_null_array(&column.arrow(), count),
                        ColumnSource::Column { id, .. } if wanted.texts.contains(id) => {
                            match column.of_texts(&sources) {
                                Some(texts) => texts,
                                None => {
                                    if let Some(counts) = &self.counts {
                                        let (reader, rows) =
                                            (segment.reader.as_ref(), rows.iter().copied().collect());
                                        counts.add_pages(number, reader, (&[*id], false), &rows)?;
                                    }
                                    compact(read_column(segment, (column, source), *id, &rows)?)
                                }
                            }
                        }
                        ColumnSource::Column { id, .. } => {
                            let position = wanted.positions.get(id);
                            match position.and_then(|position| arrays.get(*position)) {
                                Some(array) => compact(column.of_array(source, array)?),
                                None => new_null_array(&column.arrow(), count),
                            }
                        }
                        ColumnSource::Source(path) => column.of_sources(path, &sources)?,
                        ColumnSource::Highlight(own) => {
                            let rows: Vec<_> = rows.iter().copied().zip(stored.iter().cloned()).collect();
                            let options = &self.finder.table().options;
                            own.array(snapshot, segment, &rows, options.now_ms, &options.work)?
                        }
                        ColumnSource::Elements(_) => elements.next().ok_or_else(|| {
                            Error::Execution(format!("the column [{}] was not read", column.name))
                        })?,
                        ColumnSource::Id => {
                            Arc::new(StringViewArray::from_iter_values(stored.iter().map(|row| &row.id)))
                        }
                        ColumnSource::Routing => {
                            let mut texts = StringViewBuilder::with_capacity(count);
                            stored.iter().for_each(|row| texts.append_option(row.routing.as_ref()));
                            Arc::new(texts.finish())
                        }
                        ColumnSource::SeqNo => Arc::new(Int64Array::from_iter_values(
                            stored.iter().map(|row| i64::try_from(row.seq_no).unwrap_or(i64::MAX)),
                        )),
                        ColumnSource::PrimaryTerm => Arc::new(Int64Array::from_iter_values(
                            stored.iter().map(|row| i64::try_from(row.primary_term).unwrap_or(i64::MAX)),
                        )),
                        ColumnSource::Index(name) => {
                            Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(name, count)))
                        }
                    }
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// Lists the columns of elements among the outputs, with their places and what an index has them from.
    fn element_columns(&self, index: usize) -> Vec<(usize, &SqlColumn, &ElementColumn)> {
        let of_elements = |(place, output): (usize, &Output)| {
            let Output::Column(at) = output else { return None };
            let column = self.columns.get(*at)?;
            match column.sources.get(index)? {
                ColumnSource::Elements(own) => Some((place, column, own)),
                _ => None,
            }
        };
        self.outputs.iter().enumerate().filter_map(of_elements).collect()
    }

    /// Returns how many rows of some of a segment are read at a time, for their elements to be few enough.
    pub(super) fn element_steps(&self, number: u32, rows: &[u32]) -> Result<Vec<usize>> {
        let segment = self.finder.table().snapshot.segments.get(number as usize);
        let Some(segment) = segment else { return Ok(vec![rows.len()]) };
        let mut paths: Vec<PathId> =
            self.element_columns(segment.index).into_iter().map(|(_, _, own)| own.path).collect();
        paths.sort_unstable();
        paths.dedup();
        element_steps(segment.reader.as_ref(), &paths, rows)
    }

    /// Reads the columns of elements among the outputs, in their order.
    fn element_arrays(
        &self,
        segment: u32,
        index: usize,
        rows: &[u32],
        sources: &[Value],
    ) -> Result<Vec<ArrayRef>> {
        let columns = self.element_columns(index);
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let columns: Vec<_> = columns.into_iter().map(|(_, column, own)| (column, own)).collect();
        let table = self.finder.table();
        let (snapshot, options) = (&table.snapshot, &table.options);
        let of =
            ElementRows { snapshot, segment, rows, sources, now_ms: options.now_ms, work: &options.work };
        element_arrays(of, &columns)
    }

    /// Cuts a batch of a segment where its elements would make too many rows.
    pub(super) fn split(&self, number: u32, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let segment = self.finder.table().snapshot.segments.get(number as usize);
        let columns = segment.map(|segment| self.element_columns(segment.index)).unwrap_or_default();
        if columns.is_empty() { Ok(vec![batch]) } else { split_by_elements(batch, &columns) }
    }
}
