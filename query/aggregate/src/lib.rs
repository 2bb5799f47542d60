//! Aggregations: partial states, results, pipelines over results.
//!
//! The [`operator`] is a leaf of a DataFusion plan. The parsed tree meets the mappings in [`compile`]; rows of
//! each segment ([`segment`]) go in batches ([`batch`]) through a tree of [`collector`]s, whose buckets
//! are numbered ([`ordinals`]) by the keys ([`keys`]) that the values of fields ([`field`]) give; [`bucket`] has a
//! file an aggregation. States of partitions merge, and what is left is reduced to results.
//!
//! [`metric`] holds the partial states of metrics, indexed by bucket; [`result`] the reduced tree and how
//! answers show it; [`pipeline`] computes what is computed of results.

mod backgrounds;
mod batch;
mod bucket;
mod by_term;
mod collector;
mod compile;
mod field;
mod keys;
mod measured;
mod metric;
mod operator;
mod ordinals;
mod pipeline;
mod result;
mod rounding;
mod run;
mod segment;
mod shortcut;
mod term_filter;
mod timed;
mod tree;

pub use run::{Aggregation, Request};
