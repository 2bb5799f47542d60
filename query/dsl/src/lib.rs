//! The query language of the data API: bodies and parameters to typed requests.
//!
//! [`query::Query`] is a parsed clause tree, independent of any index; [`body::SearchBody`] is a
//! whole `_search` body. Every clause refuses what it does not know, with OpenSearch's text. What
//! they mean for an index is decided by `millrace_matching::lower` and what is above it.

pub mod aggs;
pub mod body;
pub mod collapse;
pub mod expression;
pub mod fields;
pub mod highlight;
pub mod inner_hits;
pub mod json;
pub mod minimum_should_match;
pub mod params;
pub mod query;
pub mod query_string;
pub mod rescore;
pub mod sort;
pub mod source_filter;
pub mod suggest;
