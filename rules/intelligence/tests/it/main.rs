//! AI rules over a store with a clock that moves when it is told to: schedules, restarts, and what becomes of predictions.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bad_input;
mod batches;
mod buckets;
mod cancellation;
mod detectors;
mod fixture;
mod kills;
mod restored;
mod rules;
mod runs;
mod schedules;
