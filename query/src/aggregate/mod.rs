//! Aggregations: partial states, results, pipelines over results.
//!
//! [`metric`] holds the partial states of metrics, indexed by bucket; [`result`] the reduced tree and how
//! answers show it; [`pipeline`] computes what is computed of results.

pub(crate) mod metric;
pub(crate) mod pipeline;
pub(crate) mod result;
