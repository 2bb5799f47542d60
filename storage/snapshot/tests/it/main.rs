//! Snapshots of real stores in directories and in object stores that fail.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod accounts;
mod bounds;
mod crash;
mod cycle;
mod damage;
mod early_search;
mod faults;
mod formats;
mod outages;
mod pacing;
mod positions;
mod support;
mod system_state;
