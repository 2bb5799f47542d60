//! Cache of counts over columns of stored segments: rows by minute, rows by value. Counted once and kept, within a bound over all
//! segments.

use std::sync::Arc;

use arrow::array::{AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use millrace_mapping::PathId;
use millrace_runtime::Result;
use millrace_runtime::weighted_lru::{CachedValue, KeptCache, MAX_BYTES};
use uuid::Uuid;

use super::Segment;
use super::minutes::Minutes;
use super::tally::Tally;

/// Bytes of the counts of one column of a segment, at most: whatever has more is not counted.
pub(super) const MAX_COUNTS_BYTES: usize = MAX_BYTES / 8;

/// Subject of a count over a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CountSubject {
    /// Rows by minute.
    Minutes,
    /// Rows by value.
    Values,
}

/// Counts of a column.
#[derive(Clone, Debug)]
pub(crate) enum Counts {
    /// Rows by minute.
    Minutes(Arc<Minutes>),
    /// Rows by value.
    Values(Arc<Tally>),
    /// There are too many to be counted.
    TooMany,
}

impl CachedValue for Counts {
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Minutes(minutes) => minutes.heap_bytes(),
            Self::Values(tally) => tally.heap_bytes(),
            Self::TooMany => 0,
        }
    }
}

/// A column of a segment, and what is counted of it.
type CountKey = (Uuid, PathId, CountSubject);

/// Counts of columns.
pub(crate) type CountCache = KeptCache<CountKey, Counts>;

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
