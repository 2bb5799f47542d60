//! [`Forecaster`] and [`ForecastModel`]: forecasts with intervals of 80 and 95 %.
//!
//! - `ets` chooses a model of exponential smoothing (`ets`). Intervals have a closed form where all components are additive, else they are
//!   quantiles of simulated paths.
//! - `mstl_ets` takes the season out of the samples by `stl`, forecasts the rest by `ets` without season, and adds the last cycle.
//! - `random_forest` is the forest on lags. Its intervals come from forecasts of the last third of the window by smaller forests of the
//!   samples before.
//!
//! The errors of forecasts of the window's end stretch all intervals (`calibration`).

use std::sync::atomic::AtomicBool;

use crate::calibration::{ForecastErrors, IntervalMultiples, MAX_HORIZON, NORMAL, take_season};
use crate::error::{Error, Result};
use crate::ets::{Ets, LEAST_ETS};
use crate::forest::Forest;
use crate::random::Random;
use crate::regression::LEAST;
use crate::seasonality::find_seasonality;
use crate::series::Series;

/// Simulated paths, and samples of all paths together.
const PATHS: usize = 2_000;
const LEAST_PATHS: usize = 200;
const MAX_SIMULATED: usize = 4_000_000;
/// Forests of as many beginnings of the window by which errors are measured, their trees, and the origins of each.
const MEASURED_FORESTS: usize = 16;
const MEASURED_TREES: usize = 25;
const MEASURED_ORIGINS: usize = 3;

/// Method of a forecast with intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forecaster {
    /// Exponential smoothing.
    Ets,
    /// Exponential smoothing behind a seasonal decomposition.
    MstlEts,
    /// Random forest on lagged samples.
    Forest,
}

/// Trained forecast.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastModel {
    pub(crate) forecaster: Forecaster,
    pub(crate) seasonality: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) state: ForecastState,
    /// Half-widths of the intervals.
    pub(crate) multiples: IntervalMultiples,
}

/// Data that a forecast is computed from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ForecastState {
    Ets(Ets),
    /// The cycle begins with the bucket that follows the window.
    MstlEts {
        ets: Ets,
        cycle: Vec<f64>,
    },
    /// Root mean square errors by horizon.
    Forest {
        forest: Forest,
        deviations: Vec<f64>,
    },
}

/// Forecast of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForecastInterval {
    /// Mean.
    pub mean: f64,
    /// Lower bound of the interval of 80 %.
    pub lower80: f64,
    /// Upper bound of the interval of 80 %.
    pub upper80: f64,
    /// Lower bound of the interval of 95 %.
    pub lower95: f64,
    /// Upper bound of the interval of 95 %.
    pub upper95: f64,
}

impl Forecaster {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Ets, Self::MstlEts, Self::Forest];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ets => "ets",
            Self::MstlEts => "mstl_ets",
            Self::Forest => "random_forest",
        }
    }

    /// Returns the method of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Trains a model. Without a seasonality, one is found ([`find_seasonality`]). Training takes up to some seconds: no thread that serves
    /// requests trains.
    ///
    /// # Errors
    /// [`Error::AllMissing`], [`Error::TooFew`], [`Error::TooMany`], [`Error::SeasonTooLong`], [`Error::SeasonTooShort`],
    /// [`Error::NotFinite`].
    pub fn train(self, series: &Series, seasonality: Option<usize>, seed: u64) -> Result<ForecastModel> {
        self.train_cancellable(series, seasonality, seed, &AtomicBool::new(false))
    }

    /// Trains a model as [`Forecaster::train`] does, and ends soon once it is cancelled.
    ///
    /// # Errors
    /// As [`Forecaster::train`]; [`Error::Cancelled`].
    pub fn train_cancellable(
        self,
        series: &Series,
        seasonality: Option<usize>,
        seed: u64,
        cancelled: &AtomicBool,
    ) -> Result<ForecastModel> {
        if series.is_empty() {
            return Err(Error::AllMissing);
        }
        let samples = series.filled();
        let count = samples.len();
        let least = if self == Self::Forest { LEAST } else { LEAST_ETS };
        if count < least {
            return Err(Error::TooFew { algorithm: self.name(), needed: least, there: count });
        }
        match seasonality {
            Some(season) if season < 2 => return Err(Error::SeasonTooShort { season }),
            Some(season) if count < 2 * season + 1 => {
                return Err(Error::SeasonTooLong { season, there: count });
            }
            _ => {}
        }
        let seasonality = seasonality.or_else(|| find_seasonality(series));
        let (state, multiples) = match self {
            Self::Ets => {
                let ets = Ets::fit(self.name(), &samples, seasonality, cancelled)?;
                let multiples = IntervalMultiples::of_ets(&ets, &samples, seasonality);
                (ForecastState::Ets(ets), multiples)
            }
            Self::MstlEts => fit_decomposed(self.name(), &samples, seasonality, cancelled)?,
            Self::Forest => fit_forest(self.name(), &samples, seed, cancelled)?,
        };
        Ok(ForecastModel { forecaster: self, seasonality, seed, state, multiples })
    }
}

