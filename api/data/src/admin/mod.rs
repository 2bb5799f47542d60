//! Administration over HTTP: indices, settings, mappings, aliases, templates, maintenance, cluster
//! and node figures, and the `_cat` tables.
//!
//! [`crate::route`] hands each request to its handler. Handlers take their parameters, call [`Request::finish`], and then either read the engine's
//! [`Metadata`](millrace_catalog::metadata::Metadata) and figures, or put one of its pure decisions
//! through [`Engine::change`](millrace_engine::Engine::change). A path that is not here is not
//! served: nothing is answered with a success that did not happen.

pub(crate) mod aliases;
pub(crate) mod analyze;
pub(crate) mod cat;
mod cgroup;
pub(crate) mod cluster;
pub(crate) mod data_streams;
pub(crate) mod field_mapping;
pub(crate) mod health;
pub(crate) mod hot_threads;
pub(crate) mod indices;
pub(crate) mod license;
pub(crate) mod lifecycle;
pub(crate) mod maintenance;
pub(crate) mod mappings;
pub(crate) mod metrics;
mod node;
pub(crate) mod nodes;
mod options;
mod process;
pub(crate) mod recovery;
pub(crate) mod resize;
pub(crate) mod rollover;
pub(crate) mod segments;
pub(crate) mod settings;
pub(crate) mod snapshots;
pub(crate) mod stats;
pub(crate) mod tasks;
pub(crate) mod templates;
mod thread_pools;

pub(crate) use options::manager;

pub use cgroup::memory_limit;
pub use metrics::left_out_families;
pub use process::anonymous_bytes;
pub use snapshots::SnapshotAccounts;
