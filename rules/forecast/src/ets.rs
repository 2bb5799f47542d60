//! Exponential smoothing in state space form (Hyndman, Koehler, Ord, Snyder 2008): error, trend, season.
//!
//! Errors are additive or multiplicative, trends absent, additive or damped, seasons absent, additive or multiplicative; multiplicative
//! components need positive samples, and a multiplicative season a multiplicative error. Parameters and the first level and
//! trend maximise the likelihood. The first seasons come from a classical decomposition; up to 24 of them are searched too. The model of the
//! least AICc is chosen. Starts and bounds of the search are those of `statsforecast`: α starts at a fifth of a season, and β stays
//! below that.

use std::sync::atomic::AtomicBool;

use crate::error::{Error, Result, check_cancelled};
use crate::simplex::minimize;

/// Longest season of a model.
pub(crate) const MAX_ETS_SEASON: usize = 400;
/// Longest season whose first states are searched.
const MAX_SEARCHED_SEASON: usize = 24;
/// Latest samples that parameters are fitted to, at most.
const MAX_FITTED: usize = 4_000;
/// Passes over this many samples that a search may make, at most.
const MAX_PASSED: usize = 4_000_000;
/// Bounds of smoothing parameters and of the damping.
const LEAST_RATE: f64 = 1e-4;
const MOST_RATE: f64 = 1.0 - LEAST_RATE;
const DAMPING: (f64, f64) = (0.8, 0.98);
/// Samples that a model needs.
pub(crate) const LEAST_ETS: usize = 8;

/// Trend component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrendKind {
    None,
    Additive,
    Damped,
}

/// Season component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeasonKind {
    None,
    Additive,
    Multiplicative,
}

/// Components of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EtsComponents {
    pub(crate) has_multiplicative_error: bool,
    pub(crate) trend: TrendKind,
    pub(crate) season: SeasonKind,
}

/// Smoothing parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EtsParameters {
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) gamma: f64,
    pub(crate) phi: f64,
}

/// States of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EtsState {
    pub(crate) level: f64,
    pub(crate) trend: f64,
    /// Season of each place of the cycle. The next sample is at `place`.
    pub(crate) season: Vec<f64>,
    pub(crate) place: usize,
}

/// Fitted model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ets {
    pub(crate) components: EtsComponents,
    pub(crate) parameters: EtsParameters,
    /// States behind the last sample.
    pub(crate) state: EtsState,
    /// Standard deviation of the errors, which are relative where they are multiplicative.
    pub(crate) sigma: f64,
}

impl EtsComponents {
    pub(crate) fn name(self) -> String {
        let error = if self.has_multiplicative_error { "M" } else { "A" };
        let trend = match self.trend {
            TrendKind::None => "N",
            TrendKind::Additive => "A",
            TrendKind::Damped => "Ad",
        };
        let season = match self.season {
            SeasonKind::None => "N",
            SeasonKind::Additive => "A",
            SeasonKind::Multiplicative => "M",
        };
        format!("ETS({error},{trend},{season})")
    }

    /// Returns the candidates.
    fn candidates(period: Option<usize>, is_positive: bool) -> Vec<Self> {
        let mut candidates = Vec::new();
        let mut seasons = vec![SeasonKind::None];
        if period.is_some() {
            seasons.extend([SeasonKind::Additive, SeasonKind::Multiplicative]);
        }
        for season in seasons {
            for trend in [TrendKind::None, TrendKind::Additive, TrendKind::Damped] {
                for has_multiplicative_error in [false, true] {
                    let needs_positive = has_multiplicative_error || season == SeasonKind::Multiplicative;
                    let is_stable = has_multiplicative_error || season != SeasonKind::Multiplicative;
                    if is_stable && (is_positive || !needs_positive) {
                        candidates.push(Self { has_multiplicative_error, trend, season });
                    }
                }
            }
        }
        candidates
    }
}

impl EtsState {
    /// Returns the mean of the next sample.
    fn expected(&self, components: EtsComponents, phi: f64) -> f64 {
        let base = self.level + phi * self.trend;
        match components.season {
            SeasonKind::None => base,
            SeasonKind::Additive => base + self.season[self.place],
            SeasonKind::Multiplicative => base * self.season[self.place],
        }
    }

