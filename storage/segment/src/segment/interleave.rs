//! Writes the rows of several inputs in an order in which they alternate.
//!
//! Each input is read a batch at a time, its rows in their new order. The rows up to the least of the
//! batches' last ones are all at hand: they are a run of the output, column by column taken from the
//! batches that have a part in it. So at most one batch of each input is in memory.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_null_array};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Field, SchemaRef};
use millrace_runtime::{CancelSignal, Error, Result};

use super::batch::{Batch, Content};
use super::columns::Sparse;
use super::layout::{self, ColumnShape};
use super::merge::{MergeInput, release};
use super::opened::FileKind;
use super::source::Source;
use super::sparse_file::SPARSE_ROWS;
use super::writer::Writer;
use crate::bundle::{DROPPED, RowMap};

/// Runs between two times at which pages that were read are given back.
const RELEASE_ROUNDS: u32 = 64;

/// An input, and the batch of it that is being used up.
struct Open<'a> {
    source: Source<'a>,
    /// Rows of the output that its next rows become, ascending.
    rows: Box<dyn Iterator<Item = u32> + 'a>,
    batch: Batch,
    targets: Vec<u32>,
    used: usize,
}

impl<'a> Open<'a> {
    fn new(input: &'a MergeInput, map: &'a RowMap, schema: &SchemaRef) -> Result<Self> {
        let rows: Box<dyn Iterator<Item = u32>> = match map {
            RowMap::Offset(base) => Box::new(*base..*base + input.segment.rows()),
            RowMap::Table(table) => {
                let kept = || table.iter().copied().filter(|row| *row != DROPPED);
                if kept().is_sorted() {
                    Box::new(kept())
                } else {
                    let mut kept: Vec<u32> = kept().collect();
                    kept.sort_unstable();
                    Box::new(kept.into_iter())
                }
            }
        };
        let batch = Batch { rows: 0, contents: Vec::new() };
        Ok(Self { source: Source::open(input, map, schema)?, rows, batch, targets: Vec::new(), used: 0 })
    }

    /// Returns whether there are rows left; reads on where need be.
    fn ready(&mut self, schema: &SchemaRef) -> Result<bool> {
        while self.used == self.batch.rows {
            let Some(batch) = self.source.next(schema)? else { return Ok(false) };
            self.targets.clear();
            self.targets.extend(self.rows.by_ref().take(batch.rows));
            self.batch = batch;
            self.used = 0;
        }
        Ok(true)
    }
}

/// Writes the rows of all inputs to where the maps say.
pub(super) fn write<W: Write + Send>(
    inputs: &[MergeInput],
    maps: &[RowMap],
    schema: &SchemaRef,
    cancel: &CancelSignal,
    writer: &mut Writer<W>,
) -> Result<()> {
    let open = inputs.iter().zip(maps).map(|(input, map)| Open::new(input, map, schema));
    let mut open = open.collect::<Result<Vec<_>>>()?;
    let (mut next, mut rounds) = (0u32, 0u32);
    loop {
        cancel.check()?;
        rounds += 1;
        if rounds.is_multiple_of(RELEASE_ROUNDS) {
            release(inputs, &[FileKind::Data, FileKind::Bundle]);
        }
        let mut left = Vec::with_capacity(open.len());
        for mut input in open {
            if input.ready(schema)? {
                left.push(input);
            }
        }
        open = left;
        let Some(last) = open.iter().filter_map(|input| input.targets.last().copied()).min() else {
            return Ok(());
        };
        let mut parts = Vec::with_capacity(open.len());
        let mut order = vec![None; (last + 1).saturating_sub(next) as usize];
        for input in &mut open {
            let ahead = &input.targets[input.used..];
            let count = ahead.partition_point(|row| *row <= last);
            if count == 0 {
                continue;
            }
            for (place, row) in ahead[..count].iter().enumerate() {
                if let Some(entry) = row.checked_sub(next).and_then(|at| order.get_mut(at as usize)) {
                    *entry = Some((parts.len(), place));
                }
            }
            parts.push(input.batch.slice(input.used..input.used + count));
            input.used += count;
        }
        let order: Option<Vec<(usize, usize)>> = order.into_iter().collect();
        let order = order.filter(|order| order.len() == parts.iter().map(|part| part.rows).sum::<usize>());
        let order = order.ok_or_else(|| Error::Internal("rows of a merge do not fit together".to_owned()))?;
        writer.write(&mix(parts, &order, schema)?)?;
        next = last + 1;
    }
}

