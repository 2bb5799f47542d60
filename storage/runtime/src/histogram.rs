//! Durations in a histogram, recorded and read without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in microseconds; one more bucket has everything above.
const BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 60_000_000,
];

/// Counts of durations in buckets, and their sum. Buckets reach from 100 µs to a minute.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    buckets: [AtomicU64; BOUNDS_MICROS.len()],
    above: AtomicU64,
    nanos: AtomicU64,
}

/// A histogram at one moment. Recordings meanwhile may be in the counts and not yet in the sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramSnapshot {
    /// Upper bounds in seconds, and how many durations are above the bound before and not above this one.
    pub buckets: Vec<(f64, u64)>,
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations.
    pub sum: Duration,
}

impl HistogramSnapshot {
    /// Adds the durations of another histogram. All histograms have the same bounds.
    pub fn merge(&mut self, added: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&added.buckets);
        } else {
            for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&added.buckets) {
                *count += more;
            }
        }
        self.count += added.count;
        self.sum += added.sum;
    }

    /// Returns whether a histogram that was read before may have become this one: none of its figures is greater.
    pub fn continues(&self, before: &Self) -> bool {
        let mut buckets = self.buckets.iter().zip(&before.buckets);
        self.count >= before.count
            && self.sum >= before.sum
            && buckets.all(|((_, now), (_, then))| now >= then)
    }
}

impl DurationHistogram {
    /// Adds a duration.
    pub fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.buckets.get(at).unwrap_or(&self.above).fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Reads the counts and the sum.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bounds = BOUNDS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        let counts = self.buckets.iter().chain([&self.above]).map(load);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        HistogramSnapshot { buckets, count, sum: Duration::from_nanos(load(&self.nanos)) }
    }

    /// Returns the sum of the durations in milliseconds, and their number.
    pub fn totals(&self) -> (u64, u64) {
        let HistogramSnapshot { count, sum, .. } = self.snapshot();
        (u64::try_from(sum.as_millis()).unwrap_or(u64::MAX), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_histogram_has_the_durations_of_both() {
        let histograms: [DurationHistogram; 2] = Default::default();
        histograms[0].record(Duration::from_millis(3));
        histograms[1].record(Duration::from_millis(4));
        histograms[1].record(Duration::from_secs(90));
        let both = DurationHistogram::default();
        for millis in [3, 4, 90_000] {
            both.record(Duration::from_millis(millis));
        }
        let mut merged = HistogramSnapshot::default();
        histograms.iter().for_each(|histogram| merged.merge(&histogram.snapshot()));
        assert_eq!(merged, both.snapshot());
        assert!(merged.continues(&histograms[1].snapshot()) && !histograms[0].snapshot().continues(&merged));
        let slower = DurationHistogram::default();
        [80, 90].map(Duration::from_secs).into_iter().for_each(|duration| slower.record(duration));
        assert!(!slower.snapshot().continues(&histograms[0].snapshot()), "a bucket has fewer");
    }

    #[test]
    fn durations_are_counted_once_below_the_bound_that_they_reach() {
        let histogram = DurationHistogram::default();
        for micros in [0, 100, 101, 60_000_000, 60_000_001, u64::MAX / 1_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let HistogramSnapshot { buckets, count, .. } = histogram.snapshot();
        let filled: Vec<(f64, u64)> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.0001, 2), (0.00025, 1), (60.0, 1), (f64::INFINITY, 2)]);
        assert_eq!(count, 6);
    }

    #[test]
    fn sums_are_exact() {
        let histogram = DurationHistogram::default();
        (0..1_000).for_each(|_| histogram.record(Duration::from_nanos(1_000_001)));
        assert_eq!(histogram.snapshot().sum, Duration::from_nanos(1_000_001_000));
        assert_eq!(histogram.totals(), (1_000, 1_000));
    }
}
