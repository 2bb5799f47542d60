//! Counts of the rows of a segment by the integer of a column.
//!
//! Where every page has values on both sides of a bound, counting the rows of a range is to compare them all. So the
//! rows of each value are counted once a segment, and kept as sums ([`super::count_cache`]), as long as there are few values
//! beside rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::Int64Array;
use foldhash::fast::RandomState;
use millrace_mapping::PathId;
use millrace_runtime::Result;

use super::count_cache::{self, CountSubject, MAX_COUNTS_BYTES};
use super::range::NumberBounds;
use super::{Kind, Segment};

/// Rows a value on average, below which values are not counted: twelve bytes each are then less than a byte a row.
const LEAST_ROWS: usize = 16;

/// Bytes of a value and its sum.
const VALUE_BYTES: usize = size_of::<i64>() + size_of::<u32>();

/// Counts of rows by value.
#[derive(Debug)]
pub struct Tally {
    /// The values, ascending.
    values: Vec<i64>,
    /// Numbers of rows with these values and those before them.
    sums: Vec<u32>,
}

impl Tally {
    /// Counts the rows with the first values, as long as `first` tells so.
    pub fn count_first(&self, first: impl Fn(i64) -> bool) -> u64 {
        let values = self.values.partition_point(|value| first(*value));
        values.checked_sub(1).and_then(|last| self.sums.get(last)).copied().unwrap_or(0).into()
    }

    /// Counts the rows with values in a range, both ends included.
    pub(super) fn count(&self, from: i64, to: i64) -> u64 {
        self.count_first(|value| value <= to).saturating_sub(self.count_first(|value| value < from))
    }

    /// Counts its bytes of memory.
    pub(super) fn heap_bytes(&self) -> usize {
        self.values.len() * VALUE_BYTES
    }

    /// Iterates over the values in ascending order, with the rows of each.
    pub fn iter(&self) -> impl Iterator<Item = (i64, u32)> {
        let mut before = 0;
        self.values
            .iter()
            .zip(&self.sums)
            .map(move |(value, sum)| (*value, sum - std::mem::replace(&mut before, *sum)))
    }

    /// Takes over values in ascending order, with the rows of each.
    pub(super) fn new(counts: impl Iterator<Item = (i64, u32)>) -> Self {
        let mut sum = 0;
        let (mut values, mut sums): (Vec<i64>, Vec<u32>) = counts
            .map(|(value, count)| {
                sum += count;
                (value, sum)
            })
            .unzip();
        values.shrink_to_fit();
        sums.shrink_to_fit();
        Self { values, sums }
    }
}

/// Rows by value, while they are counted.
enum Counts {
    /// By the distance from the least value.
    Near(i64, Vec<u32>),
    Far(HashMap<i64, u32, RandomState>),
}

impl Counts {
    /// Counts values; returns whether all are within the bounds, and no more than `most`.
    fn add(&mut self, values: &Int64Array, most: usize) -> bool {
        match self {
            Self::Near(least, counts) => values.iter().flatten().all(|value| {
                let at = value.checked_sub(*least).and_then(|at| usize::try_from(at).ok());
                let counter = at.and_then(|at| counts.get_mut(at));
                counter.map(|counter| *counter += 1).is_some()
            }),
            Self::Far(counts) => {
                values.iter().flatten().for_each(|value| *counts.entry(value).or_default() += 1);
                counts.len() <= most
            }
        }
    }

    fn finish(self) -> Tally {
        match self {
            Self::Near(least, counts) => {
                let counts = (least..).zip(counts);
                Tally::new(counts.filter(|(_, count)| *count > 0))
            }
            Self::Far(counts) => {
                let mut counts: Vec<(i64, u32)> = counts.into_iter().collect();
                counts.sort_unstable();
                Tally::new(counts.into_iter())
            }
        }
    }
}

impl Segment {
    /// Counts the rows by value of a column of integers, deleted rows included; `None` where rows may have several values,
    /// and where there are too many of them. Reads the column once.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn tally_blocking(&self, column: PathId) -> Result<Option<Arc<Tally>>> {
        let Kind::Stored(stored) = &*self.kind else { return Ok(None) };
        let key = (stored.record.id, column, CountSubject::Values);
        let count = || {
            Ok(self
                .count_values(column)?
                .map_or(count_cache::Counts::TooMany, |t| count_cache::Counts::Values(Arc::new(t))))
        };
        match stored.counts().of(key, count)? {
            count_cache::Counts::Values(tally) => Ok(Some(tally)),
            count_cache::Counts::Minutes(_) | count_cache::Counts::TooMany => Ok(None),
        }
    }

    fn count_values(&self, column: PathId) -> Result<Option<Tally>> {
        let NumberBounds::I64(least, last) = self.column_bounds(column).values else { return Ok(None) };
        if self.is_list(column) {
            return Ok(None);
        }
        let most = (self.rows() as usize / LEAST_ROWS).min(MAX_COUNTS_BYTES / VALUE_BYTES);
        let mut counts = match usize::try_from(last.abs_diff(least)) {
            Ok(distance) if distance < most => Counts::Near(least, vec![0; distance + 1]),
            _ => Counts::Far(HashMap::default()),
        };
        let few = self.all_integers(column, |values| counts.add(values, most))?;
        Ok(few.then(|| counts.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_from_sums() {
        let tally = Tally::new([(-2, 1), (7, 3), (9, 5)].into_iter());
        for (from, to, count) in
            [(i64::MIN, i64::MAX, 9), (-2, 7, 4), (-1, 8, 3), (8, 8, 0), (10, i64::MAX, 0), (9, 7, 0)]
        {
            assert_eq!(tally.count(from, to), count, "{from} to {to}");
        }
        assert_eq!(tally.iter().collect::<Vec<_>>(), [(-2, 1), (7, 3), (9, 5)]);
    }

    #[test]
    fn values_are_counted_near_each_other_and_far() {
        let values = Int64Array::from(vec![Some(5), None, Some(-3), Some(5), Some(0)]);
        for mut counts in [Counts::Near(-3, vec![0; 9]), Counts::Far(HashMap::default())] {
            assert!(counts.add(&values, 3));
            assert_eq!(counts.finish().iter().collect::<Vec<_>>(), [(-3, 1), (0, 1), (5, 2)]);
        }
        assert!(!Counts::Near(0, vec![0; 9]).add(&values, 3));
        assert!(!Counts::Far(HashMap::default()).add(&values, 2));
    }
}
