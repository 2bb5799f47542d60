//! Searches over a real store.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod answers;
mod compound;
mod collapse;
mod delete_by_query;
mod fields;
mod fixture;
mod nested;
mod highlight;
mod property;
mod robustness;
mod scroll;
mod search;
