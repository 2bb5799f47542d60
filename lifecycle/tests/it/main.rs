//! Policies over a store: managed indices, retention by space, and snapshots by schedule.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod actions;
mod indices;
mod restored;
mod retention;
mod rollovers;
mod snapshots;
mod support;
