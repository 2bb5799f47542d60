//! Which rows of a segment match, and how they score.
//!
//! [`lower`] makes a predicate of a query; [`table`] stands for pinned indices as a DataFusion
//! table and evaluates predicates segment by segment, with the scorers of [`score`] and the [`automaton`]s of patterns.
//! [`order`] has the sort keys of hits, [`target`] pins what a request names, [`pinned`] counts what stays pinned.

pub mod address;
pub mod aliases;
pub mod filters;
pub mod lower;
pub mod order;
pub mod pinned;
mod plan_node;
pub mod rules;
pub mod table;
