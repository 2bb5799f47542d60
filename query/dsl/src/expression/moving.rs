//! The functions of `MovingFunctions`: over the values of a window, which leaves out what is not a number.

use millrace_work::error::{Error, Result};

/// A function of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// The greatest value.
    Max,
    /// The least value.
    Min,
    Sum,
    /// The standard deviation from a mean that is given.
    StdDev,
    /// The mean.
    UnweightedAvg,
    /// The mean with weights that grow by one.
    LinearWeightedAvg,
    /// The exponentially weighted mean: alpha.
    Ewma,
    /// Holt's method: alpha, beta.
    Holt,
    /// The method of Holt and Winters: alpha, beta, gamma, period, whether multiplicative.
    HoltWinters,
}

impl Function {
    /// Finds a function.
    pub(super) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "max" => Self::Max,
            "min" => Self::Min,
            "sum" => Self::Sum,
            "stdDev" => Self::StdDev,
            "unweightedAvg" => Self::UnweightedAvg,
            "linearWeightedAvg" => Self::LinearWeightedAvg,
            "ewma" => Self::Ewma,
            "holt" => Self::Holt,
            "holtWinters" => Self::HoltWinters,
            _ => return None,
        })
    }

    /// Returns the number of its arguments, the window included.
    pub(super) fn arguments(self) -> usize {
        match self {
            Self::Max | Self::Min | Self::Sum | Self::UnweightedAvg | Self::LinearWeightedAvg => 1,
            Self::StdDev | Self::Ewma => 2,
            Self::Holt => 3,
            Self::HoltWinters => 6,
        }
    }

    /// Applies it to a window; NaN where there are no values.
    pub(super) fn apply(self, values: &[f64], arguments: &[f64]) -> Result<f64> {
        let numbers: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        Ok(match (self, arguments) {
            (Self::Max, _) => numbers.iter().copied().reduce(f64::max).unwrap_or(f64::NAN),
            (Self::Min, _) => numbers.iter().copied().reduce(f64::min).unwrap_or(f64::NAN),
            (Self::Sum, _) => numbers.iter().sum(),
            (Self::UnweightedAvg, _) if numbers.is_empty() => f64::NAN,
            (Self::UnweightedAvg, _) => numbers.iter().sum::<f64>() / numbers.len() as f64,
            (Self::StdDev, [mean]) => {
                if mean.is_nan() || numbers.is_empty() {
                    return Ok(f64::NAN);
                }
                let squares: f64 = numbers.iter().map(|value| (value - mean) * (value - mean)).sum();
                (squares / numbers.len() as f64).sqrt()
            }
            (Self::LinearWeightedAvg, _) => {
                let (mut sum, mut weights, mut weight) = (0.0, 1.0, 1.0);
                for value in &numbers {
                    sum += value * weight;
                    weights += weight;
                    weight += 1.0;
                }
                // The sum of weights begins with one, as in OpenSearch.
                if numbers.is_empty() { f64::NAN } else { sum / weights }
            }
            (Self::Ewma, [alpha]) => {
                let smoothed =
                    numbers.iter().copied().reduce(|avg, value| value * alpha + avg * (1.0 - alpha));
                smoothed.unwrap_or(f64::NAN)
            }
            (Self::Holt, [alpha, beta]) => holt(&numbers, *alpha, *beta),
            (Self::HoltWinters, [alpha, beta, gamma, period, multiplicative]) => {
                let period = *period as usize;
                return holt_winters(&numbers, (*alpha, *beta, *gamma), period, *multiplicative != 0.0);
            }
            _ => f64::NAN,
        })
    }
}

/// Holt's double exponential smoothing: the last level.
fn holt(numbers: &[f64], alpha: f64, beta: f64) -> f64 {
    let Some((first, rest)) = numbers.split_first() else { return f64::NAN };
    let (mut level, mut trend) = (*first, 0.0);
    for value in rest {
        let last_level = level;
        level = alpha * value + (1.0 - alpha) * (last_level + trend);
        trend = beta * (level - last_level) + (1.0 - beta) * trend;
    }
    // OpenSearch forecasts no step ahead, so the last trend has no effect.
    level
}

/// Triple exponential smoothing: the next value.
fn holt_winters(
    numbers: &[f64],
    (alpha, beta, gamma): (f64, f64, f64),
    period: usize,
    multiplicative: bool,
) -> Result<f64> {
    if numbers.is_empty() {
        return Ok(f64::NAN);
    }
    if period < 1 || numbers.len() < period.saturating_mul(2) {
        return Err(Error::IllegalArgument(format!(
            "Holt-Winters aggregation requires at least (2 * period == 2 * {period} == {}) data-points to function.  Only [{}] were provided.",
            period.saturating_mul(2),
            numbers.len()
        )));
    }
    // Multiplicative seasons cannot divide by zero.
    let padding = if multiplicative { 0.000_000_000_1 } else { 0.0 };
    let padded: Vec<f64> = numbers.iter().map(|value| value + padding).collect();
    let value = |at: usize| padded.get(at).copied().unwrap_or(f64::NAN);
    // The first level is the mean of the first season. As in OpenSearch, which computes the first trend and does not use it,
    // seasons begin as ratios also where they are added.
    let mut level = (0..period).map(value).sum::<f64>() / period as f64;
    let mut trend = 0.0;
    let mut seasonal: Vec<f64> = (0..padded.len())
        .map(|at| if at < period && level != 0.0 { value(at) / level } else { 0.0 })
        .collect();
    let season = |seasonal: &[f64], at: usize| seasonal.get(at).copied().unwrap_or(f64::NAN);
    for at in period..padded.len() {
        let (last_level, last_trend) = (level, trend);
        let before = season(&seasonal, at - period);
        level = match multiplicative {
            true => alpha * (value(at) / before) + (1.0 - alpha) * (last_level + last_trend),
            false => alpha * (value(at) - before) + (1.0 - alpha) * (last_level + last_trend),
        };
        trend = beta * (level - last_level) + (1.0 - beta) * last_trend;
        let next = match multiplicative {
            true => gamma * (value(at) / (last_level + last_trend)) + (1.0 - gamma) * before,
            false => gamma * (value(at) - (last_level - last_trend)) + (1.0 - gamma) * before,
        };
        if let Some(slot) = seasonal.get_mut(at) {
            *slot = next;
        }
    }
    let ahead = season(&seasonal, padded.len() - period);
    Ok(if multiplicative { (level + trend) * ahead } else { level + trend + ahead })
}
