//! Values inside results, by the paths of orders and of pipelines.

use millrace_work::error::{Error, Result};

use super::{Bucket, Buckets, Entry, ExtendedStats, Format, Metric, Outcome, Results, Stats};
use crate::result::Key;

/// Property that a path leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Property<'a> {
    Number(f64),
    /// A key that is no number.
    Key,
    /// A result.
    Entry(&'a Entry),
    Bucket,
    /// A value of each bucket.
    Several,
}

impl Results {
    /// Finds what a path leads to; `None` where there is no such aggregation.
    ///
    /// # Errors
    /// A metric that does not have the value.
    pub(crate) fn property(&self, path: &[&str]) -> Result<Option<Property<'_>>> {
        let Some((name, rest)) = path.split_first() else { return Ok(None) };
        match self.get(name) {
            Some(entry) => entry.property(rest),
            None => Ok(None),
        }
    }
}

impl Entry {
    /// Finds what a path below this result leads to.
    ///
    /// # Errors
    /// As [`Results::property`].
    pub(crate) fn property(&self, path: &[&str]) -> Result<Option<Property<'_>>> {
        let Some((first, rest)) = path.split_first() else { return Ok(Some(Property::Entry(self))) };
        match &self.outcome {
            Outcome::Metric(metric) => {
                if !rest.is_empty() {
                    return Err(self.not_supported(path));
                }
                match metric.value(first)? {
                    Some(number) => Ok(Some(Property::Number(number))),
                    None => Err(self.not_supported(path)),
                }
            }
            Outcome::Single(single) => match *first {
                "_count" if rest.is_empty() => Ok(Some(Property::Number(single.doc_count as f64))),
                _ => single.subs.property(path),
            },
            Outcome::Buckets(buckets) => match *first {
                "_bucket_count" => Ok(Some(Property::Number(buckets.buckets.len() as f64))),
                quoted if quoted.len() > 1 && quoted.starts_with('\'') && quoted.ends_with('\'') => {
                    let wanted = quoted.trim_start_matches('\'').trim_end_matches('\'');
                    let found = buckets
                        .buckets
                        .iter()
                        .find(|bucket| buckets.key_text(bucket, &self.header.format) == wanted);
                    found.map_or(Ok(None), |bucket| bucket.property(rest))
                }
                _ => Ok(Some(Property::Several)),
            },
            Outcome::TopHits { .. } => Err(self.not_supported(path)),
        }
    }

    fn not_supported(&self, path: &[&str]) -> Error {
        Error::IllegalArgument(format!(
            "path not supported for [{}]: [{}]",
            self.header.name,
            path.join(", ")
        ))
    }
}

impl Bucket {
    /// Finds what a path below this bucket leads to.
    ///
    /// # Errors
    /// As [`Results::property`].
    pub(crate) fn property(&self, path: &[&str]) -> Result<Option<Property<'_>>> {
        match path {
            [] => Ok(Some(Property::Bucket)),
            ["_count"] => Ok(Some(Property::Number(self.doc_count as f64))),
            ["_key"] => Ok(Some(match &self.key {
                Key::Long(number) => Property::Number(*number as f64),
                Key::Unsigned(number) => Property::Number(*number as f64),
                Key::Double(number) => Property::Number(*number),
                _ => Property::Key,
            })),
            _ => self.subs.property(path),
        }
    }
}

impl Buckets {
    /// Writes a bucket's key as text.
    pub(crate) fn key_text(&self, bucket: &Bucket, format: &Format) -> String {
        match (&self.shape, &bucket.key) {
            (super::BucketsKind::MultiTerms { formats, .. }, Key::List(keys)) => {
                let keys: Vec<String> =
                    keys.iter().zip(formats.iter()).map(|(key, format)| format.key_text(key)).collect();
                keys.join("|")
            }
            (super::BucketsKind::Composite { parts, .. }, Key::List(keys)) => {
                let keys: Vec<String> = keys
                    .iter()
                    .zip(parts.iter())
                    .map(|(key, (name, format))| format!("{name}={}", format.key_text(key)))
                    .collect();
                format!("{{{}}}", keys.join(", "))
            }
            (_, Key::Null) => bucket.range_text(format).unwrap_or_default(),
            (_, key) => format.key_text(key),
        }
    }
}

