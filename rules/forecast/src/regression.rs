//! Linear regression on lagged samples: a sample as a function of those before it.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::least_squares::Rows;
use crate::sum::{mean, sum};

/// Lags, at most.
const MAX_LAGS: usize = 24;
/// Share of the samples' standard deviation by which an error has to be less to be less at all: below that it is rounding.
const LESS: f64 = 1e-9;
/// Samples that a regression needs: fewer are no more than its coefficients.
pub(crate) const LEAST: usize = 8;

/// Returns how many lags there may be for so many samples.
pub(crate) fn most_lags(samples: usize) -> usize {
    (samples / 4).clamp(1, MAX_LAGS)
}

/// A regression with what its next forecast needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Regression {
    /// Mean of all samples, to which they are taken relative.
    pub(crate) level: f64,
    pub(crate) intercept: f64,
    /// Coefficients, that of the latest sample first.
    pub(crate) lags: Vec<f64>,
    /// The latest samples, relative, as many as lags; the latest one first.
    pub(crate) latest: Vec<f64>,
}

impl Regression {
    /// Chooses the number of lags and fits. Candidates are fitted to the first four fifths of the samples, all to the same rows, and the one
    /// that tells the last fifth best, each sample from those before it, is fitted to all. Of equals it is the one with
    /// fewer lags.
    ///
    /// # Errors
    /// [`Error::TooFew`] below [`LEAST`].
    pub(crate) fn fit(algorithm: &'static str, samples: &[f64]) -> Result<Self> {
        let count = samples.len();
        if count < LEAST {
            return Err(Error::TooFew { algorithm, needed: LEAST, there: count });
        }
        let level = mean(samples);
        let relative: Vec<f64> = samples.iter().map(|sample| sample - level).collect();
        let lags = chosen(&relative);
        let mut rows = Rows::new(lags + 1);
        (lags..count).for_each(|at| push(&mut rows, &relative, at, lags));
        let mut coefficients = rows.solve().first(lags + 1);
        let latest = relative.iter().rev().take(lags).copied().collect();
        Ok(Self { level, intercept: coefficients.remove(0), lags: coefficients, latest })
    }

    /// Forecasts, each sample from those before it, forecasts among them.
    pub(crate) fn forecast(&self, predictions: usize) -> Vec<f64> {
        let mut latest: VecDeque<f64> = self.latest.iter().copied().collect();
        let mut forecast = Vec::with_capacity(predictions);
        for _ in 0..predictions {
            let by_lags =
                sum(self.lags.iter().zip(&latest).map(|(coefficient, sample)| coefficient * sample));
            let next = self.intercept + by_lags;
            latest.push_front(next);
            latest.truncate(self.lags.len());
            forecast.push(next + self.level);
        }
        forecast
    }
}

/// The samples before a place, the nearest first.
pub(crate) fn before(samples: &[f64], at: usize, lags: usize) -> impl Iterator<Item = f64> {
    samples[at - lags..at].iter().rev().copied()
}

fn push(rows: &mut Rows, samples: &[f64], at: usize, lags: usize) {
    rows.push([1.0].into_iter().chain(before(samples, at, lags)), samples[at]);
}

/// Chooses the number of lags.
fn chosen(samples: &[f64]) -> usize {
    let (count, most) = (samples.len(), most_lags(samples.len()));
    let split = count - (count / 5).max(1);
    let mut rows = Rows::new(most + 1);
    (most..split).for_each(|at| push(&mut rows, samples, at, most));
    let solved = rows.solve();
    let deviation = (sum(samples.iter().map(|sample| sample * sample)) / count as f64).sqrt();
    let (mut chosen, mut least) = (1, f64::INFINITY);
    for lags in 1..=most {
        let coefficients = solved.first(lags + 1);
        let squares = (split..count).map(|at| {
            let by_lags =
                coefficients[1..].iter().zip(before(samples, at, lags)).map(|(one, other)| one * other);
            (samples[at] - coefficients[0] - by_lags.sum::<f64>()).powi(2)
        });
        let error = (sum(squares) / (count - split) as f64).sqrt();
        if error < least - LESS * deviation {
            (chosen, least) = (lags, error);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_goes_on() {
        let wave = |place: usize| 10.0 + 3.0 * (place as f64 * std::f64::consts::TAU / 12.0).sin();
        let samples: Vec<f64> = (0..120).map(wave).collect();
        let regression = Regression::fit("LRS", &samples).unwrap();
        assert_eq!(regression.lags.len(), 2, "a wave is two lags: more say nothing new");
        for (place, one) in regression.forecast(24).into_iter().enumerate() {
            assert!((one - wave(120 + place)).abs() < 1e-7, "{place}: {one}");
        }
    }

    #[test]
    fn level_samples_stay_level_and_few_are_refused() {
        let regression = Regression::fit("LRS", &[2.5; 40]).unwrap();
        assert_eq!(regression.lags.len(), 1);
        assert_eq!(regression.forecast(3), [2.5; 3]);
        let refused = Regression::fit("LRS", &[1.0; 7]).unwrap_err();
        assert_eq!(refused, Error::TooFew { algorithm: "LRS", needed: 8, there: 7 });
        assert_eq!([most_lags(8), most_lags(95), most_lags(96), most_lags(9999)], [2, 23, 24, 24]);
    }
}
