//! Searches over a real store.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod answers;
mod delete_by_query;
mod fixture;
mod property;
mod query_strings;
mod robustness;
mod scroll;
mod search;
mod terms_and_phrases;
