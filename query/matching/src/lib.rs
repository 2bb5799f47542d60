//! Matching and scoring of the rows of a segment.
//!
//! [`lower`] makes a predicate of a query; [`table`] stands for pinned indices as a DataFusion
//! table and evaluates predicates segment by segment, with the scorers of [`score`] and the [`automaton`]s of patterns.
//! [`order`] has the sort keys of hits, [`target`] pins what a request names, [`pinned`] counts what stays pinned.

pub mod address;
pub mod automaton;
pub mod filters;
mod heap;
pub mod lookup;
pub mod lower;
pub mod order;
pub mod pinned;
mod plan_node;
pub mod rules;
pub mod score;
pub mod table;
pub mod target;
