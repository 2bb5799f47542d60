//! [`IntervalMultiples`]: half-widths of intervals in deviations of the model, measured on the end of the window.
//!
//! A model of the first part of the window forecasts from each origin of the rest. A multiple is a quantile of the absolute errors by the
//! deviations that the model expects (split conformal prediction: Papadopoulos 2002; Lei 2018). Errors of neighbouring horizons count
//! together. Too few origins leave the quantiles of the normal distribution.

use crate::ets::{Ets, FittedEts, LEAST_ETS};
use crate::stl::decompose;

/// Deviations of the normal distribution that 80 and 95 % are within.
pub(crate) const NORMAL: [f64; 2] = [1.281_551_565_544_600_4, 1.959_963_984_540_054];
/// Shares of the errors within the intervals.
const SHARES: [f64; 2] = [0.8, 0.95];
/// Horizon up to which errors are measured.
pub(crate) const MAX_HORIZON: usize = 48;
/// Origins that a measurement needs.
const LEAST_ORIGINS: usize = 10;
/// Origins of a measurement, at most.
const MAX_ORIGINS: usize = 400;
/// Origins behind a decomposition each, at most, and samples of all these decompositions together.
const MAX_DECOMPOSITIONS: usize = 40;
const MAX_DECOMPOSED: usize = 1_000_000;
/// Share of the window that the measured model knows, and the one of a model behind a decomposition.
const KNOWN_SHARE: f64 = 0.5;
const KNOWN_DECOMPOSED: f64 = 0.8;
/// Least multiple, as a share of the normal one.
const LEAST_SHARE: f64 = 0.25;
/// Largest multiple.
const MAX_MULTIPLE: f64 = 1e6;

/// Half-widths of the intervals of 80 and 95 %, in deviations, by horizon.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IntervalMultiples(pub(crate) Vec<[f64; 2]>);

/// Errors of forecasts by horizon, each by the deviation that the model expects.
#[derive(Debug)]
pub(crate) struct ForecastErrors {
    ratios: Vec<Vec<f64>>,
}

impl IntervalMultiples {
    /// Returns the multiples of a step; beyond the measured horizon those of its end.
    pub(crate) fn at(&self, step: usize) -> [f64; 2] {
        self.0.get(step).or(self.0.last()).copied().unwrap_or(NORMAL)
    }

    /// Measures a model of exponential smoothing with the components of another one.
    pub(crate) fn of_ets(model: &Ets, samples: &[f64], period: Option<usize>) -> Self {
        Self::measure_ets(model, samples, period).unwrap_or_default()
    }

    fn measure_ets(model: &Ets, samples: &[f64], period: Option<usize>) -> Option<Self> {
        let known = known_samples(samples.len(), KNOWN_SHARE, period)?;
        let (_, fitted) = FittedEts::fit(&samples[..known], period, model.components)?;
        let mut model = fitted.model;
        let horizon = (samples.len() - known).min(MAX_HORIZON);
        let mut errors = ForecastErrors::new(horizon);
        let stride = (samples.len() - known).div_ceil(MAX_ORIGINS);
        for origin in known..samples.len() {
            if (origin - known) % stride == 0 {
                let means = model.forecast(horizon.min(samples.len() - origin));
                errors.push_all(&means, &model.deviations(&means), &samples[origin..]);
            }
            model.update(samples[origin]);
        }
        errors.multiples()
    }

    /// Measures exponential smoothing behind a decomposition, which is made anew at each origin.
    pub(crate) fn of_decomposition(model: &Ets, samples: &[f64], period: usize) -> Self {
        Self::measure_decomposition(model, samples, period).unwrap_or_default()
    }

    fn measure_decomposition(model: &Ets, samples: &[f64], period: usize) -> Option<Self> {
        let known = known_samples(samples.len(), KNOWN_DECOMPOSED, Some(period))?;
        let most = MAX_DECOMPOSITIONS.min(MAX_DECOMPOSED / samples.len());
        if most < LEAST_ORIGINS {
            return None;
        }
        let (rest, _) = take_season(&samples[..known], period);
        let (_, fitted) = FittedEts::fit(&rest, None, model.components)?;
        let horizon = (samples.len() - known).min(MAX_HORIZON);
        let mut errors = ForecastErrors::new(horizon);
        let stride = (samples.len() - known).div_ceil(most);
        for origin in (known..samples.len()).step_by(stride) {
            let (rest, cycle) = take_season(&samples[..origin], period);
            let model = fitted.behind(&rest)?;
            let levels = model.forecast(horizon.min(samples.len() - origin));
            let deviations = model.deviations(&levels);
            let means: Vec<f64> =
                levels.iter().enumerate().map(|(step, level)| level + cycle[step % period]).collect();
            errors.push_all(&means, &deviations, &samples[origin..]);
        }
        errors.multiples()
    }
}

