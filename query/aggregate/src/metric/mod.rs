//! Partial states of metrics: one [`Accumulator`] an aggregation, indexed by the ordinal of the bucket.
//!
//! The operator numbers buckets from 0 without gaps, calls [`Accumulator::collect`] with batches of values and the
//! ordinals of the buckets that they belong to, merges the states of segments by [`Accumulator::merge`] with
//! a map from the other's ordinals to its own, and at the end takes the result of each bucket by
//! [`Accumulator::reduce`]. [`collector`] takes the values from columns. States grow as ordinals appear; a bucket without values has the result that OpenSearch gives for none.

mod cardinality;
pub(super) mod collector;
mod extremes;
mod geo_bounds;
mod hash;
mod hdr;
mod matrix_stats;
mod moments;
mod percentiles;
mod sum;
mod tdigest;

use millrace_dsl::aggs::{self, Simple};
use millrace_work::QueryContext;
use millrace_work::error::Result;

use crate::result;

pub(crate) use hash::{hash_bytes, hash_double, hash_long};

/// Input of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// [`Values::Numbers`].
    Numbers,
    /// [`Values::Count`]: only how many values there are matters.
    Count,
    /// [`Values::Hashes`].
    Hashes,
    /// [`Values::Weighted`].
    Weighted,
    /// [`Values::Points`].
    Points,
    /// [`Values::Rows`], with one number a field of `matrix_stats`.
    Rows(usize),
}