/// Makes one batch of parts; `order` names part and row of each of its rows.
fn mix(mut parts: Vec<Batch>, order: &[(usize, usize)], schema: &SchemaRef) -> Result<Batch> {
    if parts.len() == 1 {
        return Ok(parts.swap_remove(0));
    }
    let rows = order.len();
    let contents = schema.fields().iter().enumerate().map(|(at, field)| {
        let of_parts: Vec<(&Content, usize)> =
            parts.iter().filter_map(|part| Some((part.contents.get(at)?, part.rows))).collect();
        mix_column(&of_parts, order, field)
    });
    Ok(Batch { rows, contents: contents.collect::<Result<_>>()? })
}

fn mix_column(parts: &[(&Content, usize)], order: &[(usize, usize)], field: &Field) -> Result<Content> {
    if parts.iter().all(|(content, _)| matches!(content, Content::Null)) {
        return Ok(Content::Null);
    }
    let list = matches!(field.data_type(), DataType::List(_));
    let sparse = |(content, rows): &(&Content, usize)| match content {
        Content::Null => true,
        Content::Sparse(column) => (column.len() as u64) * SPARSE_ROWS < *rows as u64,
        Content::Array(_) => false,
    };
    if let Some(id) = layout::number_of(field)
        && parts.iter().all(sparse)
    {
        return Ok(Content::Sparse(mix_sparse(parts, order, ColumnShape { id, list })?));
    }
    let arrays = parts.iter().map(|(content, rows)| match content {
        Content::Null => Ok(new_null_array(field.data_type(), *rows)),
        Content::Array(array) => Ok(Arc::clone(array)),
        Content::Sparse(column) => column.to_array(u32::try_from(*rows).unwrap_or(u32::MAX), list),
    });
    let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    Ok(Content::Array(interleave(&arrays, order)?))
}

/// Mixes columns by their values: rows without one cost nothing but their place in `order`.
fn mix_sparse(parts: &[(&Content, usize)], order: &[(usize, usize)], shape: ColumnShape) -> Result<Sparse> {
    // Values of each row of each part that has any.
    let mut values: Vec<&dyn Array> = Vec::new();
    let mut of_row: Vec<Option<(usize, Vec<Range<usize>>)>> = Vec::with_capacity(parts.len());
    for (content, rows) in parts {
        let Content::Sparse(column) = content else {
            of_row.push(None);
            continue;
        };
        let mut ranges = vec![0..0; *rows];
        for at in 0..column.len() {
            let row = column.rows().map_or(at, |rows| rows[at] as usize);
            if let Some(range) = ranges.get_mut(row) {
                let start = if range.end == 0 { at } else { range.start };
                *range = start..at + 1;
            }
        }
        of_row.push(Some((values.len(), ranges)));
        values.push(column.values().as_ref());
    }
    let (mut rows, mut chosen) = (Vec::new(), Vec::new());
    for (new, (part, row)) in (0u32..).zip(order) {
        let Some(Some((array, ranges))) = of_row.get(*part) else { continue };
        for value in ranges.get(*row).cloned().unwrap_or_default() {
            rows.push(new);
            chosen.push((*array, value));
        }
    }
    Ok(Sparse::from_parts(shape, interleave(&values, &chosen)?, rows))
}
