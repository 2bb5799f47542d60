//! Latencies of many operations in little memory: a histogram whose buckets grow with the value.
//!
//! 64 buckets for each doubling keep every reported quantile within 1.6 % of the truth.

use std::time::Duration;

use serde::Serialize;

const STEPS_BITS: u32 = 6;
const STEPS: u64 = 1 << STEPS_BITS;

/// Counts of latencies by size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_us: u64,
    max_us: u64,
}

/// Latencies of a report, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Summary {
    /// Number of operations.
    pub(crate) count: u64,
    /// Mean.
    pub(crate) mean_ms: f64,
    /// Median.
    pub(crate) p50_ms: f64,
    /// 90th percentile.
    pub(crate) p90_ms: f64,
    /// 99th percentile.
    pub(crate) p99_ms: f64,
    /// Greatest.
    pub(crate) max_ms: f64,
}

fn bucket(us: u64) -> usize {
    if us < STEPS {
        return us as usize;
    }
    let shift = us.ilog2() - STEPS_BITS;
    (u64::from(shift + 1) * STEPS + ((us >> shift) - STEPS)) as usize
}

/// Returns the middle of a bucket.
fn value(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket as f64;
    }
    let shift = bucket / STEPS - 1;
    let low = (STEPS + bucket % STEPS) << shift;
    low as f64 + ((1_u64 << shift) - 1) as f64 / 2.0
}

impl Histogram {
    /// Counts one latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).min(1 << 40);
        let bucket = bucket(us);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.sum_us += us;
        self.max_us = self.max_us.max(us);
    }

    /// Adds the counts of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum_us += other.sum_us;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// Returns the latency in milliseconds that the given share does not exceed; 0 without any.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return value(bucket).min(self.max_us as f64) / 1_000.0;
            }
        }
        0.0
    }

    /// Sums up.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            count: self.total,
            mean_ms: self.sum_us as f64 / self.total.max(1) as f64 / 1_000.0,
            p50_ms: self.quantile_ms(0.5),
            p90_ms: self.quantile_ms(0.9),
            p99_ms: self.quantile_ms(0.99),
            max_ms: self.max_us as f64 / 1_000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_near_the_truth() {
        let mut histogram = Histogram::default();
        for us in 1..=100_000_u64 {
            histogram.record(Duration::from_micros(us));
        }
        for (share, truth) in [(0.5, 50.0), (0.9, 90.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = histogram.quantile_ms(share);
            assert!((found - truth).abs() / truth < 0.016, "{share}: {found}");
        }
        assert_eq!(histogram.summary().count, 100_000);
        assert_eq!(Histogram::default().summary().p99_ms, 0.0);
    }

    #[test]
    fn merging_is_counting_together() {
        let (mut a, mut b, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for us in [1, 70, 5_000] {
            a.record(Duration::from_micros(us));
            both.record(Duration::from_micros(us));
        }
        b.record(Duration::from_secs(2));
        both.record(Duration::from_secs(2));
        a.merge(&b);
        assert_eq!(a.counts, both.counts);
        assert_eq!(a.summary().max_ms, 2_000.0);
    }

    #[test]
    fn buckets_are_in_order() {
        let mut last = 0;
        for us in 0..10_000 {
            let bucket = bucket(us);
            assert!(bucket == last || bucket == last + 1);
            last = bucket;
        }
    }
}