/// Values of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    /// Numbers: dates as milliseconds, booleans as 0 and 1.
    Numbers(&'a [f64]),
    /// So many values of any type. With [`Ordinals::Each`] as many as there are ordinals.
    Count(usize),
    /// Hashes of values by [`hash_long`], [`hash_double`] or [`hash_bytes`].
    Hashes(&'a [u64]),
    /// Values and their weights, of the same length.
    Weighted {
        /// The values.
        values: &'a [f64],
        /// Their weights.
        weights: &'a [f64],
    },
    /// Points in degrees, of the same length.
    Points {
        /// Latitudes.
        lat: &'a [f64],
        /// Longitudes.
        lon: &'a [f64],
    },
    /// Rows one after the other, a number for each field.
    Rows(&'a [f64]),
}

/// The buckets that the values of a batch belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ordinals<'a> {
    /// All to one.
    One(u32),
    /// Each to its own: as many as there are values (rows).
    Each(&'a [u32]),
}

/// Ordinal that [`Accumulator::merge`] gives to dropped buckets.
pub(crate) const DROPPED: u32 = u32::MAX;

/// Returns the number here of a bucket of another part, as a map of [`Accumulator::merge`] has it, unless it is dropped.
#[inline]
pub(crate) fn moved(map: Option<&[u32]>, ordinal: u32) -> Option<u32> {
    let Some(map) = map else { return Some(ordinal) };
    map.get(ordinal as usize).copied().filter(|own| *own != DROPPED)
}

/// Partial states of one metric, by ordinal.
#[derive(Debug)]
pub(crate) enum Accumulator {
    /// `sum`, `avg`.
    Sum(sum::Sums, SumOf),
    /// `value_count`.
    Count(Vec<u64>),
    /// `min`, `max`.
    Extreme(extremes::MinMaxState),
    /// `stats`, `extended_stats`.
    Moments(moments::MomentState),
    /// `cardinality`.
    Cardinality(cardinality::Cardinality),
    /// `percentiles`, `percentile_ranks`, `median_absolute_deviation`.
    Percentiles(percentiles::Percentiles),
    /// `weighted_avg`.
    Weighted(sum::WeightedSums),
    /// `geo_bounds`.
    GeoBounds(geo_bounds::GeoBounds),
    /// `matrix_stats`.
    Matrix(matrix_stats::Matrix),
}

/// Result that a sum makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumOf {
    Sum,
    /// The mean.
    Avg,
}

impl Accumulator {
    /// Returns the input of a metric.
    pub(crate) fn input(metric: &aggs::Metric) -> Input {
        match metric {
            aggs::Metric::Simple(Simple::ValueCount, _) => Input::Count,
            aggs::Metric::Cardinality(_) => Input::Hashes,
            aggs::Metric::WeightedAvg(_) => Input::Weighted,
            aggs::Metric::GeoBounds { .. } => Input::Points,
            aggs::Metric::MatrixStats(matrix) => Input::Rows(matrix.fields.len()),
            _ => Input::Numbers,
        }
    }

    /// Makes the empty state of a metric. `top` says that there is one bucket only, which may use more memory.
    pub(crate) fn new(metric: &aggs::Metric, top: bool) -> Self {
        match metric {
            aggs::Metric::Simple(Simple::Sum, _) => Self::Sum(sum::Sums::default(), SumOf::Sum),
            aggs::Metric::Simple(Simple::Avg, _) => Self::Sum(sum::Sums::default(), SumOf::Avg),
            aggs::Metric::Simple(Simple::ValueCount, _) => Self::Count(Vec::new()),
            aggs::Metric::Simple(Simple::Min, _) => Self::Extreme(extremes::MinMaxState::least()),
            aggs::Metric::Simple(Simple::Max, _) => Self::Extreme(extremes::MinMaxState::greatest()),
            aggs::Metric::Simple(Simple::Stats, _) => Self::Moments(moments::MomentState::new(None)),
            aggs::Metric::ExtendedStats { sigma, .. } => {
                Self::Moments(moments::MomentState::new(Some(*sigma)))
            }
            aggs::Metric::Cardinality(options) => {
                Self::Cardinality(cardinality::Cardinality::new(options.precision_threshold, top))
            }
            aggs::Metric::Percentiles(options) => Self::Percentiles(percentiles::Percentiles::at(options)),
            aggs::Metric::PercentileRanks(options) => {
                Self::Percentiles(percentiles::Percentiles::ranks(options))
            }
            aggs::Metric::MedianAbsoluteDeviation { compression, .. } => {
                Self::Percentiles(percentiles::Percentiles::deviation(*compression))
            }
            aggs::Metric::WeightedAvg(_) => Self::Weighted(sum::WeightedSums::default()),
            aggs::Metric::GeoBounds { wrap_longitude, .. } => {
                Self::GeoBounds(geo_bounds::GeoBounds::new(*wrap_longitude))
            }
            aggs::Metric::MatrixStats(options) => Self::Matrix(matrix_stats::Matrix::new(&options.fields)),
        }
    }

    /// Adds a batch. Values that do not fit [`Self::input`] are not counted.
    ///
    /// # Errors
    /// Values that the metric refuses, such as negative ones where percentiles are by HDR.
    pub(crate) fn collect(&mut self, ordinals: Ordinals<'_>, values: Values<'_>) -> Result<()> {
        match (self, values) {
            (Self::Sum(sums, _), Values::Numbers(numbers)) => sums.collect(ordinals, numbers),
            (Self::Count(counts), Values::Count(number)) => sum::count(counts, ordinals, number),
            (Self::Extreme(extremes), Values::Numbers(numbers)) => extremes.collect(ordinals, numbers),
            (Self::Moments(moments), Values::Numbers(numbers)) => moments.collect(ordinals, numbers),
            (Self::Cardinality(cardinality), Values::Hashes(hashes)) => cardinality.collect(ordinals, hashes),
            (Self::Percentiles(percentiles), Values::Numbers(numbers)) => {
                percentiles.collect(ordinals, numbers)?;
            }
            (Self::Weighted(sums), Values::Weighted { values, weights }) => {
                sums.collect(ordinals, values, weights);
            }
            (Self::GeoBounds(bounds), Values::Points { lat, lon }) => bounds.collect(ordinals, lat, lon),
            (Self::Matrix(matrix), Values::Rows(rows)) => matrix.collect(ordinals, rows),
            (state, values) => debug_assert!(false, "{state:?} is not fed with {values:?}"),
        }
        Ok(())
    }

    /// Adds another state of the same metric: `map` has, for each of the other's ordinals, its ordinal here or [`DROPPED`];
    /// without a map they are the same. Large states are merged one by one, for as long as somebody waits for the work.
    ///
    /// # Errors
    /// [`Error::TimedOut`](millrace_work::error::Error::TimedOut).
    pub(crate) fn merge(&mut self, other: Self, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        match (self, other) {
            (Self::Sum(sums, _), Self::Sum(others, _)) => sums.merge(&others, map),
            (Self::Count(counts), Self::Count(others)) => {
                for (at, count) in mapped(&others, map) {
                    *slot(counts, at, 0) += count;
                }
            }
            (Self::Extreme(extremes), Self::Extreme(others)) => extremes.merge(&others, map),
            (Self::Moments(moments), Self::Moments(others)) => moments.merge(&others, map),
            (Self::Cardinality(cardinality), Self::Cardinality(others)) => {
                cardinality.merge(others, map, work)?;
            }
            (Self::Percentiles(percentiles), Self::Percentiles(others)) => {
                percentiles.merge(others, map, work)?;
            }
            (Self::Weighted(sums), Self::Weighted(others)) => sums.merge(&others, map),
            (Self::GeoBounds(bounds), Self::GeoBounds(others)) => bounds.merge(&others, map),
            (Self::Matrix(matrix), Self::Matrix(others)) => matrix.merge(&others, map),
            (state, other) => debug_assert!(false, "{state:?} does not merge {other:?}"),
        }
        Ok(())
    }

    /// Ends a shard, where what it has is kept apart.
    pub(crate) fn end_shard(&mut self) {
        if let Self::Matrix(matrix) = self {
            matrix.end_shard();
        }
    }

    /// Makes the result of a bucket; of one that was never seen, that of no values.
    pub(crate) fn reduce(&mut self, ordinal: u32) -> result::Metric {
        let at = ordinal as usize;
        match self {
            Self::Sum(sums, SumOf::Sum) => result::Metric::Sum(sums.sum(at)),
            Self::Sum(sums, SumOf::Avg) => result::Metric::Avg { sum: sums.sum(at), count: sums.count(at) },
            Self::Count(counts) => result::Metric::ValueCount(counts.get(at).copied().unwrap_or(0)),
            Self::Extreme(extremes) => extremes.reduce(at),
            Self::Moments(moments) => moments.reduce(at),
            Self::Cardinality(cardinality) => result::Metric::Cardinality(cardinality.count(at)),
            Self::Percentiles(percentiles) => percentiles.reduce(at),
            Self::Weighted(sums) => sums.reduce(at),
            Self::GeoBounds(bounds) => bounds.reduce(at),
            Self::Matrix(matrix) => matrix.reduce(at),
        }
    }

    /// Returns about how many bytes the states take.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Sum(sums, _) => sums.memory(),
            Self::Count(counts) => counts.capacity() * size_of::<u64>(),
            Self::Extreme(extremes) => extremes.memory(),
            Self::Moments(moments) => moments.memory(),
            Self::Cardinality(cardinality) => cardinality.memory(),
            Self::Percentiles(percentiles) => percentiles.memory(),
            Self::Weighted(sums) => sums.memory(),
            Self::GeoBounds(bounds) => bounds.memory(),
            Self::Matrix(matrix) => matrix.memory(),
        }
    }
}

/// Finds the state of an ordinal, made where it is new.
fn slot<T: Clone>(states: &mut Vec<T>, ordinal: u32, empty: T) -> &mut T {
    let at = ordinal as usize;
    if at >= states.len() {
        states.resize(at + 1, empty);
    }
    &mut states[at]
}

/// Grows states so that all ordinals of a batch have one.
fn grow<T: Clone>(states: &mut Vec<T>, ordinals: Ordinals<'_>, empty: T) {
    let greatest = match ordinals {
        Ordinals::One(ordinal) => Some(ordinal),
        Ordinals::Each(ordinals) => ordinals.iter().copied().max(),
    };
    if let Some(greatest) = greatest
        && greatest as usize >= states.len()
    {
        states.resize(greatest as usize + 1, empty);
    }
}

/// Iterates over another's states with the ordinals that they have here.
fn mapped<'a, T>(others: &'a [T], map: Option<&'a [u32]>) -> impl Iterator<Item = (u32, &'a T)> {
    (0..).zip(others).filter_map(move |(at, other)| Some((moved(map, at)?, other)))
}

#[cfg(test)]
mod tests;
