//! Rows on their way into a file: for each field of its schema what one input has of it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, StructArray, UInt32Array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute;
use arrow::datatypes::{DataType, Field, SchemaRef};
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::{Error, Result};

use super::columns::Sparse;
use super::layout;
use super::rows::Rows;

/// Content of a field in an input.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Nothing: every row is null.
    Null,
    /// An array of the field's type.
    Array(ArrayRef),
    /// Values, to be made lists where the field is one.
    Sparse(Sparse),
}

/// Rows of a file to be.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) rows: usize,
    /// One a field of the schema.
    pub(crate) contents: Vec<Content>,
}

impl Batch {
    /// Takes the rows of an in-memory segment; `kept` lists those that stay in their new order, if not all do.
    pub(crate) fn of_memory(rows: &Rows, kept: Option<&[u32]>, schema: &SchemaRef) -> Result<Self> {
        let total = rows.batch.num_rows();
        let moved = kept.map(|kept| {
            let mut table = vec![u32::MAX; total];
            for (new, old) in kept.iter().enumerate() {
                table[*old as usize] = new as u32;
            }
            (UInt32Array::from(kept.to_vec()), table, kept.len() as u32)
        });
        let array = |array: &ArrayRef| -> Result<Content> {
            Ok(Content::Array(match &moved {
                None => Arc::clone(array),
                Some((kept, ..)) => compute::take(array, kept, None)?,
            }))
        };
        let contents = schema
            .fields()
            .iter()
            .map(|field| match layout::number_of(field) {
                None => rows.metadata(field.name()).map_or(Ok(Content::Null), array),
                Some(path) if Mapping::is_nested_id(path) => {
                    match elements(rows, path, field, u32::try_from(total).unwrap_or(u32::MAX))? {
                        Some(lists) => array(&lists),
                        None => Ok(Content::Null),
                    }
                }
                Some(id) => match (rows.column(id), &moved) {
                    (None, _) => Ok(Content::Null),
                    (Some(column), None) => Ok(Content::Sparse(column.clone())),
                    (Some(column), Some((_, table, left))) => {
                        Ok(Content::Sparse(column.moved(table, *left)?))
                    }
                },
            })
            .collect::<Result<_>>()?;
        Ok(Self { rows: kept.map_or(total, <[u32]>::len), contents })
    }

    /// Takes rows of a file that has its columns at `places` of the schema's fields; `live` says which
    /// stay, if not all do.
    pub(crate) fn of_file(
        batch: &RecordBatch,
        places: &[Option<usize>],
        live: Option<&BooleanArray>,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let contents = schema
            .fields()
            .iter()
            .zip(places)
            .map(|(field, place)| {
                let Some(array) = place.map(|at| batch.column(at)) else { return Ok(Content::Null) };
                if array.null_count() == array.len() {
                    return Ok(Content::Null);
                }
                let array = conform(array, field)?;
                Ok(Content::Array(match live {
                    None => array,
                    Some(live) => compute::filter(&array, live)?,
                }))
            })
            .collect::<Result<_>>()?;
        let rows = live.map_or(batch.num_rows(), BooleanArray::true_count);
        Ok(Self { rows, contents })
    }
}

impl Batch {
    /// Returns a run of the rows.
    pub(crate) fn slice(&self, run: Range<usize>) -> Self {
        if run == (0..self.rows) {
            return self.clone();
        }
        // Rows of a segment are counted in 32 bits.
        let window = run.start as u32..run.end as u32;
        let contents = self.contents.iter().map(|content| match content {
            Content::Null => Content::Null,
            Content::Array(array) => Content::Array(array.slice(run.start, run.len())),
            Content::Sparse(column) => Content::Sparse(column.window(window.clone())),
        });
        Self { rows: run.len(), contents: contents.collect() }
    }

    /// Puts columns of the rows that the batch was made of in their places among its fields.
    pub(crate) fn set_sparse<'a>(
        &mut self,
        columns: impl Iterator<Item = (Sparse, &'a Option<usize>)>,
        live: Option<&BooleanArray>,
    ) -> Result<()> {
        let table = live.map(|live| {
            let mut next = 0u32;
            let targets = live.values().iter().map(|live| {
                if !live {
                    return u32::MAX;
                }
                next += 1;
                next - 1
            });
            targets.collect::<Vec<u32>>()
        });
        for (column, target) in columns {
            let Some(target) = target else { continue };
            self.contents[*target] = match &table {
                _ if column.is_empty() => Content::Null,
                None => Content::Sparse(column),
                Some(table) => Content::Sparse(column.moved(table, self.rows as u32)?),
            };
        }
        Ok(())
    }
}

