//! Pipeline aggregations: computed of the results of others, a file each.
//!
//! [`Pipeline::parse`] knows them by name. What they read is `buckets_path` (`paths`); most have the members of `members`, and those with
//! a script read it by `script`.

mod bucket_expression;
mod bucket_metric;
mod bucket_sort;
mod cumulative_sum;
mod derivative;
mod members;
mod moving_fn;
mod paths;
mod script;
mod serial_diff;

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::members::ErrorLabel;

pub use bucket_expression::BucketExpression;
pub use bucket_metric::{BucketMetric, Statistic};
pub use bucket_sort::BucketSort;
pub use derivative::Derivative;
pub use moving_fn::MovingFn;
pub use serial_diff::SerialDiff;

/// A pipeline aggregation.
#[derive(Clone, Debug)]
pub enum Pipeline {
    /// Siblings: `avg_bucket`, `extended_stats_bucket`, `max_bucket`, `min_bucket`, `percentiles_bucket`, `stats_bucket`, `sum_bucket`.
    BucketMetric(BucketMetric),
    /// Parent of a histogram: `derivative`.
    Derivative(Derivative),
    /// Parent of a histogram: `cumulative_sum`.
    CumulativeSum {
        /// The summed value.
        path: String,
        /// Format of sums.
        format: Option<String>,
    },
    /// Parent of a histogram: `moving_fn`.
    MovingFn(MovingFn),
    /// Parent of a histogram: `serial_diff`.
    SerialDiff(SerialDiff),
    /// Parent: `bucket_sort`.
    BucketSort(BucketSort),
    /// Parent: `bucket_selector`.
    BucketSelector(BucketExpression),
    /// Parent: `bucket_script`.
    BucketScript(BucketExpression),
}

/// Substitute for a bucket without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapPolicy {
    /// Nothing: the bucket is left out.
    #[default]
    Skip,
    /// Zero.
    InsertZeros,
}

impl Pipeline {
    /// Parses the pipeline aggregation that `part` names.
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        match part.kind {
            "derivative" => Derivative::parse(part, members).map(Self::Derivative),
            "cumulative_sum" => cumulative_sum::parse(part, members),
            "moving_fn" => MovingFn::parse(part, members).map(Self::MovingFn),
            "serial_diff" => SerialDiff::parse(part, members).map(Self::SerialDiff),
            "bucket_sort" => BucketSort::parse(part, members).map(Self::BucketSort),
            "bucket_selector" => BucketExpression::parse(part, members).map(Self::BucketSelector),
            "bucket_script" => BucketExpression::parse(part, members).map(Self::BucketScript),
            _ => BucketMetric::parse(part, members).map(Self::BucketMetric),
        }
    }

    /// Lists the paths that are read.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::BucketMetric(BucketMetric { path, .. })
            | Self::Derivative(Derivative { path, .. })
            | Self::CumulativeSum { path, .. }
            | Self::MovingFn(MovingFn { path, .. })
            | Self::SerialDiff(SerialDiff { path, .. }) => vec![path],
            Self::BucketSort(sort) => sort.sort.iter().map(|key| key.path.as_str()).collect(),
            Self::BucketSelector(expression) | Self::BucketScript(expression) => {
                expression.paths.iter().map(|(_, path)| path.as_str()).collect()
            }
        }
    }
}