    /// Takes a sample in.
    fn update(&mut self, components: EtsComponents, parameters: &EtsParameters, sample: f64) {
        let EtsParameters { alpha, beta, gamma, phi } = *parameters;
        let base = self.level + phi * self.trend;
        let error = sample - self.expected(components, phi);
        let season = self.season.get(self.place).copied();
        let (level_error, season_error) = match (components.season, season) {
            (SeasonKind::Multiplicative, Some(season)) => (error / season, error / base),
            _ => (error, error),
        };
        // The error of a model with multiplicative errors enters by the same terms: its scale cancels.
        self.level = base + alpha * level_error;
        self.trend = phi * self.trend + beta * level_error;
        if let Some(season) = season {
            self.season[self.place] = season + gamma * season_error;
            self.place = (self.place + 1) % self.season.len();
        }
    }
}

/// Model with the state before its first sample.
#[derive(Clone, Debug)]
pub(crate) struct FittedEts {
    pub(crate) model: Ets,
    initial: EtsState,
}

/// Result of a pass over samples.
struct Likelihood {
    /// Twice the negative log-likelihood, less a constant.
    value: f64,
    sigma: f64,
    state: EtsState,
}

impl Ets {
    /// Fits all candidates to samples without gaps, and chooses one.
    ///
    /// # Errors
    /// [`Error::TooFew`], [`Error::TooMany`], [`Error::NotFinite`].
    pub(crate) fn fit(
        algorithm: &'static str,
        samples: &[f64],
        period: Option<usize>,
        cancelled: &AtomicBool,
    ) -> Result<Self> {
        let needed = LEAST_ETS.max(period.map_or(0, |period| 2 * period + 1));
        if samples.len() < needed {
            return Err(Error::TooFew { algorithm, needed, there: samples.len() });
        }
        if let Some(there) = period.filter(|period| *period > MAX_ETS_SEASON) {
            let what = "the seasonality of ets (mstl_ets takes longer ones)";
            return Err(Error::TooMany { what, limit: MAX_ETS_SEASON, there });
        }
        let samples = fitted_samples(samples, period);
        let first = samples[0];
        if samples.iter().all(|sample| *sample == first) {
            return Ok(Self::constant(first));
        }
        let scale = samples.iter().fold(0.0, |largest: f64, one| largest.max(one.abs()));
        let is_positive = samples.iter().all(|sample| *sample > scale * 1e-6);
        let mut best: Option<(f64, Self)> = None;
        for components in EtsComponents::candidates(period, is_positive) {
            check_cancelled(cancelled)?;
            let fitted = FittedEts::fit(samples, period, components);
            if let Some((criterion, fitted)) = fitted
                && best.as_ref().is_none_or(|(least, _)| criterion < *least)
            {
                best = Some((criterion, fitted.model));
            }
        }
        best.map(|(_, model)| model).ok_or(Error::NotFinite { what: "the likelihood of a model" })
    }

    fn constant(level: f64) -> Self {
        let components = EtsComponents {
            has_multiplicative_error: false,
            trend: TrendKind::None,
            season: SeasonKind::None,
        };
        let parameters = EtsParameters { alpha: 0.5, beta: 0.0, gamma: 0.0, phi: 1.0 };
        let state = EtsState { level, trend: 0.0, season: Vec::new(), place: 0 };
        Self { components, parameters, state, sigma: 0.0 }
    }

    /// Takes a sample in, with the parameters as they are.
    pub(crate) fn update(&mut self, sample: f64) {
        self.state.update(self.components, &self.parameters, sample);
    }

    /// Returns means of the samples that follow.
    pub(crate) fn forecast(&self, steps: usize) -> Vec<f64> {
        let mut state = self.state.clone();
        let mut damping = 0.0;
        let mut power = 1.0;
        (0..steps)
            .map(|_| {
                power *= self.parameters.phi;
                damping += power;
                let base = self.state.level + damping * self.state.trend;
                let season = state.season.get(state.place).copied();
                state.place = (state.place + 1) % state.season.len().max(1);
                match (self.components.season, season) {
                    (SeasonKind::Additive, Some(season)) => base + season,
                    (SeasonKind::Multiplicative, Some(season)) => base * season,
                    _ => base,
                }
            })
            .collect()
    }

    /// Returns whether intervals have a closed form: all components are additive.
    pub(crate) fn is_additive(&self) -> bool {
        !self.components.has_multiplicative_error && self.components.season != SeasonKind::Multiplicative
    }

    /// Returns standard deviations of the samples that follow: exact ones of a model with additive components. Those of other models
    /// hold for small relative errors.
    pub(crate) fn deviations(&self, means: &[f64]) -> Vec<f64> {
        let shares = self.deviation_growth(means.len()).into_iter().zip(means);
        let is_relative = self.components.has_multiplicative_error;
        shares.map(|(share, mean)| if is_relative { share * mean.abs() } else { share }).collect()
    }

