//! `matrix_stats`: moments of several fields and their correlations.

use std::collections::BTreeMap;

/// A `matrix_stats` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MatrixStats {
    /// The fields, in order and each once.
    pub fields: Vec<String>,
    /// What documents without a value are taken to have, by field.
    pub missing: BTreeMap<String, f64>,
    /// Which of several values counts.
    pub mode: MatrixMode,
}

/// Which of several values of a document counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum MatrixMode {
    #[default]
    Avg,
    Min,
    Max,
    Sum,
    Median,
}
