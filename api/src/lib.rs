//! The server of all HTTP interfaces: the data API, the console and the management of pipelines, each on its listeners.
//!
//! A [`Server`] opens accounts, has rules at work, and runs the listeners until told to stop. Requests go through a
//! [`Service`] of `millrace-gateway`, whose router is the [`DataApi`] of `millrace-data-api`, the [`Console`] of `millrace-console`, or the
//! [`Management`] of `millrace-management`. What crates above need of these is here, too.

pub mod metrics;
mod output_pipelines;
mod server;
mod state_owners;

pub use millrace_accounts::TokenLifetimes;
pub use millrace_console::Console;
pub use millrace_data_api::{
    DataApi, IngestService, OtlpApi, SearchQueryParser, SnapshotAccounts, anonymous_bytes, memory_limit,
};
pub use millrace_gateway::otlp::{DocumentMapping, OtlpConfig};
pub use millrace_gateway::{
    Audit, AuditConfig, Entry, Error, HttpConfig, Identity, ListenerContext, Node, OperationConfig, Service,
    license,
};
pub use millrace_management::Management;
pub use output_pipelines::output_pipelines;
pub use server::{Server, ServerConfig, StartError};
