//! Metrics: one or a few numbers of a set of documents.

use super::cardinality::Cardinality;
use super::matrix_stats::MatrixStats;
use super::percentiles::{PercentileMethod, PercentileRanks, Percentiles};
use super::source::ValuesSource;
use super::weighted_avg::WeightedAvg;

/// A metric aggregation.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum Metric {
    Simple(Simple, ValuesSource),
    /// `sigma` is not negative.
    ExtendedStats { source: ValuesSource, sigma: f64 },
    Cardinality(Cardinality),
    Percentiles(Percentiles),
    PercentileRanks(PercentileRanks),
    MedianAbsoluteDeviation { source: ValuesSource, compression: f64 },
    WeightedAvg(WeightedAvg),
    /// `wrap_longitude` lets bounds overlap the date line.
    GeoBounds { source: ValuesSource, wrap_longitude: bool },
    MatrixStats(MatrixStats),
}

/// Metrics without options of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Simple {
    Avg,
    Max,
    Min,
    Stats,
    Sum,
    ValueCount,
}

impl Metric {
    /// Returns what is read, where that is one field.
    pub(crate) fn source(&self) -> Option<&ValuesSource> {
        match self {
            Self::Simple(_, source)
            | Self::ExtendedStats { source, .. }
            | Self::MedianAbsoluteDeviation { source, .. }
            | Self::GeoBounds { source, .. } => Some(source),
            Self::Cardinality(cardinality) => Some(&cardinality.source),
            Self::Percentiles(percentiles) => Some(&percentiles.source),
            Self::PercentileRanks(ranks) => Some(&ranks.source),
            Self::WeightedAvg(_) | Self::MatrixStats(_) => None,
        }
    }

    /// Returns the name of the aggregation in requests.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Simple(Simple::Avg, _) => "avg",
            Self::Simple(Simple::Max, _) => "max",
            Self::Simple(Simple::Min, _) => "min",
            Self::Simple(Simple::Stats, _) => "stats",
            Self::Simple(Simple::Sum, _) => "sum",
            Self::Simple(Simple::ValueCount, _) => "value_count",
            Self::ExtendedStats { .. } => "extended_stats",
            Self::Cardinality(_) => "cardinality",
            Self::Percentiles(_) => "percentiles",
            Self::PercentileRanks(_) => "percentile_ranks",
            Self::MedianAbsoluteDeviation { .. } => "median_absolute_deviation",
            Self::WeightedAvg(_) => "weighted_avg",
            Self::GeoBounds { .. } => "geo_bounds",
            Self::MatrixStats(_) => "matrix_stats",
        }
    }
}
