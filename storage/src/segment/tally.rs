//! How many rows of a segment have each integer of a column.
//!
//! Where every page has values on both sides of a bound, counting the rows of a range is to compare them all. So the
//! rows of each value are counted once a segment, and kept as sums, as long as there are few values beside rows.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Segment;
use crate::Result;
use crate::mapping::PathId;

/// Rows a value on average, below which values are not counted: twelve bytes each are then less than a byte a row.
const LEAST_ROWS: usize = 16;

/// How many rows have each value.
#[derive(Debug)]
pub(super) struct Tally {
    /// The values, ascending.
    values: Vec<i64>,
    /// How many rows have these values and those before them.
    sums: Vec<u32>,
}

impl Tally {
    /// Counts the rows with values in a range, both ends included.
    pub(super) fn count(&self, from: i64, to: i64) -> u64 {
        let below =
            |end: usize| end.checked_sub(1).and_then(|last| self.sums.get(last)).copied().unwrap_or(0);
        let start = below(self.values.partition_point(|value| *value < from));
        let end = below(self.values.partition_point(|value| *value <= to));
        u64::from(end.saturating_sub(start))
    }

    fn new(counts: HashMap<i64, u32, RandomState>) -> Self {
        let mut counts: Vec<(i64, u32)> = counts.into_iter().collect();
        counts.sort_unstable();
        let sum = |sum: &mut u32, count: &(i64, u32)| {
            *sum += count.1;
            Some(*sum)
        };
        Self {
            sums: counts.iter().scan(0, sum).collect(),
            values: counts.iter().map(|(value, _)| *value).collect(),
        }
    }
}

impl Segment {
    /// Counts the rows by value of a column of integers of which no row has several, deleted rows included; `None` where
    /// there are too many. Reads the column.
    pub(super) fn count_values(&self, column: PathId) -> Result<Option<Tally>> {
        let most = self.rows() as usize / LEAST_ROWS;
        let mut counts: HashMap<i64, u32, RandomState> = HashMap::default();
        let few = self.all_integers(column, |values| {
            values.iter().flatten().for_each(|value| *counts.entry(value).or_default() += 1);
            counts.len() <= most
        })?;
        Ok(few.then(|| Tally::new(counts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_from_sums() {
        let tally = Tally::new([(7, 3), (-2, 1), (9, 5)].into_iter().collect());
        for (from, to, count) in
            [(i64::MIN, i64::MAX, 9), (-2, 7, 4), (-1, 8, 3), (8, 8, 0), (10, i64::MAX, 0), (9, 7, 0)]
        {
            assert_eq!(tally.count(from, to), count, "{from} to {to}");
        }
    }
}
