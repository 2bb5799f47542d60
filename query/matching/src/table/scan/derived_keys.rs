//! Rows whose sort keys are derived: their columns are made a few rows at a time.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use millrace_scoring::one_batch::read_rows;
use millrace_work::error::{Error, Result};

use super::{Column, ScanState};

impl ScanState {
    /// Returns whether a key of an index is no column of its rows.
    pub(super) fn derives_keys(&self, index: usize) -> bool {
        self.columns.iter().any(|column| match column {
            Column::Key(key) => {
                let source = self.table.keys.get(*key).and_then(|key| key.sources.get(index));
                matches!(source, Some(Some(source)) if source.derived.is_some())
            }
            _ => false,
        })
    }

    /// Computes the keys that are asked for of ascending rows of a segment. Blocks.
    pub(super) fn derived_keys(&self, number: u32, rows: &[u32]) -> Result<Vec<ArrayRef>> {
        let snapshot = &self.table.snapshot;
        let segment = snapshot
            .segments
            .get(number as usize)
            .ok_or_else(|| Error::Execution(format!("segment {number} is not pinned")))?;
        let mut keys = Vec::new();
        for column in &self.columns {
            let Column::Key(key) = column else { continue };
            let key = &self.table.keys[*key];
            let values = match key.sources.get(segment.index).and_then(Option::as_ref) {
                None => None,
                Some(source) => match &source.derived {
                    Some(derived) => {
                        derived.values(source.column, snapshot, number, rows, &self.table.options.work)?
                    }
                    None => {
                        let wanted = rows.iter().copied().collect();
                        let read = read_rows(segment.reader.as_ref(), &[source.column], wanted)?;
                        let array = read.as_ref().and_then(|read| Some((read, read.columns.first()?)));
                        array.map(|(read, array)| aligned(rows, &read.rows, array)).transpose()?
                    }
                },
            };
            keys.push(key.compute(segment.index, values.as_ref(), rows.len())?);
        }
        Ok(keys)
    }
}

/// Brings an array in line with rows of which it may lack some.
fn aligned(rows: &[u32], numbers: &[u32], array: &ArrayRef) -> Result<ArrayRef> {
    if rows == numbers {
        return Ok(Arc::clone(array));
    }
    let places = rows.iter().map(|row| numbers.binary_search(row).ok().map(|at| at as u32));
    Ok(take(array, &UInt32Array::from_iter(places), None)?)
}