/// Takes the season out of samples. Returns the rest, and the cycle that follows.
pub(crate) fn take_season(samples: &[f64], period: usize) -> (Vec<f64>, Vec<f64>) {
    let season = decompose(samples, &[period], false).seasons.swap_remove(0);
    let rest = samples.iter().zip(&season).map(|(sample, season)| sample - season).collect();
    (rest, season[season.len() - period..].to_vec())
}

/// Returns the number of samples that the measured model knows; `None` where too few origins are left.
fn known_samples(count: usize, share: f64, period: Option<usize>) -> Option<usize> {
    let needed = LEAST_ETS.max(period.map_or(0, |period| 2 * period + 1));
    let known = ((count as f64 * share) as usize).max(needed);
    (known + LEAST_ORIGINS <= count).then_some(known)
}

impl ForecastErrors {
    pub(crate) fn new(horizon: usize) -> Self {
        Self { ratios: vec![Vec::new(); horizon] }
    }

    /// Takes the forecast of an origin in, and the samples from there on.
    fn push_all(&mut self, means: &[f64], deviations: &[f64], samples: &[f64]) {
        for (step, ((mean, deviation), sample)) in means.iter().zip(deviations).zip(samples).enumerate() {
            self.push(step, sample - mean, *deviation);
        }
    }

    /// Takes the error of a step in.
    pub(crate) fn push(&mut self, step: usize, error: f64, deviation: f64) {
        let ratio = error.abs() / deviation;
        if ratio.is_finite() {
            self.ratios[step].push(ratio);
        }
    }

    /// Returns the multiples; `None` where too few origins are measured.
    pub(crate) fn multiples(&self) -> Option<IntervalMultiples> {
        let measured = self.ratios.iter().take_while(|ratios| ratios.len() >= LEAST_ORIGINS).count();
        if measured == 0 {
            return None;
        }
        let of_step = |step: usize| {
            let near = self.ratios[step.saturating_sub(1)..(step + 2).min(measured)].iter();
            let mut ratios: Vec<f64> = near.flatten().copied().collect();
            ratios.sort_unstable_by(f64::total_cmp);
            let origins = self.ratios[step].len() as f64;
            let quantile = |share: f64| {
                // One more sample than was measured has to be within.
                let share = (share * (1.0 + 1.0 / origins)).min(1.0);
                let place = (share * ratios.len() as f64).ceil() as usize;
                ratios[place.clamp(1, ratios.len()) - 1]
            };
            let bounded = |share: f64, normal: f64| quantile(share).clamp(LEAST_SHARE * normal, MAX_MULTIPLE);
            [bounded(SHARES[0], NORMAL[0]), bounded(SHARES[1], NORMAL[1])]
        };
        Some(IntervalMultiples((0..measured).map(of_step).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::random::Random;

    #[test]
    fn multiples_are_quantiles_of_errors_by_deviations() {
        let mut errors = ForecastErrors::new(2);
        for one in 1..=100 {
            errors.push(0, f64::from(one) * -0.1, 2.0);
            errors.push(1, f64::from(one) * 0.1, 2.0);
        }
        let multiples = errors.multiples().unwrap();
        let [inner, outer] = multiples.at(0);
        assert!((inner - 4.05).abs() < 0.051 && (outer - 4.8).abs() < 0.051, "{multiples:?}");
        assert_eq!(multiples.at(7), multiples.at(1));
        assert_eq!(IntervalMultiples::default().at(3), NORMAL);
        assert!(ForecastErrors::new(3).multiples().is_none());
    }

    #[test]
    fn a_walk_with_heavy_tails_has_wider_intervals_than_a_normal_one() {
        let mut random = Random::new(5);
        let mut level = 100.0;
        let samples: Vec<f64> = (0..300)
            .map(|_| {
                let step = random.uniform() - 0.5;
                level += if random.below(12) == 0 { 12.0 * step } else { step };
                level
            })
            .collect();
        let model = Ets::fit("ets", &samples, None, &AtomicBool::new(false)).unwrap();
        let [inner, outer] = IntervalMultiples::of_ets(&model, &samples, None).at(0);
        assert!(inner < NORMAL[0] && outer > inner, "{inner} {outer}");
        let few = IntervalMultiples::of_ets(&model, &samples[..15], None);
        assert_eq!(few, IntervalMultiples::default());
    }
}
