//! [`Forecaster`] and [`ForecastModel`]: forecasts with intervals of 80 and 95 %.
//!
//! - `ets` chooses a model of exponential smoothing (`ets`). Intervals have a closed form where all components are additive, else they are
//!   quantiles of simulated paths.
//! - `mstl_ets` takes the season out of the samples by `stl`, forecasts the rest by `ets` without season, and adds the last cycle.
//! - `random_forest` is the forest on lags. Its intervals come from forecasts of the last fifth of the window by a forest of the rest.

use crate::error::{Error, Result};
use crate::ets::{Ets, LEAST_ETS};
use crate::forest::Forest;
use crate::random::Random;
use crate::regression::LEAST;
use crate::seasonality::find_seasonality;
use crate::series::Series;
use crate::stl::decompose;

/// Deviations of the normal distribution that 80 and 95 % are within.
const NORMAL: [f64; 2] = [1.281_551_565_544_600_4, 1.959_963_984_540_054];
/// Simulated paths, and samples of all paths together.
const PATHS: usize = 2_000;
const LEAST_PATHS: usize = 200;
const MAX_SIMULATED: usize = 4_000_000;
/// Horizon up to which errors of a forest are measured.
const MAX_MEASURED: usize = 48;
/// Origins from which errors of a forest are measured.
const ORIGINS: usize = 40;

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
        let state = match self {
            Self::Ets => ForecastState::Ets(Ets::fit(self.name(), &samples, seasonality)?),
            Self::MstlEts => fit_decomposed(self.name(), samples, seasonality)?,
            Self::Forest => fit_forest(self.name(), &samples, seed)?,
        };
        Ok(ForecastModel { forecaster: self, seasonality, seed, state })
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
                    .map(|(step, mean)| ForecastInterval::normal(mean, forest_deviation(deviations, step)))
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
            let pairs = means.into_iter().zip(ets.deviations(steps));
            return pairs.map(|(mean, deviation)| ForecastInterval::normal(mean, deviation)).collect();
        }
        let paths = (MAX_SIMULATED / steps.max(1)).clamp(LEAST_PATHS, PATHS);
        let mut random = Random::new(self.seed);
        let mut draws = vec![Vec::with_capacity(paths); steps];
        for _ in 0..paths {
            for (step, sample) in ets.simulate(steps, || normal(&mut random)).into_iter().enumerate() {
                draws[step].push(sample);
            }
        }
        let interval = |(mean, mut draws): (f64, Vec<f64>)| {
            draws.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| draws[(share * (draws.len() - 1) as f64 + 0.5) as usize];
            ForecastInterval {
                mean,
                lower80: at(0.1),
                upper80: at(0.9),
                lower95: at(0.025),
                upper95: at(0.975),
            }
        };
        means.into_iter().zip(draws).map(interval).collect()
    }
}

impl ForecastInterval {
    fn normal(mean: f64, deviation: f64) -> Self {
        let [inner, outer] = NORMAL.map(|one| one * deviation);
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
    mut samples: Vec<f64>,
    seasonality: Option<usize>,
) -> Result<ForecastState> {
    let mut cycle = Vec::new();
    if let Some(period) = seasonality {
        let season = decompose(&samples, &[period], false).seasons.swap_remove(0);
        samples.iter_mut().zip(&season).for_each(|(sample, season)| *sample -= season);
        cycle = season[season.len() - period..].to_vec();
    }
    Ok(ForecastState::MstlEts { ets: Ets::fit(name, &samples, None)?, cycle })
}

/// Fits a forest to all samples, and measures errors of another one that does not know the last fifth.
fn fit_forest(name: &'static str, samples: &[f64], seed: u64) -> Result<ForecastState> {
    let forest = Forest::fit(name, samples, seed)?;
    let known = (samples.len() * 4 / 5).max(LEAST);
    let mut measured = Forest::fit(name, &samples[..known], seed)?;
    let horizon = (samples.len() - known).min(MAX_MEASURED);
    let mut squares = vec![(0.0, 0_u32); horizon];
    let origins = known..samples.len();
    let stride = origins.len().div_ceil(ORIGINS).max(1);
    for origin in origins.step_by(stride) {
        let lags = measured.latest.len();
        measured.latest = samples[origin - lags..origin].iter().rev().copied().collect();
        let steps = horizon.min(samples.len() - origin);
        for (step, forecast) in measured.forecast(steps).into_iter().enumerate() {
            let error = forecast - samples[origin + step];
            squares[step].0 += error * error;
            squares[step].1 += 1;
        }
    }
    let mut deviations: Vec<f64> = Vec::with_capacity(horizon);
    for (square, count) in squares {
        let deviation = (square / f64::from(count.max(1))).sqrt();
        // Few origins see long horizons: an interval never gets narrower with time.
        deviations.push(deviation.max(deviations.last().copied().unwrap_or_default()));
    }
    Ok(ForecastState::Forest { forest, deviations })
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
