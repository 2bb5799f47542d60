//! Elements of nested paths in a stored segment: their catalog records, and their columns out of the
//! lists of structs that the file holds.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StructArray, new_null_array};
use arrow::compute;
use arrow::datatypes::{DataType, Fields};
use millrace_catalog::ColumnRecord;
use millrace_mapping::PathId;
use millrace_runtime::{Error, Result};
use parquet::arrow::ProjectionMask;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};

use super::stored::{StoredSegment, get_or_try_init};
use super::{ColumnBatch, layout};
use crate::bundle::NestedPositions;

/// Key of the records in a segment's `extra`.
pub(crate) const RECORDS: &str = "nested";

/// Record of a nested path in a segment, as the catalog has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NestedRecord {
    pub(crate) path: u32,
    pub(crate) outer: Option<u32>,
    /// Statistics of the columns of its elements.
    pub(crate) columns: Vec<ColumnRecord>,
}

impl StoredSegment {
    /// Returns what the catalog knows of nested paths.
    pub(crate) fn nested_records(&self) -> Result<&[NestedRecord]> {
        let records = get_or_try_init(&self.nested, || {
            let Some(records) = self.record.extra.get(RECORDS) else { return Ok(Vec::new()) };
            serde_json::from_value(records.clone()).map_err(|error| Error::Corrupt {
                file: self.record.id.to_string(),
                offset: 0,
                reason: format!("catalog record of nested paths: {error}"),
            })
        })?;
        Ok(records)
    }

    /// Finds the statistics of a column of elements.
    pub(crate) fn nested_column(&self, path: PathId, column: PathId) -> Result<Option<&ColumnRecord>> {
        let records = self.nested_records()?;
        let record = records.iter().find(|record| record.path == path.0);
        Ok(record.and_then(|record| record.columns.iter().find(|c| c.column == column.0)))
    }

    /// The paths from the root to a nested path, both included.
    fn chain(&self, path: PathId) -> Result<Vec<PathId>> {
        let records = self.nested_records()?;
        let mut chain = vec![path];
        while let Some(outer) =
            records.iter().find(|r| chain.last() == Some(&PathId(r.path))).and_then(|record| record.outer)
        {
            if chain.len() > records.len() {
                break;
            }
            chain.push(PathId(outer));
        }
        chain.reverse();
        Ok(chain)
    }

    /// Feeds batches of columns of the selected elements until `sink` returns false.
    pub(crate) fn scan_elements(
        &self,
        places: &NestedPositions,
        columns: &[PathId],
        selected: Option<&RoaringBitmap>,
        sink: &mut dyn FnMut(ColumnBatch) -> bool,
    ) -> Result<()> {
        let chain = self.chain(places.path)?;
        let data = self.data()?;
        let (_, metadata) = data.parts();
        let schema = metadata.schema();
        let mut leaves = Vec::new();
        let mut next = 0;
        wanted_leaves(schema.fields(), &chain, columns, &mut next, &mut leaves);
        let elements = places.parents.len() as u32;
        if leaves.is_empty() {
            let numbers: Vec<u32> = match selected {
                None => (0..elements).collect(),
                Some(selected) => selected.iter().take_while(|element| *element < elements).collect(),
            };
            let nulls = || new_null_array(&DataType::Null, numbers.len());
            let columns = columns.iter().map(|_| nulls()).collect();
            sink(ColumnBatch { rows: numbers, columns });
            return Ok(());
        }
        // The rows that have elements, or those of the selected ones.
        let rows: RoaringBitmap = match selected {
            None => places.parents.iter().copied().collect(),
            Some(selected) => {
                selected.iter().map_while(|element| places.parents.get(element as usize)).copied().collect()
            }
        };
        let mask = ProjectionMask::leaves(metadata.parquet_schema(), leaves);
        let mut numbers = rows.iter();
        for batch in self.masked_reader(mask, Some(&rows))? {
            let batch = batch.map_err(|e| self.read_error(e))?;
            let mut found = Vec::new();
            for row in numbers.by_ref().take(batch.num_rows()) {
                let start = places.parents.partition_point(|parent| *parent < row);
                let end = start + places.parents[start..].partition_point(|parent| *parent == row);
                found.extend(start as u32..end as u32);
            }
            let array = flatten(batch.column(0), &chain[1..]);
            if array.len() != found.len() {
                return Err(Error::Corrupt {
                    file: self.record.id.to_string(),
                    offset: 0,
                    reason: format!(
                        "nested path {} has {} elements in the file, {} in the index",
                        places.path.0,
                        array.len(),
                        found.len()
                    ),
                });
            }
            let keep = selected.filter(|_| !found.is_empty()).map(|selected| {
                BooleanArray::from_iter(found.iter().map(|element| Some(selected.contains(*element))))
            });
            let columns = columns
                .iter()
                .map(|column| {
                    let at = array.fields().iter().position(|field| {
                        layout::number_of(field) == Some(*column) && layout::elements_of(field).is_none()
                    });
                    let column: ArrayRef = match at {
                        Some(at) => array.column(at).clone(),
                        None => new_null_array(&DataType::Null, array.len()),
                    };
                    match &keep {
                        Some(keep) => Ok(compute::filter(&column, keep)?),
                        None => Ok(column),
                    }
                })
                .collect::<Result<Vec<_>>>()?;
            if let Some(selected) = selected {
                found.retain(|element| selected.contains(*element));
            }
            if !sink(ColumnBatch { rows: found, columns }) {
                break;
            }
        }
        Ok(())
    }
}

/// Collects the Parquet leaves of columns of the elements at the end of a chain of nested paths.
fn wanted_leaves(
    fields: &Fields,
    chain: &[PathId],
    columns: &[PathId],
    next: &mut usize,
    leaves: &mut Vec<usize>,
) {
    for field in fields {
        let start = *next;
        let number = layout::number_of(field);
        match (layout::elements_of(field), chain) {
            (Some(fields), [first, rest @ ..]) if number == Some(*first) => {
                wanted_leaves(fields, rest, columns, next, leaves);
            }
            (None, []) if number.is_some_and(|number| columns.contains(&number)) => {
                *next += layout::leaf_count(field.data_type());
                leaves.extend(start..*next);
            }
            _ => *next += layout::leaf_count(field.data_type()),
        }
    }
}

/// Joins the lists of elements of all rows, and those of the paths nested in them along a chain.
fn flatten(lists: &ArrayRef, chain: &[PathId]) -> StructArray {
    let list = lists.as_list::<i32>();
    let offsets = list.value_offsets();
    // Offsets ascend from 0.
    let (start, end) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    let elements = list.values().slice(start, end - start);
    let elements = elements.as_struct();
    let inner = chain
        .first()
        .and_then(|path| elements.fields().iter().position(|field| layout::number_of(field) == Some(*path)));
    match inner {
        Some(at) => flatten(elements.column(at), &chain[1..]),
        None => elements.clone(),
    }
}
