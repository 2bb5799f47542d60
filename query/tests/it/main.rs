//! Searches over a real store.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod delete_by_query;
mod fixture;
mod property;
mod scroll;
mod search;
