//! Typed documents of system indices, as operations: what the server keeps of its own beside the documents of users.
//!
//! A [`SystemDocument`] names its index and encodes itself; [`SystemDocument::put_op`] and [`SystemDocument::delete_op`] make the
//! operations that store and delete it, each under a [`Precondition`]. The engine's `SystemDocuments` executes them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::operation::{Action, WriteOp, WriteOutcome};

/// A type of documents of a system index.
pub trait SystemDocument: Sized + Send + Sync + 'static {
    /// Name of the index.
    const INDEX: &'static str;
    /// Longest wait of a write for memory.
    const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

    /// Returns the settings and the mapping of a new index.
    fn index_body() -> Value;

    /// Writes the source of the document.
    fn encode(&self) -> Bytes;

    /// Reads the source of a document.
    ///
    /// # Errors
    /// The reason why the source is no such document.
    fn decode(id: &str, source: &Bytes) -> Result<Self, String>;

    /// Makes the operation that stores a source; without an id the engine generates one.
    fn put_op(id: Option<String>, source: Bytes, precondition: Precondition) -> WriteOp {
        let action = match precondition {
            Precondition::Absent => Action::Create(source),
            Precondition::Any | Precondition::Version(_) => Action::Index(source),
        };
        conditional(WriteOp::new(Self::INDEX, id, action), precondition)
    }

    /// Makes the operation that deletes a document.
    fn delete_op(id: &str, precondition: Precondition) -> WriteOp {
        conditional(WriteOp::new(Self::INDEX, Some(id.to_owned()), Action::Delete), precondition)
    }
}

/// The version of a stored document, for optimistic concurrency control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentVersion {
    /// Sequence number of the write.
    pub seq_no: u64,
    /// Primary term of the write.
    pub primary_term: u64,
}

impl From<&WriteOutcome> for DocumentVersion {
    fn from(outcome: &WriteOutcome) -> Self {
        Self { seq_no: outcome.seq_no, primary_term: outcome.primary_term }
    }
}

/// The condition of a write on the stored document with its id. [`VersionConflict`](millrace_runtime::Error::VersionConflict) refuses a write whose condition fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// No condition.
    Any,
    /// There is no such document.
    Absent,
    /// The document has this version.
    Version(DocumentVersion),
}

fn conditional(op: WriteOp, precondition: Precondition) -> WriteOp {
    let Precondition::Version(DocumentVersion { seq_no, primary_term }) = precondition else { return op };
    WriteOp { if_seq_no: Some(seq_no), if_primary_term: Some(primary_term), ..op }
}

/// Returns the mapping and settings of a hidden index that has the fields of these properties only, whatever its documents have.
pub fn hidden_index(properties: Value) -> Value {
    let mut body = json!({
        "settings": {"index.number_of_replicas": 0, "index.hidden": true},
        "mappings": {"dynamic": false},
    });
    body["mappings"]["properties"] = properties;
    body
}
