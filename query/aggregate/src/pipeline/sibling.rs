//! Sibling pipelines: statistics over the buckets of another aggregation.

use millrace_dsl::aggs::{BucketMetric, Path, Statistic};
use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::resolve::ValuePath;
use crate::result::{Bucket, ExtendedStats, Metric, Outcome, PercentileMethod, Percentiles, Results, Stats};

/// Computes a statistic over the buckets that its path names. The keys that it shows are held by the work.
pub(super) fn compute(metric: &BucketMetric, results: &Results, work: &QueryContext) -> Result<Metric> {
    let first = Path::parse(&metric.path)?.0.into_iter().next();
    let mut values: Vec<f64> = Vec::new();
    let mut having: Vec<&Bucket> = Vec::new();
    let mut keyed_by = None;
    if let Some(entry) = first.and_then(|first| results.get(&first.name))
        && let Outcome::Buckets(buckets) = &entry.outcome
    {
        keyed_by = Some((buckets, &entry.header.format));
        let path = ValuePath::parse(&metric.path, 1)?;
        for bucket in &buckets.buckets {
            let value = path.value(&entry.header.name, bucket, metric.gap_policy)?;
            if let Some(value) = value.filter(|value| !value.is_nan()) {
                values.push(value);
                having.push(bucket);
            }
        }
    }
    let sum = || values.iter().sum::<f64>();
    let stats = || Stats {
        count: values.len() as u64,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        sum: sum(),
    };
    Ok(match &metric.statistic {
        Statistic::Avg => Metric::Simple(sum() / values.len() as f64),
        Statistic::Sum => Metric::Simple(sum()),
        Statistic::Max | Statistic::Min => {
            let Stats { min, max, .. } = stats();
            let value = if metric.statistic == Statistic::Max { max } else { min };
            let mut keys = Vec::new();
            for (_, bucket) in values.iter().zip(having).filter(|(found, _)| **found == value) {
                let Some((buckets, format)) = keyed_by else { break };
                let key = buckets.key_text(bucket, format);
                work.hold(size_of::<String>() + key.len())?;
                keys.push(key);
            }
            Metric::BucketValue { value, keys: keys.into() }
        }
        Statistic::Stats => Metric::StatsBucket(Box::new(stats())),
        Statistic::ExtendedStats { sigma } => Metric::ExtendedStatsBucket(Box::new(ExtendedStats {
            stats: stats(),
            squares: values.iter().map(|value| value * value).sum(),
            sigma: *sigma,
        })),
        Statistic::Percentiles { percents, keyed } => {
            values.sort_by(f64::total_cmp);
            let last = values.len().saturating_sub(1) as f64;
            let at = |percent: f64| {
                let place = (percent / 100.0 * last + 0.5).floor() as usize;
                values.get(place).copied().unwrap_or(f64::NAN)
            };
            Metric::PercentilesBucket(Box::new(Percentiles {
                method: PercentileMethod::TDigest,
                keyed: *keyed,
                values: percents.iter().map(|percent| (*percent, at(*percent))).collect(),
            }))
        }
    })
}
