//! STL (Cleveland, Cleveland, McRae, Terpenning 1990) and MSTL (Bandara, Hyndman, Bergmeir 2021): trend, seasons and remainder.
//!
//! The smoothers of trend and low pass are local lines (LOESS of degree 1), that of the season is a local mean (degree 0). The window of the k-th season, from the shortest, has 7 + 4·k cycles. The window of the
//! trend is the least odd number above 1.5·period / (1 − 1.5/seasonal window). The window of the low pass is the least odd number above
//! the period. A smoother with a long window computes every tenth place of it, and interpolates between. MSTL passes twice over several
//! seasons, from the shortest to the longest.

use std::ops::Range;

/// Passes over several seasons.
const PASSES: usize = 2;
/// Longest window of a smoother that computes every place.
const MAX_DENSE_WINDOW: usize = 25;

/// Degree of the local polynomial of a smoother.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoessDegree {
    Constant,
    Line,
}

/// Parts of a series, each as long as the series.
#[derive(Clone, Debug, PartialEq)]
pub struct Decomposition {
    /// Trend.
    pub trend: Vec<f64>,
    /// One component for each period, in their order.
    pub seasons: Vec<Vec<f64>>,
    /// Rest.
    pub remainder: Vec<f64>,
}

/// Decomposes samples by their periods, which are ascending, of two buckets at least, and at most half of the samples. A robust
/// decomposition gives less weight to outliers.
pub fn decompose(samples: &[f64], periods: &[usize], is_robust: bool) -> Decomposition {
    let count = samples.len();
    let mut seasons = vec![vec![0.0; count]; periods.len()];
    let mut trend = vec![0.0; count];
    let mut rest = samples.to_vec();
    let passes = if periods.len() == 1 { 1 } else { PASSES };
    for _ in 0..passes {
        for (number, period) in periods.iter().enumerate() {
            for (rest, season) in rest.iter_mut().zip(&seasons[number]) {
                *rest += season;
            }
            let stl = Stl::new(&rest, *period, 11 + 4 * number);
            let (season, own_trend) = stl.fit(is_robust);
            for (rest, season) in rest.iter_mut().zip(&season) {
                *rest -= season;
            }
            seasons[number] = season;
            trend = own_trend;
        }
    }
    let remainder = rest.iter().zip(&trend).map(|(rest, trend)| rest - trend).collect();
    Decomposition { trend, seasons, remainder }
}

/// One decomposition under way.
struct Stl<'a> {
    samples: &'a [f64],
    period: usize,
    seasonal_window: usize,
    trend_window: usize,
    low_pass_window: usize,
}

impl<'a> Stl<'a> {
    fn new(samples: &'a [f64], period: usize, seasonal_window: usize) -> Self {
        let trend = 1.5 * period as f64 / (1.0 - 1.5 / seasonal_window as f64);
        let trend_window = (trend.ceil() as usize).max(3) | 1;
        Self { samples, period, seasonal_window, trend_window, low_pass_window: (period + 1) | 1 }
    }

    /// Returns season and trend.
    fn fit(&self, is_robust: bool) -> (Vec<f64>, Vec<f64>) {
        let count = self.samples.len();
        let (inner, outer) = if is_robust { (2, 4) } else { (5, 0) };
        let (mut season, mut trend) = (vec![0.0; count], vec![0.0; count]);
        let mut weights: Option<Vec<f64>> = None;
        for pass in 0..=outer {
            for _ in 0..inner {
                self.step(&mut season, &mut trend, weights.as_deref());
            }
            if pass < outer {
                weights = Some(robustness_weights(self.samples, &season, &trend));
            }
        }
        (season, trend)
    }

    fn step(&self, season: &mut Vec<f64>, trend: &mut Vec<f64>, weights: Option<&[f64]>) {
        let detrended: Vec<f64> =
            self.samples.iter().zip(trend.iter()).map(|(one, trend)| one - trend).collect();
        let cycles = self.smooth_cycles(&detrended, weights);
        let averaged = moving_average(&moving_average(&moving_average(&cycles, self.period), self.period), 3);
        let low = smooth(&averaged, self.low_pass_window, LoessDegree::Line, None);
        *season = cycles[self.period..].iter().zip(&low).map(|(cycle, low)| cycle - low).collect();
        let seasonless: Vec<f64> =
            self.samples.iter().zip(season.iter()).map(|(one, season)| one - season).collect();
        *trend = smooth(&seasonless, self.trend_window, LoessDegree::Line, weights);
    }

    /// Smooths each place of the cycle over the cycles, with one cycle more at either end.
    fn smooth_cycles(&self, detrended: &[f64], weights: Option<&[f64]>) -> Vec<f64> {
        let mut cycles = vec![0.0; detrended.len() + 2 * self.period];
        for place in 0..self.period {
            let own: Vec<f64> = detrended.iter().skip(place).step_by(self.period).copied().collect();
            let own_weights: Option<Vec<f64>> =
                weights.map(|weights| weights.iter().skip(place).step_by(self.period).copied().collect());
            let own_weights = own_weights.as_deref();
            let smoothed = smooth(&own, self.seasonal_window, LoessDegree::Constant, own_weights);
            let count = own.len();
            let window = self.seasonal_window.min(count);
            let at_end = |place: f64, range: Range<usize>| {
                local_fit(&own, self.seasonal_window, LoessDegree::Constant, place, range, own_weights)
            };
            let (before, after) = (at_end(-1.0, 0..window), at_end(count as f64, count - window..count));
            cycles[place] = before.unwrap_or(smoothed[0]);
            for (cycle, value) in smoothed.iter().enumerate() {
                cycles[place + (cycle + 1) * self.period] = *value;
            }
            cycles[place + (count + 1) * self.period] = after.unwrap_or(smoothed[count - 1]);
        }
        cycles
    }
}

