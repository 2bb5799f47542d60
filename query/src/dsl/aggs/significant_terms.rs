//! `significant_terms`: values that are more frequent among the matching documents than elsewhere.

use std::sync::Arc;

use super::include::IncludeExclude;
use super::source::ValuesSource;
use super::terms::Thresholds;
use crate::dsl::query::Query;

/// A `significant_terms` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SignificantTerms {
    /// What is read.
    pub source: ValuesSource,
    /// Which terms make buckets.
    pub include: IncludeExclude,
    /// How many buckets there are, and with how many documents.
    pub thresholds: Thresholds,
    /// How terms are scored.
    pub heuristic: Heuristic,
    /// What the background is; all documents where absent.
    pub background_filter: Option<Arc<Query>>,
}

/// How much more frequent a term is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub(crate) enum Heuristic {
    Jlh,
    MutualInformation { include_negatives: bool, background_is_superset: bool },
    ChiSquare { include_negatives: bool, background_is_superset: bool },
    Gnd { background_is_superset: bool },
    Percentage,
}
