//! Pipeline aggregations: computed of the results of others.

use std::sync::Arc;

use crate::aggregate::pipeline::{Expression, MovingScript};

/// A pipeline aggregation.
#[derive(Clone, Debug)]
pub(crate) enum Pipeline {
    /// Siblings: `avg_bucket`, `extended_stats_bucket`, `max_bucket`, `min_bucket`, `percentiles_bucket`, `stats_bucket`, `sum_bucket`.
    BucketMetric(BucketMetric),
    /// Parent of a histogram: `derivative`.
    Derivative(Derivative),
    /// Parent of a histogram: `cumulative_sum`.
    CumulativeSum {
        /// The summed value.
        path: String,
        /// How sums are written.
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

/// What stands for a bucket without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GapPolicy {
    /// Nothing: the bucket is left out.
    #[default]
    Skip,
    /// Zero.
    InsertZeros,
}

/// A sibling over the buckets of another aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BucketMetric {
    /// What is computed.
    pub statistic: Statistic,
    /// The values.
    pub path: String,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
}

/// What a [`BucketMetric`] computes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum Statistic {
    Avg,
    Max,
    Min,
    Sum,
    Stats,
    ExtendedStats { sigma: f64 },
    Percentiles { percents: Vec<f64>, keyed: bool },
}

/// `derivative`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Derivative {
    /// The values.
    pub path: String,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
    /// Milliseconds by which `normalized_value` is per.
    pub unit_ms: Option<f64>,
}

/// `moving_fn`.
#[derive(Clone, Debug)]
pub(crate) struct MovingFn {
    /// The values.
    pub path: String,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
    /// Buckets of the window, at least 1.
    pub window: usize,
    /// Buckets by which the window is moved to the right.
    pub shift: i64,
    /// The function.
    pub script: Arc<MovingScript>,
}

/// `serial_diff`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SerialDiff {
    /// The values.
    pub path: String,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
    /// Buckets back to the value that is subtracted, at least 1.
    pub lag: usize,
}

/// `bucket_sort`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BucketSort {
    /// Keys of the order; the order stays where empty.
    pub sort: Vec<SortPath>,
    /// Buckets left out at the beginning.
    pub from: usize,
    /// Most buckets.
    pub size: Option<usize>,
    /// What becomes of buckets without a value.
    pub gap_policy: GapPolicy,
}

/// One key of [`BucketSort`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SortPath {
    /// The value.
    pub path: String,
    /// Whether greater values come first.
    pub descending: bool,
}

/// `bucket_script` or `bucket_selector`.
#[derive(Clone, Debug)]
pub(crate) struct BucketExpression {
    /// Names of variables and the values that they stand for, ordered by name.
    pub paths: Vec<(String, String)>,
    /// The expression.
    pub expression: Arc<Expression>,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
}
