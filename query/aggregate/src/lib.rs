//! Aggregations: partial states, results, pipelines over results.
//!
//! The [`operator`] is a leaf of a DataFusion plan. The parsed tree meets the mappings in [`compile`]. Of the rows of each
//! segment ([`segment`]) a tree of [`collector`]s asks what a [`source`] knows without reading them; the others go in batches
//! ([`batch`]) through those that have to see them ([`pass`]). Buckets are numbered ([`ordinals`]) by the keys ([`keys`]) that
//! the values of fields ([`field`]) give; [`bucket`] has a file an aggregation. States of partitions merge, and what is left
//! is reduced to results. [`value_counts`] hands what sources know of one field to SQL.
//!
//! [`metric`] holds the partial states of metrics, indexed by bucket; [`result`] the reduced tree and how
//! answers show it; [`pipeline`] computes what is computed of results.

mod backgrounds;
mod batch;
mod bucket;
mod collector;
mod compile;
mod compiler;
mod field;
mod hit_fetch;
mod keys;
mod metric;
mod operator;
mod ordinals;
mod pass;
mod pipeline;
mod profile;
mod result;
mod run;
mod scan_plan;
mod segment;
mod source;
mod term_filter;
mod tree;
mod value_counts;

pub use result::Results;
pub use run::{Aggregation, Request};
pub use value_counts::{CountKey, CountedRows, Value, ValueCounts};
