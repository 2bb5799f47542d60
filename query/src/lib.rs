//! Search over the store: the query language of the data API, planned by DataFusion.
//!
//! [`SearchService`] is the way in. It is handed principals, index expressions, parameters and
//! bodies by `millrace-api`, takes snapshots from `millrace-storage`, and hands back rendered
//! answers. On the way: [`dsl`] parses, `dsl::lower` makes an expression of leaf functions,
//! [`plan`] builds scan, sort and limit around it, [`table`] evaluates the index predicate segment
//! by segment with the scorers of [`score`], and [`fetch`] reads the sources of the final rows.

mod address;
mod aggregate;
mod automaton;
mod collapse;
mod compute;
mod contexts;
mod delete_by_query;
mod dsl;
mod element_hits;
mod error;
mod explain;
mod fetch;
#[doc(hidden)]
pub mod fuzzing;
mod highlight;
mod inner_hits;
mod lookup;
mod lower;
mod order;
mod pinned;
mod plan;
mod plan_node;
mod profile;
mod request;
mod rescore;
mod response;
mod score;
mod search;
mod service;
mod skip;
mod sql;
mod suggest;
mod table;
mod target;
mod work;

pub use error::{Error, Result, ShardFailure};
pub use pinned::PinnedFigures;
pub use service::{Config, MAX_SEARCHES, Outcome, OutcomeBody, SearchService};