/// Returns the means of all windows of a length.
fn moving_average(samples: &[f64], length: usize) -> Vec<f64> {
    let mut total: f64 = samples[..length].iter().sum();
    let mut means = vec![total / length as f64];
    for at in length..samples.len() {
        total += samples[at] - samples[at - length];
        means.push(total / length as f64);
    }
    means
}

/// Smooths samples by local fits over a window.
fn smooth(samples: &[f64], window: usize, degree: LoessDegree, weights: Option<&[f64]>) -> Vec<f64> {
    let count = samples.len();
    if count < 2 {
        return samples.to_vec();
    }
    let jump = if window > MAX_DENSE_WINDOW { window.div_ceil(10).min(count - 1) } else { 1 };
    let at = |place: usize| {
        let width = window.min(count);
        let from = place.saturating_sub(width / 2).min(count - width);
        local_fit(samples, window, degree, place as f64, from..from + width, weights)
            .unwrap_or(samples[place])
    };
    let mut smoothed = vec![0.0; count];
    let mut last = 0;
    smoothed[0] = at(0);
    while last + 1 < count {
        let next = (last + jump).min(count - 1);
        smoothed[next] = at(next);
        let (from, to) = (smoothed[last], smoothed[next]);
        for (offset, value) in smoothed[last + 1..next].iter_mut().enumerate() {
            *value = from + (to - from) * (offset + 1) as f64 / (next - last) as f64;
        }
        last = next;
    }
    smoothed
}

/// Returns the height of a weighted mean or line at a place; `None` where all weights are 0.
fn local_fit(
    samples: &[f64],
    window: usize,
    degree: LoessDegree,
    place: f64,
    range: Range<usize>,
    weights: Option<&[f64]>,
) -> Option<f64> {
    let count = samples.len();
    let mut reach = (place - range.start as f64).max((range.end - 1) as f64 - place);
    if window > count {
        reach += ((window - count) / 2) as f64;
    }
    let weight = |at: usize| {
        let distance = (at as f64 - place).abs();
        let by_distance = if distance > 0.999 * reach {
            0.0
        } else if distance <= 0.001 * reach {
            1.0
        } else {
            let share = distance / reach;
            let left = 1.0 - share * share * share;
            left * left * left
        };
        by_distance * weights.map_or(1.0, |weights| weights[at])
    };
    let (mut total, mut first, mut second, mut height, mut product) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for at in range {
        let (weight, x) = (weight(at), at as f64 - place);
        total += weight;
        first += weight * x;
        second += weight * x * x;
        height += weight * samples[at];
        product += weight * x * samples[at];
    }
    if total <= 0.0 {
        return None;
    }
    let (mean, level) = (first / total, height / total);
    let spread = second / total - mean * mean;
    if degree == LoessDegree::Constant || spread.max(0.0).sqrt() <= 0.001 * (count - 1) as f64 {
        return Some(level);
    }
    let slope = (product / total - mean * level) / spread;
    Some(level - slope * mean)
}

/// Returns bisquare weights of the remainder by six times its median.
fn robustness_weights(samples: &[f64], season: &[f64], trend: &[f64]) -> Vec<f64> {
    let parts = samples.iter().zip(season.iter().zip(trend));
    let errors: Vec<f64> = parts.map(|(one, (season, trend))| (one - season - trend).abs()).collect();
    let mut sorted = errors.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = (sorted[middle] + sorted[(sorted.len() - 1) / 2]) / 2.0;
    let bound = 6.0 * median;
    let weight = |error: f64| {
        if error <= 0.001 * bound {
            1.0
        } else if error <= 0.999 * bound {
            let share = error / bound;
            (1.0 - share * share) * (1.0 - share * share)
        } else {
            0.0
        }
    };
    errors.into_iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_components_come_apart() {
        let daily = |at: usize| [0.0, 5.0, 10.0, 5.0, 0.0, -10.0, -10.0, 0.0][at % 8];
        let weekly = |at: usize| if (at / 8) % 7 < 5 { 2.0 } else { -5.0 };
        let samples: Vec<f64> =
            (0..8 * 7 * 12).map(|at| 100.0 + at as f64 * 0.05 + daily(at) + weekly(at)).collect();
        for is_robust in [false, true] {
            let found = decompose(&samples, &[8, 56], is_robust);
            for (at, sample) in samples.iter().enumerate() {
                let sum = found.trend[at] + found.seasons[0][at] + found.seasons[1][at] + found.remainder[at];
                assert!((sum - sample).abs() < 1e-9);
                assert!(found.remainder[at].abs() < 1.5, "{at}: {}", found.remainder[at]);
            }
            assert!((found.trend[300] - 115.0).abs() < 1.0, "{}", found.trend[300]);
        }
    }

    #[test]
    fn an_outlier_bends_a_robust_decomposition_little() {
        let mut samples: Vec<f64> =
            (0..240).map(|at| f64::from(at % 12) + f64::from(at * 7 % 5) * 0.1).collect();
        samples[120] += 100.0;
        let found = decompose(&samples, &[12], true);
        assert!(found.remainder[120] > 95.0, "{}", found.remainder[120]);
    }
}
