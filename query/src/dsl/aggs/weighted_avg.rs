//! `weighted_avg`: the mean of a field's values, each weighted by another field's.

use serde_json::Value;

/// A `weighted_avg` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WeightedAvg {
    /// Field of the values.
    pub value: String,
    /// What documents without a value are taken to have.
    pub value_missing: Option<Value>,
    /// Field of the weights; a document has at most one.
    pub weight: String,
    /// What documents without a weight are taken to have.
    pub weight_missing: Option<Value>,
    /// How the result is written.
    pub format: Option<String>,
}
