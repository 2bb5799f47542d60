//! Counts of the rows of a segment by the minute of a time.
//!
//! Histograms over all rows ask for nothing else, whatever their interval and zone: so the minutes are counted once a
//! segment and kept ([`super::count_cache`]), as long as they are few beside its rows.

use std::sync::Arc;

use arrow::array::Int64Array;
use millrace_mapping::PathId;
use millrace_runtime::Result;

use super::count_cache::{CountSubject, Counts, MAX_COUNTS_BYTES};
use super::range::NumberBounds;
use super::{Kind, Segment};

/// Milliseconds of a minute.
const MINUTE: i64 = 60_000;
/// Rows a minute on average, below which minutes are not counted: four bytes each are then a quarter of a byte a row.
const LEAST_ROWS: u64 = 16;

/// Counts of rows by the minute of a time.
#[derive(Debug)]
pub struct Minutes {
    first: i64,
    counts: Vec<u32>,
}

impl Minutes {
    /// Counts times; returns whether all are within the minutes.
    fn add(&mut self, times: &Int64Array) -> bool {
        times.iter().flatten().all(|time| {
            let at = usize::try_from(time.div_euclid(MINUTE) - self.first).ok();
            let counter = at.and_then(|at| self.counts.get_mut(at));
            counter.map(|counter| *counter += 1).is_some()
        })
    }

    /// Counts its bytes of memory.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.counts)
    }

    /// Iterates over the minutes that have rows: first millisecond, last millisecond, rows.
    pub fn iter(&self) -> impl Iterator<Item = (i64, i64, u32)> {
        let span = |(at, count): (usize, &u32)| {
            let start = (self.first + at as i64) * MINUTE;
            (start, start + MINUTE - 1, *count)
        };
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(span)
    }
}

impl Segment {
    /// Counts the rows by minute of a column of times in milliseconds, deleted rows included; `None` where rows may have
    /// several times, and where there are too many minutes. Reads the column once.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn minutes_blocking(&self, column: PathId) -> Result<Option<Arc<Minutes>>> {
        let Kind::Stored(stored) = &*self.kind else { return Ok(None) };
        let key = (stored.record.id, column, CountSubject::Minutes);
        let count =
            || Ok(self.count_minutes(column)?.map_or(Counts::TooMany, |m| Counts::Minutes(Arc::new(m))));
        match stored.counts().of(key, count)? {
            Counts::Minutes(minutes) => Ok(Some(minutes)),
            Counts::Values(_) | Counts::TooMany => Ok(None),
        }
    }

    fn count_minutes(&self, column: PathId) -> Result<Option<Minutes>> {
        let NumberBounds::I64(least, most) = self.column_bounds(column).values else { return Ok(None) };
        let (first, last) = (least.div_euclid(MINUTE), most.div_euclid(MINUTE));
        let most_minutes =
            (u64::from(self.rows()) / LEAST_ROWS).min((MAX_COUNTS_BYTES / size_of::<u32>()) as u64);
        if self.is_list(column) || last.abs_diff(first) >= most_minutes {
            return Ok(None);
        }
        let mut minutes = Minutes { first, counts: vec![0; last.abs_diff(first) as usize + 1] };
        let within = self.all_integers(column, |times| minutes.add(times))?;
        // A time beyond the bounds contradicts them: nothing is told then.
        Ok(within.then_some(minutes))
    }
}
