//! SQL over indices.
//!
//! [`statement`] parses with DataFusion's parser and an own dialect, [`bind`] makes a DataFusion plan of the tree
//! with OpenSearch's names, types and functions, [`push`] gives the index what it can answer, [`pushdown`] what reaches a scan from above,
//! [`table`] reads
//! the columns that are left ([`elements`] those of nested paths, [`highlight`] fragments that match), and DataFusion aggregates, where the index does not know groups ([`index_groups`]), and sorts, of groups with few first rows only what these may be ([`group_top_rows`]). Rows of very many groups are partitioned first ([`partitioned_groups`]). An [`answer`] is columns and a stream of batches ([`rows`]), which [`format`] writes: in one
//! piece or a page at a time ([`page`], [`cursor`]), or part by part as they come: as text, or as [`batches`] of Arrow in types that clients know ([`export`]), encoded ([`messages`]).
//! What a statement answers is known without running it ([`describe`]). Keys of small sides of joins reach the scans of the others ([`dynamic_filters`]).
//! [`run`] is handed requests by the service and works on them on
//! [`threads`] of their own.

mod aggregate_simplification;
mod answer;
pub mod ast_walk;
pub mod batches;
mod bind;
mod column;
mod condition_pushdown;
mod count;
pub mod cursor;
mod date_types;
mod delete;
pub mod describe;
mod dialect;
mod dynamic_filters;
pub mod elasticsearch_request;
mod elements;
pub mod error;
pub mod explain;
mod export;
mod first_rows;
pub mod format;
mod functions;
pub mod fuzzing;
mod group_top_rows;
mod highlight;
mod hit_layout;
mod index_groups;
mod large_joins;
mod late_materialization;
mod merged_sorts;
pub mod messages;
mod metadata;
mod node_rewriter;
mod optimization;
mod output_columns;
pub mod page;
pub mod parameters;
mod partitioned_groups;
mod push;
mod pushdown;
pub mod relational;
pub mod renderer;
pub mod request;
mod rights;
mod rows;
pub mod run;
mod semi_joins;
mod shared;
mod source;
mod statement;
mod stop;
mod table;
mod threads;
mod types;
mod whole_texts;
