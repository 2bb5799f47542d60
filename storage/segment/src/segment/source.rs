//! Rows of a merge's inputs on their way into its output, a batch at a time.

use arrow::array::BooleanArray;
use arrow::datatypes::SchemaRef;
use millrace_runtime::Result;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use roaring::RoaringBitmap;

use super::batch::{self, Batch};
use super::columns::Sparse;
use super::merge::MergeInput;
use super::rows::Rows;
use super::sparse_file::SparseRoot;
use super::stored::StoredSegment;
use super::{Kind, layout};
use crate::bundle::{DROPPED, RowMap};

/// The rows of an input that are kept, in the order that they have in the output.
pub(super) enum Source<'a> {
    /// All at once; `None` once they were given.
    Memory(Option<&'a Rows>, Option<Vec<u32>>),
    Stored(Box<Groups<'a>>),
}

/// The rows of a stored segment, row group by row group.
pub(super) struct Groups<'a> {
    stored: &'a StoredSegment,
    deleted: &'a RoaringBitmap,
    /// Columns that are read by their values, and where they go among the fields of the output.
    sparse: Vec<SparseRoot>,
    targets: Vec<Option<usize>>,
    /// The other ones, and where the fields of the output are among them.
    roots: Vec<usize>,
    places: Option<Vec<Option<usize>>>,
    groups: std::ops::Range<usize>,
    reader: Option<ParquetRecordBatchReader>,
    /// The sparse columns of the open group.
    columns: Vec<Sparse>,
    /// Rows of the open group that were read, and of the segment.
    in_group: u32,
    read: u32,
}

impl<'a> Source<'a> {
    /// Opens an input whose rows go where `map` says.
    pub(super) fn open(input: &'a MergeInput, map: &RowMap, schema: &SchemaRef) -> Result<Self> {
        match &*input.segment.kind {
            Kind::Memory(memory) => Ok(Self::Memory(Some(&memory.rows), in_order(map))),
            Kind::Stored(stored) => Ok(Self::Stored(Box::new(Groups::open(stored, &input.deleted, schema)?))),
        }
    }

    /// Returns the next rows; a batch may be without any.
    pub(super) fn next(&mut self, schema: &SchemaRef) -> Result<Option<Batch>> {
        match self {
            Self::Memory(rows, kept) => {
                rows.take().map(|rows| Batch::of_memory(rows, kept.as_deref(), schema)).transpose()
            }
            Self::Stored(groups) => groups.next(schema),
        }
    }
}

/// Rows that are kept, in the order of the output; `None` where all are and keep their order.
fn in_order(map: &RowMap) -> Option<Vec<u32>> {
    let RowMap::Table(table) = map else { return None };
    let mut kept: Vec<u32> =
        (0u32..).zip(table.iter()).filter(|(_, new)| **new != DROPPED).map(|(row, _)| row).collect();
    kept.sort_by_key(|row| table.get(*row as usize));
    Some(kept)
}

impl<'a> Groups<'a> {
    fn open(stored: &'a StoredSegment, deleted: &'a RoaringBitmap, schema: &SchemaRef) -> Result<Self> {
        let sparse = stored.sparse_roots()?;
        let roots = (0..stored.root_count()?).filter(|root| sparse.iter().all(|column| column.root != *root));
        let targets = sparse.iter().map(|column| {
            schema.fields().iter().position(|field| layout::number_of(field) == Some(column.id))
        });
        Ok(Self {
            stored,
            deleted,
            targets: targets.collect(),
            roots: roots.collect(),
            sparse,
            places: None,
            groups: 0..stored.group_rows()?.len(),
            reader: None,
            columns: Vec::new(),
            in_group: 0,
            read: 0,
        })
    }

    fn next(&mut self, schema: &SchemaRef) -> Result<Option<Batch>> {
        loop {
            let Some(reader) = &mut self.reader else {
                let Some(group) = self.groups.next() else { return Ok(None) };
                let columns = self.sparse.iter().map(|column| self.stored.read_sparse(*column, group));
                self.columns = columns.collect::<Result<_>>()?;
                self.reader = Some(self.stored.group_reader(&self.roots, group)?);
                self.in_group = 0;
                continue;
            };
            let Some(batch) = reader.next() else {
                self.reader = None;
                continue;
            };
            let batch = batch.map_err(|error| self.stored.read_error(error))?;
            let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
            let (base, at) = (self.read, self.in_group);
            let live = (self.deleted.range_cardinality(base..base + rows) > 0).then(|| {
                BooleanArray::from_iter((0..rows).map(|row| Some(!self.deleted.contains(base + row))))
            });
            let places = self.places.get_or_insert_with(|| batch::places(schema, batch.schema_ref()));
            let mut batch = Batch::of_file(&batch, places, live.as_ref(), schema)?;
            let windows = self.columns.iter().map(|column| column.window(at..at + rows));
            batch.set_sparse(windows.zip(&self.targets), live.as_ref())?;
            self.read += rows;
            self.in_group += rows;
            return Ok(Some(batch));
        }
    }
}
