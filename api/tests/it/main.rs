//! The data API driven through its service, in process, over a store in a temporary directory; and the
//! server over real sockets.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod administration;
mod ai;
mod alerts;
mod answers;
mod audit;
mod bad_input;
mod bulk;
mod console;
mod data_streams;
mod documents;
mod fuzzing;
mod imports;
mod ingest_pipelines;
mod license;
mod lifecycle;
mod metrics;
mod otlp;
mod protocol;
mod routes;
mod searches;
mod security;
mod server;
mod snapshots;
mod sql_elasticsearch;
mod sql_lines;
mod support;
mod tasks;
mod writes;
