//! A t-digest: runs of neighbouring values with their weights, small at the ends of the distribution.
//!
//! Values are buffered and sorted in bulk. Up to [`EXACT_RUNS`] distinct values are kept as they are, however often each
//! occurs, so that small sets and values of few kinds are exact; beyond, neighbours are joined while their weight stays below
//! `4 n q (1 - q) / compression`, the bound of the digest that OpenSearch uses, and so is the interpolation between
//! them (t-digest 3.2, `AVLTreeDigest`). A digest depends on the order of its values, so that who merges in a fixed order gets
//! the same answer each time.

/// Distinct values that are kept apart at least.
const EXACT_RUNS: usize = 1_024;
/// Values that wait to be sorted.
const BUFFER: usize = 4_096;
/// Greatest compression that has an effect: it bounds the number of runs.
const MAX_COMPRESSION: f64 = 10_000.0;

#[derive(Clone, Copy, Debug, PartialEq)]
struct CentroidRun {
    mean: f64,
    weight: u64,
    /// `true` if all its values are equal.
    pure: bool,
}

/// The digest of a set of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digest {
    runs: Vec<CentroidRun>,
    /// Values not yet in `runs`, as integers of the same order.
    buffer: Vec<i64>,
}

/// Maps a number to an integer of the same order.
fn key(number: f64) -> i64 {
    // Both zeros are one value.
    let bits = (number + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn number(key: i64) -> f64 {
    f64::from_bits((key ^ (((key >> 63) as u64) >> 1) as i64) as u64)
}

impl Digest {
    /// Adds a number.
    pub(crate) fn add(&mut self, number: f64, compression: f64) {
        self.buffer.push(key(number));
        if self.buffer.len() >= BUFFER {
            self.merge_buffered(compression);
        }
    }

    /// Adds numbers.
    pub(crate) fn add_all(&mut self, numbers: &[f64], compression: f64) {
        let mut rest = numbers;
        while !rest.is_empty() {
            let room = BUFFER.saturating_sub(self.buffer.len()).max(1).min(rest.len());
            let (now, later) = rest.split_at(room);
            self.buffer.extend(now.iter().map(|number| key(*number)));
            rest = later;
            if self.buffer.len() >= BUFFER {
                self.merge_buffered(compression);
            }
        }
    }

    /// Adds another digest.
    pub(crate) fn merge(&mut self, mut other: Self, compression: f64) {
        if self.runs.is_empty() && self.buffer.is_empty() {
            *self = other;
            return;
        }
        if !other.runs.is_empty() {
            other.merge_buffered(compression);
            self.merge_buffered(compression);
            self.join(&other.runs, compression);
        } else {
            for key in other.buffer {
                self.buffer.push(key);
                if self.buffer.len() >= BUFFER {
                    self.merge_buffered(compression);
                }
            }
        }
    }

    /// Moves what is buffered to the runs.
    pub(crate) fn merge_buffered(&mut self, compression: f64) {
        if self.buffer.is_empty() {
            return;
        }
        self.buffer.sort_unstable();
        let mut fresh: Vec<CentroidRun> = Vec::new();
        for key in self.buffer.drain(..) {
            let mean = number(key);
            match fresh.last_mut() {
                Some(run) if run.mean == mean => run.weight += 1,
                _ => fresh.push(CentroidRun { mean, weight: 1, pure: true }),
            }
        }
        self.join(&fresh, compression);
    }

    /// Merges sorted runs into its own, and joins neighbours where there are too many.
    fn join(&mut self, others: &[CentroidRun], compression: f64) {
        let mut merged: Vec<CentroidRun> = Vec::with_capacity(self.runs.len() + others.len());
        let (mut own, mut others) = (self.runs.iter().peekable(), others.iter().peekable());
        loop {
            let next = match (own.peek(), others.peek()) {
                (Some(a), Some(b)) if b.mean < a.mean => others.next(),
                (Some(_), _) => own.next(),
                (None, _) => others.next(),
            };
            let Some(next) = next else { break };
            match merged.last_mut() {
                Some(last) if last.mean == next.mean => {
                    last.weight += next.weight;
                    last.pure &= next.pure;
                }
                _ => merged.push(*next),
            }
        }
        self.runs = if merged.len() > EXACT_RUNS { compressed(&merged, compression) } else { merged };
    }

    /// Returns the number of values in the runs.
    fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.weight).sum()
    }

    /// Iterates over centroids as OpenSearch would have them of equal values: apart.
    fn centroids(&self) -> impl Iterator<Item = (f64, f64)> {
        self.runs.iter().flat_map(|run| {
            let parts = match (run.pure, run.weight) {
                (true, 2) => [1, 0, 1],
                (true, weight @ 3..) => [1, weight - 2, 1],
                (_, weight) => [weight, 0, 0],
            };
            parts.into_iter().filter(|weight| *weight > 0).map(|weight| (run.mean, weight as f64))
        })
    }

    /// Returns the value below which the fraction `q` of the values is; NaN without values. What is buffered must have been merged.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        quantile(self.centroids(), self.count() as f64, q)
    }

    /// Returns the fraction of the values below `x`; NaN without values. What is buffered must have been merged.
    pub(crate) fn cdf(&self, x: f64) -> f64 {
        let count = self.count() as f64;
        let mut centroids = self.centroids();
        let Some(mut a) = centroids.next() else { return f64::NAN };
        let Some(mut b) = centroids.next() else { return if x < a.0 { 0.0 } else { 1.0 } };
        let mut right = (b.0 - a.0) / 2.0;
        let mut left = right;
        let mut before = 0.0;
        for next in centroids {
            if x < a.0 + right {
                return ((before + a.1 * interpolate(x, a.0 - left, a.0 + right)) / count).max(0.0);
            }
            before += a.1;
            (a, b) = (b, next);
            left = right;
            right = (b.0 - a.0) / 2.0;
        }
        if x < a.0 + right { (before + a.1 * interpolate(x, a.0 - left, a.0 + right)) / count } else { 1.0 }
    }

    /// Returns the median of the distances to the median; NaN without values.
    pub(crate) fn deviation(&self) -> f64 {
        let median = self.quantile(0.5);
        let mut distances: Vec<(f64, f64)> =
            self.centroids().map(|(mean, weight)| ((mean - median).abs(), weight)).collect();
        distances.sort_by(|a, b| a.0.total_cmp(&b.0));
        quantile(distances.into_iter(), self.count() as f64, 0.5)
    }

    /// Returns about how many bytes it takes.
    pub(crate) fn memory(&self) -> usize {
        self.runs.capacity() * size_of::<CentroidRun>() + self.buffer.capacity() * size_of::<i64>()
    }
}

