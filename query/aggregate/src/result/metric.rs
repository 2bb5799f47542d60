//! Results of metrics.

use std::sync::Arc;

/// Result of a metric, or of a pipeline aggregation.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// `avg`; null without values.
    Avg {
        /// Sum of the values.
        sum: f64,
        /// Their number.
        count: u64,
    },
    /// `sum`.
    Sum(f64),
    /// `min`; positive infinity, shown as null, without values.
    Min(f64),
    /// `max`; negative infinity, shown as null, without values.
    Max(f64),
    /// `value_count`.
    ValueCount(u64),
    /// `cardinality`.
    Cardinality(u64),
    /// `stats`.
    Stats(Box<Stats>),
    /// `extended_stats`.
    ExtendedStats(Box<ExtendedStats>),
    /// `percentiles`.
    Percentiles(Box<Percentiles>),
    /// `percentile_ranks`.
    PercentileRanks(Box<Percentiles>),
    /// `median_absolute_deviation`; NaN, shown as null, without values.
    MedianAbsoluteDeviation(f64),
    /// `weighted_avg`; null where weights sum up to 0.
    WeightedAvg {
        /// Sum of the weighted values.
        sum: f64,
        /// Sum of the weights.
        weight: f64,
    },
    /// `geo_bounds`; nothing without points.
    GeoBounds(Option<Box<GeoBox>>),
    /// `matrix_stats`; only `doc_count` without documents.
    MatrixStats(Box<MatrixStats>),
    /// Value of a pipeline aggregation; NaN is null.
    Simple(f64),
    /// `derivative`.
    Derivative {
        /// Difference to the bucket before; NaN is null.
        value: f64,
        /// The difference per unit, where there is a unit.
        normalized: Option<f64>,
    },
    /// `max_bucket` or `min_bucket`.
    BucketValue {
        /// The value; infinite without buckets, shown as null.
        value: f64,
        /// Keys of the buckets that have it.
        keys: Arc<[String]>,
    },
    /// `stats_bucket`.
    StatsBucket(Box<Stats>),
    /// `extended_stats_bucket`.
    ExtendedStatsBucket(Box<ExtendedStats>),
    /// `percentiles_bucket`; NaN is null.
    PercentilesBucket(Box<Percentiles>),
}

/// Count, extremes and sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// Number of values.
    pub count: u64,
    /// Least value; positive infinity without values.
    pub min: f64,
    /// Greatest value; negative infinity without values.
    pub max: f64,
    /// Sum of the values.
    pub sum: f64,
}

/// [`Stats`] with the sum of squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExtendedStats {
    /// The simple ones.
    pub stats: Stats,
    /// Sum of the squared values.
    pub squares: f64,
    /// Deviations that the shown bounds are away from the mean.
    pub sigma: f64,
}

/// Values of percentiles, or ranks of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles {
    /// Method of their computation.
    pub method: PercentileMethod,
    /// `true` if they are members of an object.
    pub keyed: bool,
    /// Percents and their values, or values and their ranks.
    pub values: Vec<(f64, f64)>,
}

/// Method of computing percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PercentileMethod {
    TDigest,
    Hdr,
}

/// The least box around points; `left` is greater than `right` where it crosses the date line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct GeoBox {
    pub top: f64,
    pub left: f64,
    pub bottom: f64,
    pub right: f64,
}

/// Moments of several fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatrixStats {
    /// Number of documents with a value in every field.
    pub doc_count: u64,
    /// The fields in the order in which they are shown.
    pub fields: Vec<MatrixField>,
}

/// Moments of one field.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct MatrixField {
    pub name: Arc<str>,
    pub mean: f64,
    pub variance: f64,
    pub skewness: f64,
    pub kurtosis: f64,
    /// With each field, by its place.
    pub covariance: Vec<f64>,
    /// With each field, by its place.
    pub correlation: Vec<f64>,
}
