//! [`FeatureSpace`]: rows as points. Values are scaled, and each feature that misses values has an indicator dimension of its own.

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::{Error, Result};
use crate::points::Points;
use crate::table::FeatureTable;

/// Rows from which medians and quartiles are taken, at most.
const MAX_SCALING_ROWS: usize = 100_000;

/// Scaling of features before distances are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Subtracts the median and divides by the interquartile range; by the standard deviation where that range is 0.
    Robust,
    /// Leaves values as they are.
    None,
}

/// Scaling of one feature.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FeatureScale {
    center: f64,
    scale: f64,
    /// Median in scaled units, which stands in for a missing value.
    substitute: f64,
    /// Dimension of the indicator of missing values, where training rows miss some.
    indicator: Option<u16>,
}

/// Map from rows to points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FeatureSpace {
    scales: Vec<FeatureScale>,
    dimensions: usize,
}

impl FeatureSpace {
    /// Measures the features of a table.
    ///
    /// # Errors
    /// [`Error::AllMissing`], [`Error::Constant`] where no feature varies.
    pub(crate) fn fit(table: &FeatureTable, scaling: Scaling) -> Result<Self> {
        let features = table.features();
        let sample = table.spaced_rows(MAX_SCALING_ROWS);
        let mut dimensions = features;
        let mut varies = false;
        let mut all_missing = None;
        let mut scales = Vec::with_capacity(features);
        for feature in 0..features {
            let column = table.column(feature);
            let present = column.iter().filter(|value| !value.is_nan());
            let (mut count, mut min, mut max) = (0_usize, f64::INFINITY, f64::NEG_INFINITY);
            for value in present {
                count += 1;
                min = min.min(*value);
                max = max.max(*value);
            }
            if count == 0 {
                all_missing = all_missing.or(Some(feature));
                continue;
            }
            let has_missing = count < column.len();
            varies |= has_missing || min < max;
            let mut sorted: Vec<f64> =
                sample.iter().map(|row| column[*row]).filter(|one| !one.is_nan()).collect();
            if sorted.is_empty() {
                sorted.extend(column.iter().find(|value| !value.is_nan()));
            }
            sorted.sort_unstable_by(f64::total_cmp);
            let median = quantile(&sorted, 0.5);
            let (center, scale) = match scaling {
                Scaling::Robust => (median, spread(&sorted)),
                Scaling::None => (0.0, 1.0),
            };
            let indicator = has_missing.then_some(dimensions as u16);
            dimensions += usize::from(has_missing);
            scales.push(FeatureScale { center, scale, substitute: (median - center) / scale, indicator });
        }
        if scales.is_empty() {
            return Err(Error::AllMissing { feature: None });
        }
        if all_missing.is_some() {
            return Err(Error::AllMissing { feature: all_missing });
        }
        if !varies {
            return Err(Error::Constant);
        }
        Ok(Self { scales, dimensions })
    }

    pub(crate) fn features(&self) -> usize {
        self.scales.len()
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Writes the point of a row. Differences beyond the range of numbers are cut to it.
    pub(crate) fn point(&self, row: &[f64], point: &mut Vec<f64>) {
        point.clear();
        point.resize(self.dimensions, 0.0);
        for (feature, (scale, value)) in self.scales.iter().zip(row).enumerate() {
            point[feature] = match value.is_nan() {
                true => scale.substitute,
                false => ((value - scale.center) / scale.scale).clamp(-1e150, 1e150),
            };
            if let Some(indicator) = scale.indicator {
                point[usize::from(indicator)] = f64::from(u8::from(value.is_nan()));
            }
        }
    }

    /// Returns the points of rows.
    pub(crate) fn points(&self, table: &FeatureTable, rows: &[usize]) -> Points {
        let mut columns = vec![Vec::with_capacity(rows.len()); self.dimensions];
        let (mut row, mut point) = (vec![0.0; self.features()], Vec::new());
        for number in rows {
            for (feature, value) in row.iter_mut().enumerate() {
                *value = table.value(*number, feature);
            }
            self.point(&row, &mut point);
            for (column, value) in columns.iter_mut().zip(&point) {
                column.push(*value);
            }
        }
        Points::new(columns)
    }

    /// Returns the features that a row misses and no training row did.
    pub(crate) fn unseen_missing<'a>(&'a self, row: &'a [f64]) -> impl Iterator<Item = usize> + 'a {
        let pairs = self.scales.iter().zip(row).enumerate();
        pairs
            .filter(|(_, (scale, value))| value.is_nan() && scale.indicator.is_none())
            .map(|(feature, _)| feature)
    }

    /// Adds the shares of dimensions up by feature, and makes their sum 1; all are 0 where none is positive.
    pub(crate) fn contributions(&self, of_dimensions: &[f64]) -> Vec<f64> {
        let share = |dimension: usize| of_dimensions.get(dimension).copied().unwrap_or_default().max(0.0);
        let own = self.scales.iter().enumerate().map(|(feature, scale)| {
            share(feature) + scale.indicator.map_or(0.0, |indicator| share(usize::from(indicator)))
        });
        let mut shares: Vec<f64> = own.collect();
        let total: f64 = shares.iter().sum();
        if total > 0.0 && total.is_finite() {
            shares.iter_mut().for_each(|share| *share /= total);
        } else {
            let largest = shares.iter().copied().fold(0.0, f64::max);
            shares
                .iter_mut()
                .for_each(|share| *share = if largest > 0.0 { *share / largest / 2.0 } else { 0.0 });
        }
        shares
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.count(self.scales.len());
        for scale in &self.scales {
            out.f64(scale.center);
            out.f64(scale.scale);
            out.f64(scale.substitute);
            out.u8(scale.indicator.is_some().into());
        }
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>) -> Result<Self> {
        let features = from.count(crate::MAX_FEATURES, 25)?;
        if features == 0 {
            return Err(corrupt("it has no features"));
        }
        let mut dimensions = features;
        let mut scales = Vec::with_capacity(features);
        for _ in 0..features {
            let (center, scale, substitute) = (from.finite()?, from.finite()?, from.finite()?);
            if scale <= 0.0 {
                return Err(corrupt("a scale is not positive"));
            }
            let has_missing = from.u8()? == 1;
            let indicator = has_missing.then_some(dimensions as u16);
            dimensions += usize::from(has_missing);
            scales.push(FeatureScale { center, scale, substitute, indicator });
        }
        Ok(Self { scales, dimensions })
    }
}

/// Returns the interquartile range of sorted values, else their standard deviation, else 1.
fn spread(sorted: &[f64]) -> f64 {
    let range = quantile(sorted, 0.75) - quantile(sorted, 0.25);
    if range > 0.0 && range.is_finite() {
        return range;
    }
    let count = sorted.len() as f64;
    let mean = sorted.iter().map(|value| value / count).sum::<f64>();
    let variance = sorted.iter().map(|value| (value - mean) * ((value - mean) / count)).sum::<f64>();
    let deviation = variance.sqrt();
    if deviation > 0.0 && deviation.is_finite() { deviation } else { 1.0 }
}

/// Returns a quantile of sorted values with linear interpolation (type 7 of Hyndman and Fan 1996).
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = share * last as f64;
    let lower = place as usize;
    let weight = place - lower as f64;
    sorted[lower] * (1.0 - weight) + sorted[(lower + 1).min(last)] * weight
}
