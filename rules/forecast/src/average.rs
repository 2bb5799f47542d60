//! Moving averages: of equal weights, of geometric ones, and those with a trend.

use std::collections::VecDeque;

use crate::sum::Sum;

/// Rolls the mean of a window forward: each mean joins the window, and the oldest sample leaves it.
pub(crate) fn rolled_mean(window: &[f64], predictions: usize) -> Vec<f64> {
    let mut rolling: VecDeque<f64> = window.iter().copied().collect();
    let mut sum = Sum::default();
    window.iter().for_each(|sample| sum.add(*sample));
    let mut forecast = Vec::with_capacity(predictions);
    for _ in 0..predictions {
        let Some(oldest) = rolling.pop_front() else { break };
        let mean = sum.value() / window.len() as f64;
        sum.add(mean);
        sum.add(-oldest);
        rolling.push_back(mean);
        forecast.push(mean);
    }
    forecast
}

/// The weight of the newest sample among `count`.
fn weight(count: usize) -> f64 {
    2.0 / (count as f64 + 1.0)
}

/// Returns the geometric moving average of samples (Roberts 1959): it starts at the first one.
pub(crate) fn geometric(samples: &[f64]) -> f64 {
    let weight = weight(samples.len());
    let mut samples = samples.iter().copied();
    let first = samples.next().unwrap_or_default();
    samples.fold(first, |level, sample| weight * sample + (1.0 - weight) * level)
}

/// A level with a trend (Holt 1957).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Holt {
    pub(crate) level: f64,
    pub(crate) trend: f64,
}

impl Holt {
    /// Smooths samples, at least two: the first one is the level, the step to the second the trend, and the second is the first that
    /// is smoothed.
    pub(crate) fn fit(samples: &[f64]) -> Self {
        let weight = weight(samples.len());
        let (first, second) = (samples[0], samples[1]);
        let mut holt = Self { level: first, trend: second - first };
        for sample in &samples[1..] {
            let expected = holt.level + holt.trend;
            let level = weight * sample + (1.0 - weight) * expected;
            holt.trend = weight * (level - holt.level) + (1.0 - weight) * holt.trend;
            holt.level = level;
        }
        holt
    }

    /// Returns the level so many buckets ahead.
    pub(crate) fn ahead(&self, buckets: usize) -> f64 {
        self.level + self.trend * buckets as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_rolls_over_its_own_forecasts() {
        let forecast = rolled_mean(&[1.0, 2.0, 6.0], 3);
        let expected = [3.0, 11.0 / 3.0, (6.0 + 3.0 + 11.0 / 3.0) / 3.0];
        for (one, other) in forecast.iter().zip(expected) {
            assert!((one - other).abs() < 1e-12, "{forecast:?}");
        }
        assert_eq!(rolled_mean(&[5.0], 2), [5.0, 5.0]);
    }

    #[test]
    fn geometric_averages_start_at_the_first_sample() {
        assert_eq!(geometric(&[4.0]), 4.0);
        // Weight 2/4.
        assert_eq!(geometric(&[4.0, 8.0, 0.0]), 3.0);
        let holt = Holt::fit(&[1.0, 2.0, 3.0, 4.0]);
        assert!((holt.ahead(2) - 6.0).abs() < 1e-12, "a line goes on: {holt:?}");
    }
}