/// Finds where the fields of one schema are in another: mapped ones by their numbers, as other versions may have named them
/// otherwise, those of the metadata by their names.
pub(crate) fn places(schema: &SchemaRef, of: &SchemaRef) -> Vec<Option<usize>> {
    fn key(field: &Field) -> (Option<PathId>, &str) {
        match layout::number_of(field) {
            Some(number) => (Some(number), ""),
            None => (None, field.name()),
        }
    }
    let known: HashMap<_, usize> = of.fields().iter().enumerate().map(|(at, f)| (key(f), at)).collect();
    schema.fields().iter().map(|field| known.get(&key(field)).copied()).collect()
}

/// Brings an array of one segment into the type of a field that has at least what it has: missing
/// columns of elements become null, scalars lists of one.
fn conform(array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let (from, to) = (array.data_type(), field.data_type());
    if from == to {
        return Ok(Arc::clone(array));
    }
    match (from, to) {
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let values = conform(list.values(), item)?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let elements = array.as_struct();
            let columns = fields
                .iter()
                .map(|field| match elements.column_by_name(field.name()) {
                    Some(column) => conform(column, field),
                    None if field.name() == layout::ELEMENT => Ok(all_true(elements.len())),
                    None => Ok(new_null_array(field.data_type(), elements.len())),
                })
                .collect::<Result<Vec<_>>>()?;
            let nulls = elements.nulls().cloned();
            Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, elements.len())?))
        }
        (_, DataType::List(item)) if item.data_type() == from => Ok(singletons(array, item)),
        _ => Err(Error::Columnar(format!(
            "column [{}] is {from} and {to} in segments of one shard",
            field.name()
        ))),
    }
}

fn all_true(len: usize) -> ArrayRef {
    Arc::new(BooleanArray::from(vec![true; len]))
}

fn singletons(array: &ArrayRef, item: &Arc<Field>) -> ArrayRef {
    let nulls: Option<NullBuffer> = array.logical_nulls();
    let present: BooleanArray = match &nulls {
        None => BooleanArray::from(vec![true; array.len()]),
        Some(nulls) => BooleanArray::new(nulls.inner().clone(), None),
    };
    let offsets = OffsetBuffer::from_lengths(present.values().iter().map(usize::from));
    let values = match &nulls {
        None => Arc::clone(array),
        Some(_) => compute::filter(array, &present).unwrap_or_else(|_| Arc::clone(array)),
    };
    Arc::new(ListArray::new(Arc::clone(item), offsets, values, nulls))
}

/// Makes the lists of a nested path's elements over `enclosing` rows, or elements of the path around
/// it; `None` where it has none.
fn elements(rows: &Rows, path: PathId, field: &Field, enclosing: u32) -> Result<Option<ArrayRef>> {
    let (Some(nested), DataType::List(item)) = (rows.nested_of(path), field.data_type()) else {
        return Ok(None);
    };
    let DataType::Struct(fields) = item.data_type() else { return Ok(None) };
    let count = nested.elements();
    let columns = fields
        .iter()
        .map(|field| {
            let missing = || new_null_array(field.data_type(), count as usize);
            match layout::number_of(field) {
                None => Ok(all_true(count as usize)),
                Some(inner) if Mapping::is_nested_id(inner) => {
                    Ok(elements(rows, inner, field, count)?.unwrap_or_else(missing))
                }
                Some(id) => match nested.column(id) {
                    None => Ok(missing()),
                    Some(column) => column.to_array(count, matches!(field.data_type(), DataType::List(_))),
                },
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let of = match nested.places.outer {
        Some(_) => &nested.places.within,
        None => &nested.places.parents,
    };
    let mut lengths = vec![0usize; enclosing as usize];
    for row in of {
        lengths[*row as usize] += 1;
    }
    let nulls = NullBuffer::from_iter(lengths.iter().map(|length| *length > 0));
    let elements = StructArray::try_new_with_length(fields.clone(), columns, None, count as usize)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Some(Arc::new(ListArray::try_new(Arc::clone(item), offsets, Arc::new(elements), Some(nulls))?)))
}
