//! Sizes of the slices in which a batch of deletions is written.
//!
//! The store executes a slice as a whole, so the time of a slice bounds the time from a cancellation to the end of the operation. Slices
//! grow while they are quick, since each waits for the log. They shrink where deletions are slow, as with rules for documents.

use std::time::Duration;

/// Deletions of the first slice, and of the smallest: in smaller ones the wait for the log is most of the time.
const LEAST: usize = 250;
/// Deletions of the largest slice.
const MOST: usize = 10_000;
/// Time that a slice is to take at most, about.
const LONGEST: Duration = Duration::from_millis(25);
/// Time below which a slice is quick.
const QUICK: Duration = Duration::from_millis(10);

/// Size of the next slice.
#[derive(Debug)]
pub(super) struct WriteSlices(usize);

impl Default for WriteSlices {
    fn default() -> Self {
        Self(LEAST)
    }
}

impl WriteSlices {
    /// Returns how many deletions the next slice has.
    pub(super) fn operations(&self) -> usize {
        self.0
    }

    /// Takes note of how long a slice took.
    pub(super) fn took(&mut self, operations: usize, time: Duration) {
        let is_full = operations >= self.0;
        if time > LONGEST {
            self.0 = (self.0 / 2).max(LEAST);
        } else if time < QUICK && is_full {
            self.0 = (self.0 * 2).min(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sizes of the slices of a batch whose deletions take so many microseconds each, beside two milliseconds a slice.
    fn slices_of(batch: usize, each_us: u32) -> Vec<usize> {
        let (mut slices, mut left, mut sizes) = (WriteSlices::default(), batch, Vec::new());
        while left > 0 {
            let size = slices.operations().min(left);
            slices.took(size, 2 * MS + Duration::from_micros(1) * each_us * size as u32);
            sizes.push(size);
            left -= size;
        }
        sizes
    }

    #[test]
    fn quick_deletions_are_written_in_few_slices_and_slow_ones_in_small_ones() {
        assert_eq!(slices_of(1_000, 5), [250, 500, 250]);
        assert_eq!(slices_of(10_000, 5), [250, 500, 1_000, 2_000, 2_000, 2_000, 2_000, 250]);
        assert_eq!(slices_of(1_000, 200), [250; 4]);
    }

    #[test]
    fn slices_shrink_again_and_small_batches_tell_nothing() {
        let mut slices = WriteSlices(4_000);
        slices.took(4_000, 60 * MS);
        assert_eq!(slices.operations(), 2_000);
        slices.took(10, MS);
        slices.took(2_000, 15 * MS);
        assert_eq!(slices.operations(), 2_000);
    }
}