impl ForecastModel {
    /// Returns the method.
    pub fn forecaster(&self) -> Forecaster {
        self.forecaster
    }

    /// Returns the season in buckets, given or found.
    pub fn seasonality(&self) -> Option<usize> {
        self.seasonality
    }

    /// Describes the chosen model, such as `ETS(A,Ad,N)`.
    pub fn description(&self) -> String {
        match &self.state {
            ForecastState::Ets(ets) => ets.components.name(),
            ForecastState::MstlEts { ets, cycle } => {
                format!("MSTL({}) + {}", cycle.len(), ets.components.name())
            }
            ForecastState::Forest { forest, .. } => {
                format!("forest of {} trees on {} lags", forest.trees.len(), forest.latest.len())
            }
        }
    }

    /// Forecasts the buckets that follow the window.
    ///
    /// # Errors
    /// [`Error::TooMany`] beyond [`crate::MAX_PREDICTIONS`], [`Error::NotFinite`].
    pub fn forecast(&self, steps: usize) -> Result<Vec<ForecastInterval>> {
        if steps > crate::MAX_PREDICTIONS {
            let limit = crate::MAX_PREDICTIONS;
            return Err(Error::TooMany { what: "what is forecast", limit, there: steps });
        }
        let intervals = match &self.state {
            ForecastState::Ets(ets) => self.forecast_ets(ets, steps),
            ForecastState::MstlEts { ets, cycle } => {
                let mut intervals = self.forecast_ets(ets, steps);
                for (step, interval) in intervals.iter_mut().enumerate() {
                    if !cycle.is_empty() {
                        interval.shift(cycle[step % cycle.len()]);
                    }
                }
                intervals
            }
            ForecastState::Forest { forest, deviations } => {
                let means = forest.forecast(steps).into_iter().enumerate();
                means
                    .map(|(step, mean)| {
                        let deviation = forest_deviation(deviations, step);
                        ForecastInterval::new(mean, deviation, self.multiples.at(step))
                    })
                    .collect()
            }
        };
        match intervals.iter().all(ForecastInterval::is_finite) {
            true => Ok(intervals),
            false => Err(Error::NotFinite { what: "the forecast" }),
        }
    }

    fn forecast_ets(&self, ets: &Ets, steps: usize) -> Vec<ForecastInterval> {
        let means = ets.forecast(steps);
        if ets.is_additive() {
            let pairs = ets.deviations(&means).into_iter().zip(means).enumerate();
            let interval =
                |(step, (deviation, mean))| ForecastInterval::new(mean, deviation, self.multiples.at(step));
            return pairs.map(interval).collect();
        }
        let paths = (MAX_SIMULATED / steps.max(1)).clamp(LEAST_PATHS, PATHS);
        let mut random = Random::new(self.seed);
        let mut draws = vec![Vec::with_capacity(paths); steps];
        for _ in 0..paths {
            for (step, sample) in ets.simulate(steps, || normal(&mut random)).into_iter().enumerate() {
                draws[step].push(sample);
            }
        }
        let interval = |(step, (mean, mut draws)): (usize, (f64, Vec<f64>))| {
            draws.sort_unstable_by(f64::total_cmp);
            let [inner, outer] = self.multiples.at(step);
            let at = |share: f64, stretch: f64| {
                let drawn = draws[(share * (draws.len() - 1) as f64 + 0.5) as usize];
                mean + (drawn - mean) * stretch
            };
            let (lower80, upper80) = (at(0.1, inner / NORMAL[0]), at(0.9, inner / NORMAL[0]));
            let (lower95, upper95) = (at(0.025, outer / NORMAL[1]), at(0.975, outer / NORMAL[1]));
            // Paths with short tails and different stretches would put the inner bounds outside.
            let (lower95, upper95) = (lower95.min(lower80), upper95.max(upper80));
            ForecastInterval { mean, lower80, upper80, lower95, upper95 }
        };
        means.into_iter().zip(draws).enumerate().map(interval).collect()
    }
}

