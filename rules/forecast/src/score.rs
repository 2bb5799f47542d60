//! Score of a model: its forecast of the end of its own window, against the samples there.

use std::sync::atomic::AtomicBool;

use crate::error::Result;
use crate::line::mean_squared;
use crate::model::{Algorithm, Model};
use crate::series::{Series, filled};
use crate::sum::{mean, sum};

/// Samples that are held out, at least, where a fifth of the window has as many.
const LEAST_HELD_OUT: usize = 10;

/// Score over the held-out end of a window. All is `None` where there are too few samples to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Root of the mean squared error.
    pub rmse: Option<f64>,
    /// That in shares of the range of the samples; `None` where they are all the same.
    pub rmse_normalized: Option<f64>,
    /// 1 − mean squared error / variance of what was held out; below 0 its mean would have been the better forecast. `None` where that is
    /// all the same.
    pub overall_efficiency: Option<f64>,
}

/// Trains a model on all but the end of a window, and compares what it forecasts with the samples there; gaps are skipped. Held out is a
/// fifth of the window, but no more than is to be forecast (or ten).
pub(crate) fn score(
    algorithm: Algorithm,
    series: &Series,
    predictions: usize,
    seed: u64,
    cancelled: &AtomicBool,
) -> Result<Score> {
    let samples = series.samples();
    let held_out = (samples.len() / 5).min(predictions.max(LEAST_HELD_OUT));
    let (window, rest) = samples.split_at(samples.len() - held_out);
    if held_out == 0 || window.len() < algorithm.least() {
        return Ok(Score::default());
    }
    let model = Model::fit(algorithm, &filled(window), seed, cancelled)?;
    let pairs: Vec<(f64, f64)> = model
        .forecast(held_out)
        .into_iter()
        .zip(rest)
        .filter_map(|(told, there)| there.map(|there| (told, there)))
        .collect();
    let Some(squared) = mean_squared(&pairs) else { return Ok(Score::default()) };
    let there: Vec<f64> = pairs.iter().map(|(_, there)| *there).collect();
    let level = mean(&there);
    let variance = sum(there.iter().map(|one| (one - level).powi(2))) / there.len() as f64;
    let all = samples.iter().flatten().copied();
    let range = all.clone().fold(f64::NEG_INFINITY, f64::max) - all.fold(f64::INFINITY, f64::min);
    let finite = |value: f64| value.is_finite().then_some(value);
    Ok(Score {
        rmse: finite(squared.sqrt()),
        rmse_normalized: finite(squared.sqrt() / range),
        overall_efficiency: finite(1.0 - squared / variance),
    })
}