fn interpolate(x: f64, low: f64, high: f64) -> f64 {
    (x - low) / (high - low)
}

/// Joins neighbours as the bound allows.
fn compressed(runs: &[CentroidRun], compression: f64) -> Vec<CentroidRun> {
    let compression = compression.clamp(1.0, MAX_COMPRESSION);
    let count = runs.iter().map(|run| run.weight).sum::<u64>() as f64;
    let mut joined: Vec<CentroidRun> = Vec::with_capacity(EXACT_RUNS);
    let mut before = 0u64;
    for run in runs {
        if let Some(last) = joined.last_mut() {
            let weight = last.weight + run.weight;
            let q = (before as f64 + weight as f64 / 2.0) / count;
            if weight as f64 <= 4.0 * count * q * (1.0 - q) / compression {
                last.mean += (run.mean - last.mean) * (run.weight as f64 / weight as f64);
                last.weight = weight;
                last.pure = false;
                continue;
            }
            before += last.weight;
        }
        joined.push(*run);
    }
    joined
}

/// Finds a quantile among sorted centroids.
fn quantile(mut centroids: impl Iterator<Item = (f64, f64)>, count: f64, q: f64) -> f64 {
    let index = q * count;
    let Some(mut current) = centroids.next() else { return f64::NAN };
    let mut so_far = current.1 / 2.0;
    if index < so_far {
        return current.0;
    }
    for next in centroids {
        let step = (current.1 + next.1) / 2.0;
        if so_far + step > index {
            let (behind, ahead) = (index - so_far, so_far + step - index);
            let mean = (current.0 * ahead + next.0 * behind) / (ahead + behind);
            return mean.min(next.0).max(current.0);
        }
        so_far += step;
        current = next;
    }
    current.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[f64]) -> Digest {
        let mut digest = Digest::default();
        digest.add_all(numbers, 100.0);
        digest.merge_buffered(100.0);
        digest
    }

    #[test]
    fn small_sets_interpolate_as_opensearch_does() {
        let digest = of(&[151.0, 1.0, 101.0, 51.0]);
        let percents: Vec<f64> =
            [1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0].iter().map(|p| digest.quantile(p / 100.0)).collect();
        assert_eq!(percents, [1.0, 1.0, 26.0, 76.0, 126.0, 151.0, 151.0]);
        assert!(of(&[]).quantile(0.5).is_nan() && of(&[]).cdf(1.0).is_nan());
        assert_eq!((of(&[3.0]).quantile(0.2), of(&[3.0]).cdf(3.0)), (3.0, 1.0));
    }

    #[test]
    fn great_sets_are_close_and_extremes_exact() {
        let mut state = 7u64;
        let mut numbers = Vec::new();
        for _ in 0..300_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            numbers.push(((state >> 11) as f64 / (1u64 << 53) as f64).powi(3) * 1e6 - 10.0);
        }
        let digest = of(&numbers);
        let mut parts = Digest::default();
        for part in numbers.chunks(70_000) {
            parts.merge(of(part), 100.0);
        }
        parts.merge_buffered(100.0);
        numbers.sort_by(f64::total_cmp);
        for digest in [&digest, &parts] {
            assert!(digest.runs.len() <= 1_100, "{}", digest.runs.len());
            assert_eq!(digest.count(), 300_000);
            assert_eq!((digest.quantile(0.0), digest.quantile(1.0)), (numbers[0], numbers[299_999]));
            for q in [0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999] {
                let rank = numbers.partition_point(|n| *n < digest.quantile(q)) as f64 / 300_000.0;
                let allowed = 0.005 * (q * (1.0 - q) * 4.0_f64).max(0.05);
                assert!((rank - q).abs() < allowed, "{q}: {rank}");
                assert!((digest.cdf(digest.quantile(q)) - q).abs() < 0.002, "{q}");
            }
        }
    }

    #[test]
    fn few_distinct_values_are_exact_however_many() {
        let numbers: Vec<f64> = (0..100_000).map(|n| f64::from(n % 10)).collect();
        let digest = of(&numbers);
        assert_eq!((digest.quantile(0.55), digest.quantile(0.05), digest.deviation()), (5.0, 0.0, 2.5));
    }
}
