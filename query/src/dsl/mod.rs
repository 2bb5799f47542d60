//! The query language of the data API: bodies and parameters to typed requests.
//!
//! [`query::Query`] is a parsed clause tree, independent of any index; [`body::SearchBody`] is a
//! whole `_search` body. Every clause refuses what it does not know, with OpenSearch's text. What
//! they mean for an index is decided by [`crate::lower`] and what is above it.

pub(crate) mod aggs;
pub(crate) mod body;
pub(crate) mod collapse;
pub(crate) mod expression;
pub(crate) mod fields;
pub(crate) mod highlight;
pub(crate) mod inner_hits;
pub(crate) mod json;
pub(crate) mod minimum_should_match;
pub(crate) mod params;
pub(crate) mod query;
pub(crate) mod query_string;
pub(crate) mod rescore;
pub(crate) mod sort;
pub(crate) mod source_filter;
pub(crate) mod suggest;
