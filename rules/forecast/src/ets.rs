//! Exponential smoothing in state space form (Hyndman, Koehler, Ord, Snyder 2008): error, trend, season.
//!
//! Errors are additive or multiplicative, trends absent, additive or damped, seasons absent, additive or multiplicative; multiplicative
//! components need positive samples, and a multiplicative season a multiplicative error. Parameters and the first level and
//! trend maximise the likelihood. The first seasons come from a classical decomposition; up to 24 of them are searched too. The model of the
//! least AICc is chosen.

use crate::error::{Error, Result};
use crate::simplex::minimize;

/// Longest season of a model.
pub(crate) const MAX_ETS_SEASON: usize = 400;
/// Longest season whose first states are searched.
const MAX_SEARCHED_SEASON: usize = 12;
/// Latest samples that parameters are fitted to, at most.
const MAX_FITTED: usize = 4_000;
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

impl EtsParameters {
    /// Returns whether parameters are within the usual bounds.
    fn are_usual(&self, components: EtsComponents) -> bool {
        let within = |value: f64, from: f64, to: f64| value >= from && value <= to;
        let Self { alpha, beta, gamma, phi } = *self;
        within(alpha, 1e-4, 0.9999)
            && (components.trend == TrendKind::None || within(beta, 1e-4, alpha))
            && (components.season == SeasonKind::None || within(gamma, 1e-4, 1.0 - alpha))
            && (components.trend != TrendKind::Damped || within(phi, 0.8, 0.98))
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
    pub(crate) fn fit(algorithm: &'static str, samples: &[f64], period: Option<usize>) -> Result<Self> {
        let needed = LEAST_ETS.max(period.map_or(0, |period| 2 * period + 1));
        if samples.len() < needed {
            return Err(Error::TooFew { algorithm, needed, there: samples.len() });
        }
        if let Some(there) = period.filter(|period| *period > MAX_ETS_SEASON) {
            let what = "the seasonality of ets (mstl_ets takes longer ones)";
            return Err(Error::TooMany { what, limit: MAX_ETS_SEASON, there });
        }
        let longest = MAX_FITTED.max(period.map_or(0, |period| 10 * period));
        let samples = &samples[samples.len().saturating_sub(longest)..];
        let scale = samples.iter().fold(0.0, |largest: f64, one| largest.max(one.abs()));
        let first = samples[0];
        if samples.iter().all(|sample| *sample == first) {
            return Ok(Self::constant(first));
        }
        let is_positive = samples.iter().all(|sample| *sample > scale * 1e-6);
        let mut best: Option<(f64, Self)> = None;
        for components in EtsComponents::candidates(period, is_positive) {
            let fitted = Self::fit_components(samples, period.unwrap_or(1), components, scale);
            if let Some((criterion, model)) = fitted
                && best.as_ref().is_none_or(|(least, _)| criterion < *least)
            {
                best = Some((criterion, model));
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

    /// Fits one model; returns its AICc.
    fn fit_components(
        samples: &[f64],
        period: usize,
        components: EtsComponents,
        scale: f64,
    ) -> Option<(f64, Self)> {
        let initial = initial_state(samples, period, components);
        let (has_trend, has_season) =
            (components.trend != TrendKind::None, components.season != SeasonKind::None);
        let searched_seasons = if has_season && period <= MAX_SEARCHED_SEASON { period - 1 } else { 0 };
        let season_scale = if components.season == SeasonKind::Multiplicative { 1.0 } else { scale };
        let unpack = |point: &[f64]| {
            let mut point = point.iter().copied();
            let mut next = || point.next().unwrap_or_default();
            let alpha = next();
            let beta = if has_trend { next() * alpha } else { 0.0 };
            let gamma = if has_season { next() * (1.0 - alpha) } else { 0.0 };
            let phi = if components.trend == TrendKind::Damped { next() } else { 1.0 };
            let mut state = initial.clone();
            state.level = next() * scale;
            if has_trend {
                state.trend = next() * scale;
            }
            for season in 0..searched_seasons {
                state.season[season] = next() * season_scale;
            }
            if searched_seasons > 0 {
                // The last one keeps the sum of a cycle.
                let sum: f64 = state.season[..period - 1].iter().sum();
                let whole = if components.season == SeasonKind::Multiplicative { period as f64 } else { 0.0 };
                state.season[period - 1] = whole - sum;
            }
            (EtsParameters { alpha, beta, gamma, phi }, state)
        };
        let evaluate = |point: &[f64]| {
            let (parameters, state) = unpack(point);
            match parameters.are_usual(components) {
                true => {
                    likelihood(samples, components, &parameters, state).map_or(f64::INFINITY, |one| one.value)
                }
                false => f64::INFINITY,
            }
        };
        let mut best: Option<(Vec<f64>, f64)> = None;
        for alpha in [0.1, 0.5] {
            let mut start = vec![alpha];
            start.extend(has_trend.then_some(0.1));
            start.extend(has_season.then_some(0.05));
            start.extend((components.trend == TrendKind::Damped).then_some(0.95));
            let mut steps: Vec<f64> = start.iter().map(|one| if *one > 0.9 { -0.03 } else { 0.1 }).collect();
            let level_step = (samples[0] - initial.level).abs().max(scale * 0.02) / scale;
            start.push(initial.level / scale);
            steps.push(level_step);
            if has_trend {
                start.push(initial.trend / scale);
                steps.push((initial.trend / scale).abs().max(1e-3) * 0.5);
            }
            for season in &initial.season[..searched_seasons] {
                start.push(season / season_scale);
                steps.push(0.02);
            }
            // Each evaluation is a pass over the window, so that long windows get fewer.
            let evaluations = start.len() * (300_000 / samples.len()).clamp(60, 300);
            let mut found = minimize(&start, &steps, evaluations, evaluate);
            // A simplex may collapse before the minimum: it starts once more from where it ended.
            let smaller: Vec<f64> = steps.iter().map(|step| step * 0.3).collect();
            found = minimize(&found.0, &smaller, evaluations, evaluate);
            if best.as_ref().is_none_or(|(_, least)| found.1 < *least) {
                best = Some(found);
            }
        }
        let (point, _) = best?;
        let (parameters, state) = unpack(&point);
        let Likelihood { value, sigma, state } = likelihood(samples, components, &parameters, state)?;
        let count = samples.len() as f64;
        let states = 1 + usize::from(has_trend) + if has_season { period - 1 } else { 0 };
        let smoothing = 2
            + usize::from(has_trend)
            + usize::from(has_season)
            + usize::from(components.trend == TrendKind::Damped);
        let free = (states + smoothing) as f64;
        let correction = if count - free - 1.0 > 0.0 {
            2.0 * free * (free + 1.0) / (count - free - 1.0)
        } else {
            f64::INFINITY
        };
        let criterion = value + 2.0 * free + correction;
        let sigma = sigma * (count / (count - free).max(count / 4.0)).sqrt();
        criterion.is_finite().then_some((criterion, Self { components, parameters, state, sigma }))
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

    /// Returns standard deviations of the samples that follow, of a model with additive components.
    pub(crate) fn deviations(&self, steps: usize) -> Vec<f64> {
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
