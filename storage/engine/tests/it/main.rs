//! The store through its public interface.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod changes;
mod commits;
mod crash;
mod documents;
mod faults;
mod feed;
mod identity;
mod idle;
mod nested;
mod ordinary;
mod positions;
mod pressure;
mod races;
mod repair;
mod replay;
mod sorted;
mod sparse;
