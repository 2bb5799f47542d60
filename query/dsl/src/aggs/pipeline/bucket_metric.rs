//! `avg_bucket` and its like: a statistic over the buckets of another aggregation.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::super::members::ErrorLabel;
use super::super::percentiles::DEFAULT_PERCENTS;
use super::GapPolicy;
use super::members::Members;
use crate::json::{self, token};

/// A sibling over the buckets of another aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketMetric {
    /// Statistic that is computed.
    pub statistic: Statistic,
    /// The values.
    pub path: String,
    /// Substitute for missing values.
    pub gap_policy: GapPolicy,
    /// Format of results.
    pub format: Option<String>,
}

/// Statistic of a [`BucketMetric`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Statistic {
    Avg,
    Max,
    Min,
    Sum,
    Stats,
    ExtendedStats { sigma: f64 },
    Percentiles { percents: Vec<f64>, keyed: bool },
}

impl BucketMetric {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut shared = Members::default();
        let (mut sigma, mut percents, mut keyed) = (2.0, DEFAULT_PERCENTS.to_vec(), true);
        for (key, value) in members {
            match (part.kind, key.as_str(), value) {
                ("extended_stats_bucket", "sigma", Value::Number(_)) => {
                    sigma = value.as_f64().unwrap_or_default();
                    if sigma < 0.0 {
                        return Err(Error::IllegalArgument("sigma must be a non-negative double".to_owned()));
                    }
                }
                ("percentiles_bucket", "keyed", Value::Bool(flag)) => keyed = *flag,
                ("percentiles_bucket", "percents", Value::Array(items)) => {
                    percents = items
                        .iter()
                        .map(|item| match item {
                            Value::Number(number) => Ok(number.as_f64().unwrap_or(f64::NAN)),
                            Value::String(text) => text.parse().map_err(|_| json::not_a_number(text)),
                            _ => Ok(f64::NAN),
                        })
                        .collect::<Result<_>>()?;
                    if percents.iter().any(|percent| !(0.0..=100.0).contains(percent)) {
                        return Err(Error::IllegalArgument(
                            "percents must only contain non-null doubles from 0.0-100.0 inclusive".to_owned(),
                        ));
                    }
                    if percents.len() > 10_000 {
                        return Err(Error::IllegalArgument("too many [percents]".to_owned()));
                    }
                }
                _ if shared.take(part, key, value)? => {}
                _ => {
                    return Err(Error::Parsing(format!(
                        "Unexpected token {} [{key}] in [{}]",
                        token(value),
                        part.name
                    )));
                }
            }
        }
        let statistic = match part.kind {
            "avg_bucket" => Statistic::Avg,
            "max_bucket" => Statistic::Max,
            "min_bucket" => Statistic::Min,
            "sum_bucket" => Statistic::Sum,
            "stats_bucket" => Statistic::Stats,
            "extended_stats_bucket" => Statistic::ExtendedStats { sigma },
            _ => Statistic::Percentiles { percents, keyed },
        };
        Ok(Self { statistic, path: shared.path(part)?, gap_policy: shared.gap_policy, format: shared.format })
    }
}
