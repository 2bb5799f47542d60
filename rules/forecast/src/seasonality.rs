//! Seasons of a series, found from its autocorrelation.

use crate::line::Line;
use crate::series::Series;

/// Samples that are read, at most: the latest ones.
const MAX_READ: usize = 20_000;
/// Longest season that is found.
const MAX_SEASON: usize = 2_100;
/// Autocorrelation of a season, at least.
const LEAST_PEAK: f64 = 0.3;
/// Height of a peak above the valley before it, at least.
const LEAST_RISE: f64 = 0.2;
/// Share of the highest peak from which on the shortest season wins.
const NEAR_BEST: f64 = 0.9;

/// Medians of absolute samples at which a sample is cut.
const MAX_MEDIANS: f64 = 6.0;
/// Autocorrelation of a season of outliers, at least: two of them reach 0.75 by chance.
const LEAST_OUTLIER_PEAK: f64 = 0.8;

/// Finds the season of a series; `None` where the autocorrelation has no clear peak.
///
/// The least-squares line is taken out of the samples. A season is a lag up to a third of the samples. Its autocorrelation is a local
/// maximum of at least 0.3. It is at least 0.2 above the least one of shorter lags. Of the seasons with nine tenths of the highest
/// autocorrelation, the shortest one is chosen. Samples are cut at six medians of absolute ones. Where these have no season, whole samples
/// with an autocorrelation of at least 0.8 may have one.
pub fn find_seasonality(series: &Series) -> Option<usize> {
    let filled = series.filled();
    let samples = &filled[filled.len().saturating_sub(MAX_READ)..];
    let longest = (samples.len() / 3).min(MAX_SEASON);
    if longest < 2 {
        return None;
    }
    let rest = Line::fit(samples).residuals(samples);
    let scale = rest.iter().fold(0.0, |largest: f64, one| largest.max(one.abs()));
    if scale <= 0.0 || !scale.is_finite() {
        return None;
    }
    let rest: Vec<f64> = rest.iter().map(|one| one / scale).collect();
    let mut sizes: Vec<f64> = rest.iter().map(|one| one.abs()).collect();
    let middle = sizes.len() / 2;
    let median = *sizes.select_nth_unstable_by(middle, f64::total_cmp).1;
    // A few outliers at a distance by chance are no season.
    let bound = if median > 0.0 { MAX_MEDIANS * median } else { 1.0 };
    let cut: Vec<f64> = rest.iter().map(|one| one.clamp(-bound, bound)).collect();
    find_peak(&cut, longest, LEAST_PEAK).or_else(|| find_peak(&rest, longest, LEAST_OUTLIER_PEAK))
}

/// Finds the shortest lag with a clear peak of the autocorrelation.
fn find_peak(rest: &[f64], longest: usize, least: f64) -> Option<usize> {
    let total: f64 = rest.iter().map(|one| one * one).sum();
    // Each lag has its own number of pairs: without that, long seasons would fade.
    let correlation = |lag: usize| {
        let sum: f64 = rest[lag..].iter().zip(rest).map(|(one, other)| one * other).sum();
        (sum / (rest.len() - lag) as f64) / (total / rest.len() as f64)
    };
    let correlations: Vec<f64> = (0..=longest + 1).map(correlation).collect();
    let mut peaks = Vec::new();
    let mut valley = f64::INFINITY;
    for lag in 2..=longest {
        let height = correlations[lag];
        valley = valley.min(correlations[lag - 1]);
        let is_peak = height >= correlations[lag - 1] && height > correlations[lag + 1];
        if is_peak && height >= least && height - valley >= LEAST_RISE {
            peaks.push((lag, height));
        }
    }
    let highest = peaks.iter().map(|(_, height)| *height).fold(0.0, f64::max);
    peaks.into_iter().find(|(_, height)| *height >= NEAR_BEST * highest).map(|(lag, _)| lag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn planted_seasons_are_found_and_noise_has_none() {
        let mut random = Random::new(2);
        let mut noise = || random.uniform() * 2.0 - 1.0;
        for season in [7_usize, 24, 168] {
            let wave = |at: usize| if at % season < season / 3 { 10.0 } else { 0.0 };
            let samples = (0..season * 6).map(|at| Some(wave(at) + at as f64 * 0.01 + noise())).collect();
            assert_eq!(find_seasonality(&Series::new(samples).unwrap()), Some(season));
        }
        let samples = (0..1000).map(|_| Some(noise())).collect();
        assert_eq!(find_seasonality(&Series::new(samples).unwrap()), None);
        let mut level = 0.0;
        let walk = (0..1000).map(|_| {
            level += noise();
            Some(level)
        });
        let found = find_seasonality(&Series::new(walk.collect()).unwrap());
        assert!(found.is_none_or(|season| season > 30), "{found:?}");
        let spike = |at: usize| if [756, 791, 1127, 1162, 1190, 1379].contains(&at) { 80.0 } else { 0.0 };
        let spikes = (0..1440).map(|at| Some(spike(at) + noise())).collect();
        assert_eq!(find_seasonality(&Series::new(spikes).unwrap()), None);
        let job = (0..1440).map(|at| Some(if at % 144 == 20 { 80.0 } else { 0.0 } + noise())).collect();
        assert_eq!(find_seasonality(&Series::new(job).unwrap()), Some(144));
        for few in [0, 1, 5] {
            assert_eq!(find_seasonality(&Series::new(vec![Some(1.0); few]).unwrap()), None);
        }
    }
}
