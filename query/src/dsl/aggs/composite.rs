//! `composite`: pages over all combinations of values of several sources.

use serde_json::Value;

use super::interval::Interval;
use super::source::ValuesSource;

/// A `composite` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Composite {
    /// The sources, outermost of the order first.
    pub sources: Vec<CompositeSource>,
    /// Most buckets, 10 by default.
    pub size: usize,
    /// Key after which buckets begin: a value for each source in their order, scalars as the `after_key` showed them.
    pub after: Option<Vec<Value>>,
}

/// One source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompositeSource {
    /// Name in keys.
    pub name: String,
    /// What is read.
    pub source: ValuesSource,
    /// How values become keys.
    pub kind: CompositeKind,
    /// Whether less comes first.
    pub ascending: bool,
    /// Whether documents without a value have the key null.
    pub missing_bucket: bool,
    /// Where null stands.
    pub missing_order: MissingOrder,
}

/// How values become keys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CompositeKind {
    /// As they are.
    Terms,
    /// Rounded down to multiples of a width.
    Histogram {
        /// The width, greater than 0.
        interval: f64,
    },
    /// Rounded down to an interval of time in the source's zone.
    DateHistogram {
        /// The interval.
        interval: Interval,
        /// Milliseconds added to every boundary.
        offset_ms: i64,
    },
}

/// Where null stands among keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MissingOrder {
    /// First when ascending, last when descending.
    #[default]
    Default,
    /// Before all others.
    First,
    /// Behind all others.
    Last,
}
