//! Searches over a real store.

mod delete_by_query;
mod fixture;
mod scroll;
mod search;
