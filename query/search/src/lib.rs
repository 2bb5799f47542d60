//! Hits: found in order, fetched, highlighted, explained, collapsed; suggestions.
//!
//! [`searcher::Searcher`] runs a search over a pinned snapshot: [`plan`] builds scan, sort and limit around the lowered query,
//! [`fetch`] reads the sources of the final rows, and [`response`] writes the answer.

pub mod collapse;
pub mod element_hits;
pub mod explain;
pub mod fetch;
mod highlight;
mod inner_hits;
pub mod plan;
pub mod profile;
mod rescore;
pub mod response;
pub mod searcher;
pub mod suggest;
