//! Pipelines: definitions in the Logstash configuration language, checked whole, then run.
//!
//! [`language`] parses a definition, [`graph`] builds the inputs, codecs and outputs of `millrace-ingest` and the
//! [`filter`]s of this crate that it names, [`runtime`] runs the graph against a [`Store`]: events and the positions
//! of their sources are committed together, then sources are told. [`rights`] keeps it to the indices that its definition names. [`manager`] keeps the pipelines of a
//! directory running, reloads them when their files change, and answers what the management API asks.

pub mod condition;
pub mod filter;
#[doc(hidden)]
pub mod fuzzing;
pub mod graph;
pub mod language;
pub mod manager;
pub mod meter;
pub mod rights;
pub mod runtime;
pub mod settings;
mod spool;
pub mod store;

pub use graph::Graph;
pub use language::{Dialect, Environment};
pub use manager::Manager;
pub use settings::{EventOrder, Settings};
pub use store::Store;

use millrace_ingest::Fault;

/// Parses a definition and builds all its plugins, without starting anything.
///
/// # Errors
/// All that is wrong, by place.
pub fn check(text: &str, dialect: &Dialect) -> Result<Graph, Vec<Fault>> {
    let definition = language::parse(text, dialect);
    definition.and_then(Graph::build)
}