    /// Returns the deviations of steps, by the scale of the errors.
    fn deviation_growth(&self, steps: usize) -> Vec<f64> {
        let EtsParameters { alpha, beta, gamma, phi } = self.parameters;
        let period = self.state.season.len();
        let (mut variance, mut damping, mut power) = (1.0, 0.0, 1.0);
        let mut deviations = Vec::with_capacity(steps);
        for step in 1..=steps {
            deviations.push(self.sigma * f64::sqrt(variance));
            power *= phi;
            damping += power;
            let seasonal = if period > 0 && step % period == 0 { gamma } else { 0.0 };
            let weight = alpha + beta * damping + seasonal;
            variance += weight * weight;
        }
        deviations
    }

    /// Draws one path of samples that follow, with errors of the standard normal distribution.
    pub(crate) fn simulate(&self, steps: usize, mut normal: impl FnMut() -> f64) -> Vec<f64> {
        let mut state = self.state.clone();
        let draw = |_| {
            let expected = state.expected(self.components, self.parameters.phi);
            let error = self.sigma * normal();
            let sample = match self.components.has_multiplicative_error {
                true => expected * (1.0 + error.max(-0.99)),
                false => expected + error,
            };
            state.update(self.components, &self.parameters, sample);
            sample
        };
        (0..steps).map(draw).collect()
    }
}

impl FittedEts {
    /// Fits a model to samples; returns its AICc, too. `None` where no likelihood is finite.
    pub(crate) fn fit(
        samples: &[f64],
        period: Option<usize>,
        components: EtsComponents,
    ) -> Option<(f64, Self)> {
        let samples = fitted_samples(samples, period);
        let period = period.unwrap_or(1);
        let (has_trend, has_season) =
            (components.trend != TrendKind::None, components.season != SeasonKind::None);
        let is_damped = components.trend == TrendKind::Damped;
        let initial = initial_state(samples, period, components);
        let is_searched = has_season && period <= MAX_SEARCHED_SEASON;
        let season_total = if components.season == SeasonKind::Multiplicative { period as f64 } else { 0.0 };
        let cycle = if has_season { period as f64 } else { 1.0 };
        let first_alpha = LEAST_RATE + 0.2 * (MOST_RATE - LEAST_RATE) / cycle;
        let between = |(least, most): (f64, f64), share: f64| least + share * (most - least);
        let (beta, gamma) = ((LEAST_RATE, first_alpha), (LEAST_RATE, MOST_RATE.min(1.0 - first_alpha)));
        let mut start = vec![first_alpha];
        let mut bounds = vec![(LEAST_RATE, MOST_RATE)];
        for (is_there, within, share) in
            [(has_trend, beta, 0.1), (has_season, gamma, 0.05), (is_damped, DAMPING, 0.99)]
        {
            start.extend(is_there.then(|| between(within, share)));
            bounds.extend(is_there.then_some(within));
        }
        start.push(initial.level);
        start.extend(has_trend.then_some(initial.trend));
        if is_searched {
            start.extend(&initial.season[1..]);
        }
        bounds.resize(start.len(), (f64::NEG_INFINITY, f64::INFINITY));
        let unpack = |point: &[f64]| {
            let mut point = point.iter().copied();
            let mut next = |is_there: bool, otherwise: f64| match is_there {
                true => point.next().unwrap_or(otherwise),
                false => otherwise,
            };
            let parameters = EtsParameters {
                alpha: next(true, 0.0),
                beta: next(has_trend, 0.0),
                gamma: next(has_season, 0.0),
                phi: next(is_damped, 1.0),
            };
            let mut state = initial.clone();
            state.level = next(true, 0.0);
            state.trend = next(has_trend, 0.0);
            if is_searched {
                for season in 1..period {
                    state.season[season] = next(true, 0.0);
                }
                // The first one keeps the sum of a cycle.
                state.season[0] = season_total - state.season[1..].iter().sum::<f64>();
            }
            (parameters, state)
        };
        let evaluate = |point: &[f64]| {
            let (parameters, state) = unpack(point);
            likelihood(samples, components, &parameters, state).map_or(f64::INFINITY, |one| one.value)
        };
        let found = minimize(&start, &bounds, MAX_PASSED / samples.len(), evaluate);
        let (parameters, initial) = unpack(&found.point);
        let Likelihood { value, sigma, state } =
            likelihood(samples, components, &parameters, initial.clone())?;
        let count = samples.len() as f64;
        let states = 1 + usize::from(has_trend) + if has_season { period - 1 } else { 0 };
        // The variance of the errors is one, too.
        let smoothing = 2 + usize::from(has_trend) + usize::from(has_season) + usize::from(is_damped);
        let free = (states + smoothing) as f64;
        let correction = if count - free - 1.0 > 0.0 {
            2.0 * free * (free + 1.0) / (count - free - 1.0)
        } else {
            f64::INFINITY
        };
        let criterion = value + 2.0 * free + correction;
        let sigma = sigma * (count / (count - free).max(count / 4.0)).sqrt();
        let model = Ets { components, parameters, state, sigma };
        criterion.is_finite().then_some((criterion, Self { model, initial }))
    }

