//! The data API: documents, searches, administration of indices and the cluster, users and their rights.
//!
//! [`DataApi`] is the router of the data listener; [`routes`] is its table. Handlers are grouped by
//! what they are about: `documents` and `bulk` write and read documents through the
//! [`Engine`](millrace_engine::Engine), `search` and `sql` pass on to
//! [`SearchService`](millrace_query::SearchService), `otlp` takes logs of OpenTelemetry, `admin` looks after indices and the cluster,
//! `ingest` after pipelines, `security` after
//! [`Accounts`](millrace_accounts::Accounts).

mod admin;
mod bulk;
mod documents;
#[doc(hidden)]
pub mod fuzzing;
mod ingest;
mod otlp;
mod root;
mod route;
mod search;
mod security;
mod sql;

pub use admin::{SnapshotAccounts, anonymous_bytes, left_out_families, memory_limit};
pub use ingest::{IngestService, TransformOutcome};
pub use route::{DataApi, OtlpApi, data as routes};
pub use security::SearchQueryParser;

// Handlers name the types of the gateway by paths of this crate.
use millrace_gateway::{API_VERSION, Api, Identity, error, http};
#[cfg(test)]
use millrace_gateway::{Node, Requester};
