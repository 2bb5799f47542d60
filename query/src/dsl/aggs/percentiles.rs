//! `percentiles` and `percentile_ranks`.

use super::source::ValuesSource;

/// A `percentiles` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Percentiles {
    /// What is read.
    pub source: ValuesSource,
    /// The percents, in the order in which they are shown.
    pub percents: Vec<f64>,
    /// Whether values are members of an object.
    pub keyed: bool,
    /// How they are computed.
    pub method: PercentileMethod,
}

/// A `percentile_ranks` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PercentileRanks {
    /// What is read.
    pub source: ValuesSource,
    /// The values whose ranks are wanted, in the order in which they are shown.
    pub values: Vec<f64>,
    /// Whether ranks are members of an object.
    pub keyed: bool,
    /// How they are computed.
    pub method: PercentileMethod,
}

/// How percentiles are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum PercentileMethod {
    TDigest { compression: f64 },
    Hdr { significant_digits: u8 },
}