impl ForecastInterval {
    fn new(mean: f64, deviation: f64, multiples: [f64; 2]) -> Self {
        let [inner, outer] = multiples.map(|one| one * deviation);
        Self {
            mean,
            lower80: mean - inner,
            upper80: mean + inner,
            lower95: mean - outer,
            upper95: mean + outer,
        }
    }

    fn shift(&mut self, by: f64) {
        let Self { mean, lower80, upper80, lower95, upper95 } = self;
        [mean, lower80, upper80, lower95, upper95].into_iter().for_each(|one| *one += by);
    }

    fn is_finite(&self) -> bool {
        [self.mean, self.lower80, self.upper80, self.lower95, self.upper95].iter().all(|one| one.is_finite())
    }
}

/// Draws a number of the standard normal distribution (Box and Muller 1958).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - random.uniform())).sqrt();
    radius * libm::cos(std::f64::consts::TAU * random.uniform())
}

fn fit_decomposed(
    name: &'static str,
    samples: &[f64],
    seasonality: Option<usize>,
    cancelled: &AtomicBool,
) -> Result<(ForecastState, IntervalMultiples)> {
    let Some(period) = seasonality else {
        let ets = Ets::fit(name, samples, None, cancelled)?;
        let multiples = IntervalMultiples::of_ets(&ets, samples, None);
        return Ok((ForecastState::MstlEts { ets, cycle: Vec::new() }, multiples));
    };
    let (rest, cycle) = take_season(samples, period);
    let ets = Ets::fit(name, &rest, None, cancelled)?;
    let multiples = IntervalMultiples::of_decomposition(&ets, samples, period);
    Ok((ForecastState::MstlEts { ets, cycle }, multiples))
}

/// Fits a forest to all samples, and measures errors of smaller ones, which know the samples up to places of the last third.
fn fit_forest(
    name: &'static str,
    samples: &[f64],
    seed: u64,
    cancelled: &AtomicBool,
) -> Result<(ForecastState, IntervalMultiples)> {
    let forest = Forest::fit(name, samples, seed, cancelled)?;
    let count = samples.len();
    let known = (count * 2 / 3).max(LEAST);
    let horizon = (count - known).min(MAX_HORIZON);
    let mut of_steps: Vec<Vec<f64>> = vec![Vec::new(); horizon];
    let stride = (count - known).div_ceil(MEASURED_FORESTS).max(1);
    for begin in (known..count).step_by(stride) {
        let mut measured = Forest::with_trees(MEASURED_TREES, name, &samples[..begin], seed, cancelled)?;
        let lags = measured.latest.len();
        for origin in begin..(begin + MEASURED_ORIGINS.min(stride)).min(count) {
            measured.latest = samples[origin - lags..origin].iter().rev().copied().collect();
            let steps = horizon.min(count - origin);
            for (step, forecast) in measured.forecast(steps).into_iter().enumerate() {
                of_steps[step].push(forecast - samples[origin + step]);
            }
        }
    }
    let mut deviations: Vec<f64> = Vec::with_capacity(horizon);
    let mut ratios = ForecastErrors::new(horizon);
    for (step, errors) in of_steps.into_iter().enumerate() {
        let square: f64 = errors.iter().map(|error| error * error).sum();
        // Few origins see long horizons: an interval never gets narrower with time.
        let least = deviations.last().copied().unwrap_or_default();
        let deviation = (square / errors.len().max(1) as f64).sqrt().max(least);
        errors.into_iter().for_each(|error| ratios.push(step, error, deviation));
        deviations.push(deviation);
    }
    Ok((ForecastState::Forest { forest, deviations }, ratios.multiples().unwrap_or_default()))
}

