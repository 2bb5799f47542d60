//! The way in for requests: authentication, routes, sessions, audit, and the forms of HTTP.
//!
//! A [`Service`] takes the requests of a listener. It authenticates the caller, finds the route by a [`Router`](route::Router), begins
//! the route's action, reads the body, has the handler answer, and renders the answer. Crates above bring the routers. A handler
//! gets a [`Request`](http::Request) and an [`Api`], which holds a [`Session`](millrace_engine::Session) in place of the engine,
//! and returns a [`Response`](http::Response) or an [`Error`]. Listeners of other protocols enter their requests by a
//! [`ListenerContext`].

mod access_log;
mod audit;
mod client;
mod config;
mod dispatch;
mod entry;
pub mod error;
pub mod http;
mod identity;
pub mod license;
mod listeners;
mod node;
pub mod otlp;
mod request_span;
mod request_timings;
pub mod route;
mod tasks;
mod write_pipelines;

pub use access_log::RequestRecord;
pub use audit::{Audit, Config as AuditConfig, DeniedRule, HandlerNotes, QueueStats};
pub use client::ClientConnection;
pub use config::{HttpConfig, OperationConfig};
pub use dispatch::Service;
pub use entry::{Entry, ListenerContext};
pub use error::Error;
pub use identity::{API_VERSION, Identity, NAME};
pub use listeners::{AuditWriter, BoundListeners, ListenError, ListenerConfig};
pub use node::{Api, FaultSource, Node, Requester};
pub use request_timings::{RequestSeries, RequestTimings};
pub use tasks::{TaskResults, task_json};
pub use write_pipelines::{PipelinedWrite, WritePipelines, apply_pipelines};
