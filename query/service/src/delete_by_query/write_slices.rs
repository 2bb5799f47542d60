//! Sizes of the slices in which a batch of deletions is written.
//!
//! The store executes a slice as a whole, so the time of a slice bounds the time from a cancellation to the end of the operation. A part of
//! that time is the same for all sizes: the wait for the log. So a slice is judged by its time beyond that of the quickest one. Slices
//! grow while that is short, and shrink where deletions are slow, as with rules for documents.

use std::time::Duration;

/// Deletions of the first slice, and of the smallest.
const LEAST: usize = 250;
/// Deletions of the largest slice.
const MOST: usize = 10_000;
/// Time of a slice beyond that of the quickest one, about.
const LONGEST: Duration = Duration::from_millis(25);
/// Short slices after which a size that took too long is tried again.
const CALM: u32 = 64;

/// Size of the next slice.
#[derive(Debug)]
pub(super) struct WriteSlices {
    size: usize,
    /// Size beyond which slices took too long.
    limit: usize,
    /// Short slices since.
    calm: u32,
    quickest: Duration,
}

impl Default for WriteSlices {
    fn default() -> Self {
        Self { size: LEAST, limit: MOST, calm: 0, quickest: Duration::MAX }
    }
}

impl WriteSlices {
    /// Returns how many deletions the next slice has.
    pub(super) fn operations(&self) -> usize {
        self.size
    }

    /// Takes note of how long a slice took.
    pub(super) fn took(&mut self, operations: usize, time: Duration) {
        self.quickest = self.quickest.min(time);
        let beyond = time - self.quickest;
        if beyond > LONGEST {
            self.size = (self.size / 2).max(LEAST);
            (self.limit, self.calm) = (self.size, 0);
        } else if operations >= self.size && beyond * 2 < LONGEST {
            self.calm += 1;
            if self.calm >= CALM {
                (self.limit, self.calm) = ((self.limit * 2).min(MOST), 0);
            }
            self.size = (self.size * 2).min(self.limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sizes of the slices of a batch whose deletions take so many microseconds each, beside so many milliseconds a slice.
    fn slices_of(batch: usize, each_us: u32, fixed_ms: u32) -> Vec<usize> {
        let (mut slices, mut left, mut sizes) = (WriteSlices::default(), batch, Vec::new());
        while left > 0 {
            let size = slices.operations().min(left);
            slices.took(size, MS * fixed_ms + Duration::from_micros(1) * each_us * size as u32);
            sizes.push(size);
            left -= size;
        }
        sizes
    }

    #[test]
    fn quick_deletions_are_written_in_few_slices_and_slow_ones_in_small_ones() {
        // However long the wait for the log is.
        for fixed_ms in [2, 15, 30] {
            assert_eq!(slices_of(1_000, 5, fixed_ms), [250, 500, 250]);
            assert_eq!(slices_of(10_000, 5, fixed_ms), [250, 500, 1_000, 2_000, 4_000, 2_250]);
            assert_eq!(slices_of(2_000, 200, fixed_ms), [250, 500, 250, 250, 250, 250, 250]);
        }
    }

    #[test]
    fn a_size_that_took_too_long_is_tried_again_and_small_batches_tell_nothing() {
        let mut slices = WriteSlices::default();
        for _ in 0..3 {
            slices.took(slices.operations(), 2 * MS);
        }
        assert_eq!(slices.operations(), 2_000);
        slices.took(2_000, 60 * MS);
        slices.took(10, MS);
        assert_eq!(slices.operations(), 1_000);
        for _ in 0..CALM {
            assert_eq!(slices.operations(), 1_000);
            slices.took(1_000, 2 * MS);
        }
        assert_eq!(slices.operations(), 2_000);
    }
}