    /// Returns the model behind other samples, with the parameters and the first state as they are; `None` where its state leaves what
    /// it may be.
    pub(crate) fn behind(&self, samples: &[f64]) -> Option<Ets> {
        let Ets { components, parameters, .. } = &self.model;
        let run = likelihood(samples, *components, parameters, self.initial.clone())?;
        Some(Ets { state: run.state, ..self.model.clone() })
    }
}

/// Returns the latest samples, as many as parameters are fitted to.
fn fitted_samples(samples: &[f64], period: Option<usize>) -> &[f64] {
    let longest = MAX_FITTED.max(period.map_or(0, |period| 10 * period));
    &samples[samples.len().saturating_sub(longest)..]
}

/// Runs a model over samples; `None` where a state leaves what it may be.
fn likelihood(
    samples: &[f64],
    components: EtsComponents,
    parameters: &EtsParameters,
    mut state: EtsState,
) -> Option<Likelihood> {
    let (mut squares, mut logarithms) = (0.0, 0.0);
    let is_positive = components.has_multiplicative_error;
    for sample in samples {
        let expected = state.expected(components, parameters.phi);
        if !expected.is_finite() || (is_positive && expected <= 0.0) {
            return None;
        }
        let mut error = sample - expected;
        if is_positive {
            error /= expected;
            logarithms += libm::log(expected);
        }
        squares += error * error;
        let place = state.place;
        state.update(components, parameters, *sample);
        if components.season == SeasonKind::Multiplicative && state.season[place] <= 0.0 {
            return None;
        }
    }
    let count = samples.len() as f64;
    let value = count * libm::log(squares.max(f64::MIN_POSITIVE)) + 2.0 * logarithms;
    value.is_finite().then(|| Likelihood { value, sigma: (squares / count).sqrt(), state })
}

/// Returns the first states: seasons of a classical decomposition, level and trend of a line through the first deseasonalised samples.
fn initial_state(samples: &[f64], period: usize, components: EtsComponents) -> EtsState {
    let season = match components.season {
        SeasonKind::None => Vec::new(),
        kind => classical_season(samples, period, kind == SeasonKind::Multiplicative),
    };
    let head = samples.len().min(10.max(2 * period));
    let deseasonalised: Vec<f64> = samples[..head]
        .iter()
        .enumerate()
        .map(|(at, sample)| match components.season {
            SeasonKind::None => *sample,
            SeasonKind::Additive => sample - season[at % period],
            SeasonKind::Multiplicative => sample / season[at % period],
        })
        .collect();
    let line = crate::line::Line::fit(&deseasonalised);
    let (level, trend) = match components.trend {
        TrendKind::None => (crate::sum::mean(&deseasonalised), 0.0),
        _ => (line.at(-1.0), line.slope),
    };
    EtsState { level, trend, season, place: 0 }
}

/// Returns the mean seasons about a centred moving average, of sum 0 or of mean 1.
fn classical_season(samples: &[f64], period: usize, is_multiplicative: bool) -> Vec<f64> {
    let half = period / 2;
    let mut totals = vec![(0.0, 0_u32); period];
    for at in half..samples.len().saturating_sub(half) {
        let window = &samples[at - half..=at + half];
        let sum: f64 = match period % 2 {
            1 => window.iter().sum(),
            _ => window.iter().sum::<f64>() - (window[0] + window[period]) / 2.0,
        };
        let level = sum / period as f64;
        let season = if is_multiplicative { samples[at] / level } else { samples[at] - level };
        let (total, count) = &mut totals[at % period];
        *total += season;
        *count += 1;
    }
    let mut season: Vec<f64> =
        totals.iter().map(|(total, count)| total / f64::from((*count).max(1))).collect();
    let mean = season.iter().sum::<f64>() / period as f64;
    for one in &mut season {
        *one = if is_multiplicative { (*one / mean).max(1e-3) } else { *one - mean };
    }
    season
}