/// Returns the deviation of a step; beyond the measured ones it grows by the root of the horizon.
fn forest_deviation(deviations: &[f64], step: usize) -> f64 {
    match (deviations.get(step), deviations.last()) {
        (Some(deviation), _) => *deviation,
        (None, Some(last)) => last * ((step + 1) as f64 / deviations.len() as f64).sqrt(),
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seasonal(count: usize) -> Series {
        let mut random = Random::new(8);
        let season = [0.0, 2.0, 5.0, 9.0, 5.0, 2.0, 0.0, -3.0, -8.0, -10.0, -8.0, -3.0];
        let sample = |at: usize| Some(100.0 + at as f64 * 0.1 + season[at % 12] + random.uniform() - 0.5);
        Series::new((0..count).map(sample).collect()).unwrap()
    }

    #[test]
    fn seasons_go_on_within_their_intervals() {
        let all = seasonal(264);
        let samples = all.filled();
        let window = Series::new(samples[..240].iter().copied().map(Some).collect()).unwrap();
        for forecaster in Forecaster::ALL {
            let model = forecaster.train(&window, None, 3).unwrap();
            assert_eq!(model.seasonality(), Some(12), "{forecaster:?}");
            let forecast = model.forecast(24).unwrap();
            let within = |(interval, sample): &(&ForecastInterval, &f64)| {
                interval.lower95 <= **sample && **sample <= interval.upper95
            };
            let hits = forecast.iter().zip(&samples[240..]).filter(within).count();
            assert!(hits >= 21, "{} {hits}", model.description());
            for (interval, sample) in forecast.iter().zip(&samples[240..]) {
                assert!(interval.lower95 <= interval.lower80 && interval.lower80 <= interval.mean);
                assert!(
                    (interval.mean - sample).abs() < 6.0,
                    "{} {interval:?} {sample}",
                    model.description()
                );
            }
            assert_eq!(model.forecast(24), forecaster.train(&window, Some(12), 3).unwrap().forecast(24));
        }
    }

    #[test]
    fn a_cancelled_training_ends_before_its_model_is_made() {
        let (window, cancelled) = (seasonal(60), AtomicBool::new(true));
        for forecaster in Forecaster::ALL {
            let outcome = forecaster.train_cancellable(&window, None, 3, &cancelled);
            assert_eq!(outcome.unwrap_err(), Error::Cancelled, "{forecaster:?}");
        }
        let outcome = crate::train_cancellable(crate::Algorithm::Rfrs, &window, 5, 3, &cancelled);
        assert_eq!(outcome.unwrap_err(), Error::Cancelled);
    }

    #[test]
    fn inner_intervals_of_simulated_paths_are_within_the_outer_ones() {
        let mut random = Random::new(5);
        let sample = |at: usize| Some(10.0 * 1.02_f64.powi(at as i32) * (0.9 + 0.2 * random.uniform()));
        let window = Series::new((0..120).map(sample).collect()).unwrap();
        let mut model = Forecaster::Ets.train(&window, None, 3).unwrap();
        assert!(
            matches!(&model.state, ForecastState::Ets(ets) if !ets.is_additive()),
            "{}",
            model.description()
        );
        model.multiples = IntervalMultiples(vec![[4.0, 4.0]]);
        for interval in model.forecast(24).unwrap() {
            assert!(
                interval.lower95 <= interval.lower80 && interval.upper80 <= interval.upper95,
                "{interval:?}"
            );
        }
    }

    #[test]
    fn models_come_back_and_hostile_bytes_are_refused() {
        let window = seasonal(60);
        let mut random = Random::new(4);
        for forecaster in Forecaster::ALL {
            let model = forecaster.train(&window, None, 3).unwrap();
            let bytes = model.encode();
            assert_eq!(ForecastModel::decode(&bytes).unwrap(), model);
            for _ in 0..1000 {
                let mut changed = bytes[..bytes.len() - 4].to_vec();
                let at = 10 + random.below(changed.len() as u32 - 10) as usize;
                changed[at] = random.below(256) as u8;
                let sum = crc32c::crc32c(&changed);
                changed.extend_from_slice(&sum.to_le_bytes());
                if let Ok(model) = ForecastModel::decode(&changed) {
                    let _ = model.forecast(3);
                }
                assert!(ForecastModel::decode(&bytes[..at]).is_err());
            }
        }
    }

    #[test]
    fn series_that_teach_nothing_are_told() {
        let series = |values: Vec<Option<f64>>| Series::new(values).unwrap();
        for forecaster in Forecaster::ALL {
            let train = |values, season| forecaster.train(&series(values), season, 1);
            assert_eq!(train(vec![None; 50], None).unwrap_err(), Error::AllMissing);
            assert!(matches!(train(vec![Some(1.0); 3], None), Err(Error::TooFew { .. })));
            let refused = train(vec![Some(1.0); 50], Some(25)).unwrap_err();
            assert_eq!(refused, Error::SeasonTooLong { season: 25, there: 50 });
            assert_eq!(train(vec![Some(1.0); 50], Some(1)).unwrap_err(), Error::SeasonTooShort { season: 1 });
            let level = train(vec![Some(7.0); 50], None).unwrap().forecast(5).unwrap();
            assert!(
                level.iter().all(|one| (one.mean - 7.0).abs() < 1e-9 && one.upper95 - one.lower95 < 1e-9)
            );
            let _ = train((0..50).map(|at| Some(f64::from(at % 2) * 1e308)).collect(), None);
        }
    }
}
