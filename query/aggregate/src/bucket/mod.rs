//! Aggregations with buckets, one file an aggregation.
//!
//! Those whose buckets come of values share [`keyed`], those with a fixed number of buckets [`slots`] (by their [`slot_rule`]), histograms [`gaps`];
//! each file says how its aggregation meets the mappings and what it makes of the counts.

pub(super) mod auto_date_histogram;
pub(super) mod composite;
pub(super) mod date_histogram;
pub(super) mod filters;
mod gaps;
pub(super) mod histogram;
pub(super) mod keyed;
pub(super) mod multi_terms;
pub(super) mod nested;
pub(super) mod range;
pub(super) mod rare_terms;
pub(super) mod sampler;
pub(super) mod significant_terms;
mod slot_rule;
pub(super) mod slots;
pub(super) mod sorted;
pub(super) mod terms;
pub(crate) mod top_hits;
