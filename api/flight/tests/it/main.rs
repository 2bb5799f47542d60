//! Arrow Flight SQL over a real listener, driven by the client of `arrow-flight`.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod calm;
mod credentials;
mod health;
mod ingestion;
mod metadata;
mod prepared;
mod records;
mod stalled;
mod statements;
mod support;
mod tickets;
mod tls;
