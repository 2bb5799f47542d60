//! Arrow Flight SQL: statements, metadata and bulk ingestion for clients that want columns.
//!
//! [`Flight`] is what a listener serves, and the whole of what is seen from outside. It gets what it shares with the data API from
//! [`millrace_gateway`] ([`Beside`](millrace_gateway::ListenerContext)): accounts, audit, the store and the bytes that requests may hold.
//!
//! - [`listener`]: heads of requests: who asks, before anything else is read; [`upload`] bounds what comes behind them, with
//!   [`framing`], which tells messages in it, and [`truncation`], which tells what was broken off
//! - [`logs`]: the logs of OpenTelemetry over gRPC, here and on a listener of their own
//! - [`health`]: what probes without credentials are told
//! - [`service`]: the methods of Flight, a file a group; [`call`]: a request at work; [`limits`]: what it may ask for
//! - [`statement`]: what `millrace-query` is asked; [`wire`]: batches as they are sent
//! - [`tickets`], [`handles`], [`active_answers`]: what clients are given to come back with, prepared statements, statements under way
//! - [`metadata`], [`options`]: catalogs, tables, types, what the server can do
//! - [`timestamp_zone`]: the zone that schemas name for timestamps, which drivers of JDBC cannot read
//! - [`bound`]: values for parameters as they are kept
//! - [`messages`], [`decode`], [`ingest`]: batches that are sent, and documents that are made of them
//! - [`call_record`]: durations of calls, and their lines of the access log
//! - [`status`] makes errors what gRPC has of them

mod active_answers;
mod bound;
mod call;
mod call_record;
mod decode;
mod framing;
mod handles;
mod health;
mod ingest;
mod language;
mod limits;
mod listener;
mod logs;
mod messages;
mod metadata;
mod options;
mod service;
mod statement;
mod status;
mod tickets;
mod timestamp_zone;
mod truncation;
mod upload;
mod wire;

pub use listener::Flight;
pub use logs::LogsService;
