//! Sort keys that are no columns of the rows themselves: metadata, and values of nested elements.
//!
//! [`DerivedKey::values`] makes the column that a key is computed from, for a few rows of a segment. It
//! reads what it needs from the store, so it runs on a compute thread.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, StringViewArray, UInt32Array, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::Field;
use millrace_mapping::PathId;
use millrace_scoring::lists::Lists;
use millrace_scoring::nested::{Elements, NestedNode, matching_elements};
use millrace_scoring::node::{Node, ResolvedPredicate};
use millrace_scoring::one_batch::read_rows;
use millrace_scoring::reader::SegmentReader;
use millrace_scoring::source::Source;
use millrace_segment::{ColumnBatch, RowParts};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::statistics::Functions;
use crate::table::snapshot::TableSnapshot;

/// Source of a derived key.
#[derive(Clone, Debug)]
pub enum DerivedKey {
    /// The document's id.
    Id,
    /// The sequence number of the operation that wrote the document.
    SeqNo,
    /// A name that all rows of the index share.
    Name(String),
    /// The column of the elements of a nested path.
    Elements(Arc<NestedKey>),
}

/// The elements whose values are a key.
#[derive(Debug)]
pub struct NestedKey {
    /// The nested paths from the outside in, each with the condition on its elements.
    pub levels: Vec<NestedLevel>,
    /// Most elements of a document whose values count.
    pub max_children: usize,
}

/// The condition on the elements of one nested path.
#[derive(Debug)]
pub struct NestedLevel {
    /// By index of the table: the condition as a nested clause within those of the levels before.
    pub resolved: Vec<Option<ResolvedPredicate>>,
    /// Terms of the condition.
    pub functions: Functions,
}

impl DerivedKey {
    /// Makes the column for rows of a segment, in their order; `None` where there are no values.
    pub fn values(
        &self,
        column: PathId,
        snapshot: &TableSnapshot,
        number: u32,
        rows: &[u32],
        work: &QueryContext,
    ) -> Result<Option<ArrayRef>> {
        let segment = snapshot
            .segments
            .get(number as usize)
            .ok_or_else(|| Error::Execution(format!("segment {number} is not pinned")))?;
        let reader = &segment.reader;
        Ok(Some(match self {
            Self::Name(name) => {
                let names = std::iter::repeat_n(name.as_str(), rows.len());
                Arc::new(StringViewArray::from_iter_values(names)) as ArrayRef
            }
            Self::Id => {
                let stored = reader.fetch(rows, RowParts { source: false, versions: false })?;
                let ids: HashMap<u32, String> = stored.into_iter().map(|row| (row.row, row.id)).collect();
                let ids = rows.iter().map(|row| ids.get(row).map(String::as_str));
                Arc::new(StringViewArray::from_iter(ids))
            }
            Self::SeqNo => {
                let stored = reader.fetch(rows, RowParts { source: false, versions: true })?;
                let numbers: HashMap<u32, u64> =
                    stored.into_iter().map(|row| (row.row, row.seq_no)).collect();
                Arc::new(UInt64Array::from_iter(rows.iter().map(|row| numbers.get(row).copied())))
            }
            Self::Elements(nested) => {
                let source = snapshot.source(number, segment, work)?;
                return nested.values(column, snapshot, (segment.index, segment.shard), source, rows);
            }
        }))
    }
}

impl NestedKey {
    /// Gathers the values of the elements of each row. `place` is the index and the shard in the table.
    fn values(
        &self,
        column: PathId,
        snapshot: &TableSnapshot,
        place: (usize, u32),
        mut source: Source,
        rows: &[u32],
    ) -> Result<Option<ArrayRef>> {
        // By row: the elements of the level, at first the document itself.
        let mut within: Vec<Vec<u32>> = rows.iter().map(|row| vec![*row]).collect();
        for (depth, level) in self.levels.iter().enumerate() {
            let Some(Some(resolved)) = level.resolved.get(place.0) else { return Ok(None) };
            let Some(node) = nested_node(&resolved.node, depth) else { return Ok(None) };
            let Some(path) = node.chain.first() else { return Ok(None) };
            let functions =
                level.functions.of(snapshot, &level.resolved, place.0, place.1, false, &source.work)?;
            let own = Source { functions, ..source.clone() };
            let flat: Vec<u32> = within.iter().flatten().copied().collect();
            let mut found = matching_elements(node, &own, &flat)?.into_iter();
            for elements in &mut within {
                let below = found.by_ref().take(elements.len()).flatten();
                let mut below: Vec<u32> = below.map(|element| element.element).collect();
                below.sort_unstable();
                *elements = below;
            }
            let Some((inner, _)) = Elements::source(&source, *path)? else { return Ok(None) };
            source = inner;
        }
        gathered(source.reader.as_ref(), column, &within, self.max_children)
    }
}

/// Finds the nested clause of a level in those of the levels around it.
fn nested_node(node: &Node, depth: usize) -> Option<&NestedNode> {
    match (node, depth) {
        (Node::Nested(nested), 0) => Some(nested),
        (Node::Nested(nested), depth) => nested_node(&nested.inner, depth - 1),
        _ => None,
    }
}

/// Makes lists of the values that the elements of each row have in a column.
fn gathered(
    reader: &dyn SegmentReader,
    column: PathId,
    within: &[Vec<u32>],
    max_children: usize,
) -> Result<Option<ArrayRef>> {
    let wanted: RoaringBitmap = within.iter().flatten().copied().collect();
    let Some(ColumnBatch { rows: elements, columns }) = read_rows(reader, &[column], wanted)? else {
        return Ok(None);
    };
    let Some(array) = columns.first() else { return Ok(None) };
    let lists = Lists::new(array);
    let (mut taken, mut ends) = (Vec::new(), vec![0_i32]);
    for row in within {
        let mut children = 0;
        for element in row {
            let Ok(at) = elements.binary_search(element) else { continue };
            let before = taken.len();
            taken.extend(lists.row(at).filter(|at| lists.values.is_valid(*at)).map(|at| at as u32));
            if taken.len() > before {
                children += 1;
                if children >= max_children {
                    break;
                }
            }
        }
        let end = i32::try_from(taken.len())
            .map_err(|_| Error::Execution("a sort key has too many values".to_owned()))?;
        ends.push(end);
    }
    let values = take(&lists.values, &UInt32Array::from(taken), None)?;
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = OffsetBuffer::new(ends.into());
    Ok(Some(Arc::new(ListArray::try_new(field, offsets, values, None)?)))
}