impl Metric {
    /// The value of a metric that has one; `None` of others.
    pub fn single(&self) -> Option<f64> {
        Some(match self {
            Self::Avg { sum, count } => sum / *count as f64,
            Self::Sum(value) | Self::Min(value) | Self::Max(value) | Self::Simple(value) => *value,
            Self::MedianAbsoluteDeviation(value) => *value,
            Self::ValueCount(count) | Self::Cardinality(count) => *count as f64,
            Self::WeightedAvg { sum, weight } => sum / weight,
            Self::Derivative { value, .. } | Self::BucketValue { value, .. } => *value,
            _ => return None,
        })
    }

    /// Returns whether it has several values, of which a path must choose one.
    pub(crate) fn is_multiple(&self) -> bool {
        matches!(
            self,
            Self::Stats(_)
                | Self::ExtendedStats(_)
                | Self::Percentiles(_)
                | Self::PercentileRanks(_)
                | Self::StatsBucket(_)
                | Self::ExtendedStatsBucket(_)
                | Self::PercentilesBucket(_)
        )
    }

    /// Finds a value by its name: `value`, `avg`, `95`; `None` where the metric has none of that name.
    ///
    /// # Errors
    /// A name that is none of `stats`.
    pub fn value(&self, name: &str) -> Result<Option<f64>> {
        let no_constant = |kind: &str| {
            Error::IllegalArgument(format!(
                "No enum constant org.opensearch.search.aggregations.metrics.{kind}.Metrics.{name}"
            ))
        };
        match self {
            Self::Stats(stats) | Self::StatsBucket(stats) => {
                stats.value(name).map(Some).ok_or_else(|| no_constant("InternalStats"))
            }
            Self::ExtendedStats(stats) | Self::ExtendedStatsBucket(stats) => {
                stats.value(name).map(Some).ok_or_else(|| no_constant("InternalExtendedStats"))
            }
            Self::Percentiles(found) | Self::PercentileRanks(found) | Self::PercentilesBucket(found) => {
                let wanted: f64 =
                    name.parse().map_err(|_| Error::NumberFormat(format!("For input string: \"{name}\"")))?;
                Ok(found.values.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value))
            }
            Self::Derivative { normalized, value } if name == "normalized_value" => {
                Ok(Some(normalized.unwrap_or(*value)))
            }
            Self::GeoBounds(Some(bounds)) => Ok(match name {
                "top" => Some(bounds.top),
                "left" => Some(bounds.left),
                "bottom" => Some(bounds.bottom),
                "right" => Some(bounds.right),
                _ => None,
            }),
            _ if name == "value" => Ok(self.single()),
            _ => Ok(None),
        }
    }
}

impl Stats {
    /// The mean; NaN without values.
    pub(crate) fn avg(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn value(&self, name: &str) -> Option<f64> {
        Some(match name {
            "count" => self.count as f64,
            "min" => self.min,
            "max" => self.max,
            "avg" => self.avg(),
            "sum" => self.sum,
            _ => return None,
        })
    }
}

impl ExtendedStats {
    /// The variance of the values.
    pub(crate) fn variance(&self) -> f64 {
        self.variance_by(self.stats.count as f64)
    }

    /// The variance of what the values are a sample of.
    pub(crate) fn variance_sampling(&self) -> f64 {
        self.variance_by(self.stats.count as f64 - 1.0)
    }

    fn variance_by(&self, divisor: f64) -> f64 {
        let Stats { count, sum, .. } = self.stats;
        let variance = (self.squares - sum * sum / count as f64) / divisor;
        if variance < 0.0 { 0.0 } else { variance }
    }

    /// Bounds around the mean: upper and lower, by a variance.
    pub fn bounds(&self, variance: f64) -> (f64, f64) {
        let away = self.sigma * variance.sqrt();
        (self.stats.avg() + away, self.stats.avg() - away)
    }

    fn value(&self, name: &str) -> Option<f64> {
        let (population, sampling) = (self.variance(), self.variance_sampling());
        Some(match name {
            "sum_of_squares" => self.squares,
            "variance" | "variance_population" => population,
            "variance_sampling" => sampling,
            "std_deviation" | "std_deviation_population" => population.sqrt(),
            "std_deviation_sampling" => sampling.sqrt(),
            "std_upper" | "std_upper_population" => self.bounds(population).0,
            "std_lower" | "std_lower_population" => self.bounds(population).1,
            "std_upper_sampling" => self.bounds(sampling).0,
            "std_lower_sampling" => self.bounds(sampling).1,
            other => return self.stats.value(other),
        })
    }
}
