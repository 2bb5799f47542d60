//! Metrics: one or a few numbers of a set of documents.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::cardinality::Cardinality;
use super::matrix_stats::MatrixStats;
use super::members::ErrorLabel;
use super::percentiles::{PercentileRanks, Percentiles};
use super::source::{AcceptedMembers, ValuesSource};
use super::weighted_avg::WeightedAvg;

/// Compression of the digest of a deviation where the request does not say.
const DEVIATION_COMPRESSION: f64 = 1_000.0;

/// A metric aggregation.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Metric {
    Simple(Simple, ValuesSource),
    /// `sigma` is not negative.
    ExtendedStats {
        source: ValuesSource,
        sigma: f64,
    },
    Cardinality(Cardinality),
    Percentiles(Percentiles),
    PercentileRanks(PercentileRanks),
    MedianAbsoluteDeviation {
        source: ValuesSource,
        compression: f64,
    },
    WeightedAvg(WeightedAvg),
    /// `wrap_longitude` lets bounds overlap the date line.
    GeoBounds {
        source: ValuesSource,
        wrap_longitude: bool,
    },
    MatrixStats(MatrixStats),
}

/// Metrics without options of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Simple {
    Avg,
    Max,
    Min,
    Stats,
    Sum,
    ValueCount,
}

impl Metric {
    /// Returns the field that is read, where it is one.
    pub fn source(&self) -> Option<&ValuesSource> {
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
    pub fn name(&self) -> &'static str {
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

impl Metric {
    /// Parses the metric that `part` names.
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let simple =
            |simple| ValuesSource::parse_only(part, members).map(|source| Self::Simple(simple, source));
        match part.kind {
            "avg" => simple(Simple::Avg),
            "max" => simple(Simple::Max),
            "min" => simple(Simple::Min),
            "stats" => simple(Simple::Stats),
            "sum" => simple(Simple::Sum),
            "value_count" => simple(Simple::ValueCount),
            "extended_stats" => {
                let (source, sigma) = with_number(part, members, "sigma", 2.0)?;
                Ok(Self::ExtendedStats { source, sigma })
            }
            "median_absolute_deviation" => {
                let (source, compression) = with_number(part, members, "compression", DEVIATION_COMPRESSION)?;
                Ok(Self::MedianAbsoluteDeviation { source, compression })
            }
            "cardinality" => Cardinality::parse(part, members).map(Self::Cardinality),
            "percentiles" => Percentiles::parse(part, members).map(Self::Percentiles),
            "percentile_ranks" => PercentileRanks::parse(part, members).map(Self::PercentileRanks),
            "weighted_avg" => WeightedAvg::parse(part, members).map(Self::WeightedAvg),
            "geo_bounds" => geo_bounds(part, members),
            "matrix_stats" => MatrixStats::parse(part, members).map(Self::MatrixStats),
            other => Err(Error::Parsing(format!("Unknown aggregation type [{other}]"))),
        }
    }
}

/// Parses a metric with one number as its option.
fn with_number(
    part: ErrorLabel<'_>,
    members: &Map<String, Value>,
    option: &str,
    default: f64,
) -> Result<(ValuesSource, f64)> {
    let (mut source, mut number) = (ValuesSource::default(), default);
    for (key, value) in members {
        if key == option {
            number = part.double(key, value)?;
            let refused = match option {
                "sigma" => (number < 0.0).then_some("or equal to 0"),
                _ => (number <= 0.0).then_some("0"),
            };
            if let Some(least) = refused {
                let reason =
                    format!("[{option}] must be greater than {least}. Found [{number:?}] in [{}]", part.name);
                return Err(part.refused(key, reason));
            }
        } else if !source.take(part, AcceptedMembers::Format, key, value)? {
            let mut known = AcceptedMembers::Format.known().to_vec();
            known.push(option);
            return Err(part.unknown(key, &known));
        }
    }
    Ok((source.required(part)?, number))
}

fn geo_bounds(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Metric> {
    let (mut source, mut wrap_longitude) = (ValuesSource::default(), true);
    for (key, value) in members {
        match key.as_str() {
            "wrap_longitude" => wrap_longitude = part.boolean(key, value)?,
            _ if source.take(part, AcceptedMembers::Plain, key, value)? => {}
            _ => return Err(part.unknown(key, &["field", "missing", "value_type", "wrap_longitude"])),
        }
    }
    if source.field.is_none() {
        return Err(Error::IllegalArgument("Required [field]".to_owned()));
    }
    Ok(Metric::GeoBounds { source, wrap_longitude })
}
