//! What is counted of a column of a segment once, and kept.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use parking_lot::Mutex;

use super::Segment;
use crate::Result;
use crate::mapping::PathId;

/// The counts of a column, once they were asked for: `None` where there are too many.
type Slot<T> = Arc<Mutex<Option<Option<Arc<T>>>>>;

/// Counts by column.
#[derive(Debug)]
pub(super) struct Counted<T>(Mutex<HashMap<PathId, Slot<T>>>);

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Counted<T> {
    /// Returns the counts of a column; whoever comes first counts, the others wait.
    pub(super) fn of(
        &self,
        column: PathId,
        count: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<Arc<T>>> {
        let slot = Arc::clone(self.0.lock().entry(column).or_default());
        let mut known = slot.lock();
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let counted = count()?.map(Arc::new);
        *known = Some(counted.clone());
        Ok(counted)
    }
}

impl Segment {
    /// Shows the values of a column of integers or times, of which no row has several, batch by batch until `each` returns
    /// false; tells whether it never did.
    pub(super) fn all_integers(
        &self,
        column: PathId,
        mut each: impl FnMut(&Int64Array) -> bool,
    ) -> Result<bool> {
        let mut all = Ok(true);
        self.scan_blocking(&[column], None, |batch| {
            all = batch.columns.iter().try_fold(true, |all, values| {
                Ok(all && each(cast(values, &DataType::Int64)?.as_primitive::<Int64Type>()))
            });
            matches!(all, Ok(true))
        })?;
        all
    }
}
