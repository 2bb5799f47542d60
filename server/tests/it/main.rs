//! The binary as a process, as a person or a unit file sees it.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod agents;
mod configuration;
mod console;
mod flight;
mod lifecycle;
mod logs;
mod notifications;
mod operations;
mod pipelines;
mod process;
mod repair;
mod rules;
mod snapshots;
mod sources;
mod telemetry;
mod users;
