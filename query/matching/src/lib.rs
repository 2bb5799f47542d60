//! Queries meet the mappings of indices.
//!
//! [`lower`] makes a predicate of a query; [`table`] stands for pinned indices as a DataFusion
//! table and evaluates predicates segment by segment, with the scorers of [`millrace_scoring`].
//! [`order`] has the sort keys of hits, [`aliases`] the filters of aliases, [`pinned`] counts what stays pinned.

pub mod address;
pub mod aliases;
pub mod filters;
pub mod lower;
pub mod order;
pub mod pinned;
mod plan_node;
pub mod rules;
pub mod table;
