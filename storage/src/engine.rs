//! The store as its users see it: indices, documents, snapshots, figures.
// CONTRACT STUB: bodies are being written; signatures are what other crates build against.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::mapping::Mapping;
use crate::metadata::{IndexMeta, IndicesOptions, Metadata, MetadataChange};
use crate::segment::SegmentView;
use crate::{Config, Principal, Result, SharedClock};

/// What to do to one document.
#[derive(Clone, Debug)]
pub struct WriteOp {
    /// Index or alias, as the request named it.
    pub index: Arc<str>,
    /// Document id; generated where absent (then the action is `Index` or `Create`).
    pub id: Option<String>,
    /// Routing value.
    pub routing: Option<String>,
    /// What to do.
    pub action: Action,
    /// External version, or expected internal version.
    pub version: Option<(u64, VersionType)>,
    /// Expected `_seq_no`.
    pub if_seq_no: Option<u64>,
    /// Expected `_primary_term`.
    pub if_primary_term: Option<u64>,
    /// Whether the name must be an alias.
    pub require_alias: bool,
    /// Type segment that the request named, for messages; `_doc` otherwise.
    pub doc_type: Arc<str>,
}

/// Kinds of document operations.
#[derive(Clone, Debug)]
pub enum Action {
    /// Creates or replaces; the bytes are the document exactly as sent (one JSON object).
    Index(Bytes),
    /// Creates; a conflict when the id exists.
    Create(Bytes),
    /// Deletes.
    Delete,
    /// Merges into the current document.
    Update(Box<Update>),
}

/// A partial update.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// Members merged into the current source, recursively for objects.
    pub doc: Option<Value>,
    /// Document stored where none exists.
    pub upsert: Option<Value>,
    /// Whether `doc` doubles as `upsert`.
    pub doc_as_upsert: bool,
    /// Whether an update that changes nothing is a no-op.
    pub detect_noop: bool,
    /// Attempts after a version conflict with a concurrent writer.
    pub retry_on_conflict: u32,
}

/// How a given version is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionType {
    /// Equal to the current version.
    Internal,
    /// Greater than the current version, and kept.
    External,
    /// Greater than or equal to the current version, and kept.
    ExternalGte,
}

/// When writes become visible to search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshPolicy {
    /// At the next scheduled refresh.
    #[default]
    None,
    /// Before the answer, by a refresh of the shards written to.
    Immediate,
    /// Before the answer, by waiting for the next refresh.
    WaitFor,
}

/// What happened to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocResult {
    /// It is new.
    Created,
    /// It replaced an older version.
    Updated,
    /// It was deleted.
    Deleted,
    /// There was nothing to delete.
    NotFound,
    /// The update changed nothing.
    Noop,
}

/// The acknowledgement of one operation.
#[derive(Clone, Debug)]
pub struct WriteOutcome {
    /// Concrete index.
    pub index: Arc<str>,
    /// Document id.
    pub id: String,
    /// Version after the operation.
    pub version: u64,
    /// Sequence number of the operation.
    pub seq_no: u64,
    /// Primary term of the operation.
    pub primary_term: u64,
    /// What happened.
    pub result: DocResult,
    /// Copies that the index is configured for: 1 + number_of_replicas.
    pub shard_copies: u32,
    /// The source after an update, for `_source` of an update request.
    pub source: Option<Bytes>,
}

/// A document as stored.
#[derive(Clone, Debug)]
pub struct StoredDoc {
    /// Concrete index.
    pub index: Arc<str>,
    /// Document id.
    pub id: String,
    /// Version.
    pub version: u64,
    /// Sequence number.
    pub seq_no: u64,
    /// Primary term.
    pub primary_term: u64,
    /// Routing value, if one was given.
    pub routing: Option<String>,
    /// The source exactly as sent.
    pub source: Bytes,
}

/// A running index.
#[derive(Debug)]
pub struct Index {}

impl Index {
    /// Returns name, uuid, settings, aliases and state.
    pub fn meta(&self) -> Arc<IndexMeta> {
        todo!()
    }
    /// Returns the current mapping.
    pub fn mapping(&self) -> Arc<Mapping> {
        todo!()
    }
    /// Takes a snapshot for a search; refreshes first after search idleness.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        todo!()
    }
    /// Counts live documents, deleted rows and bytes.
    pub fn figures(&self) -> IndexFigures {
        todo!()
    }
}

/// Counters of an index.
#[derive(Clone, Debug, Default)]
pub struct IndexFigures {
    /// A line a shard.
    pub shards: Vec<ShardFigures>,
}

/// Counters of a shard.
#[derive(Clone, Debug, Default)]
pub struct ShardFigures {
    /// Live documents as of the last refresh.
    pub docs: u64,
    /// Rows of deleted documents that compaction has not dropped yet.
    pub deleted: u64,
    /// Bytes of the shard's segment files.
    pub store_bytes: u64,
    /// Segments, in memory and stored.
    pub segments: u64,
    /// Bytes held in memory for unflushed documents and open readers.
    pub memory_bytes: u64,
    /// Greatest sequence number assigned, -1 before the first.
    pub max_seq_no: i64,
    /// Greatest sequence number below which all are durable, -1 before the first.
    pub local_checkpoint: i64,
    /// Index and create operations since start.
    pub index_total: u64,
    /// Delete operations since start.
    pub delete_total: u64,
    /// Gets since start.
    pub get_total: u64,
    /// Refreshes since start.
    pub refresh_total: u64,
    /// Flushes since start.
    pub flush_total: u64,
    /// Compactions since start.
    pub merge_total: u64,
    /// Snapshots handed to searches since start.
    pub query_total: u64,
}

/// An immutable view of an index for one search.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The index as of the snapshot.
    pub meta: Arc<IndexMeta>,
    /// The mapping as of the snapshot.
    pub mapping: Arc<Mapping>,
    /// Shards in order.
    pub shards: Vec<ShardSnapshot>,
}

/// One shard of a snapshot.
#[derive(Clone, Debug)]
pub struct ShardSnapshot {
    /// Shard number.
    pub shard: u32,
    /// Segments in ascending order of their rows' sequence numbers.
    pub segments: Vec<SegmentView>,
}

/// The store.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// Opens the data directory, recovers, and starts background work.
    pub async fn open(_config: Config, _clock: SharedClock) -> Result<Arc<Self>> {
        todo!()
    }
    /// Stops accepting writes, flushes every shard, and releases the data directory.
    pub async fn shutdown(&self) -> Result<()> {
        todo!()
    }
    /// Returns the injected clock.
    pub fn clock(&self) -> &SharedClock {
        todo!()
    }
    /// Returns the metadata (indices, aliases, templates, cluster settings) as of now.
    pub fn metadata(&self) -> Arc<Metadata> {
        todo!()
    }
    /// Applies a metadata change durably; the closure sees the current state under the metadata
    /// lock and returns what to do (a pure decision; see `metadata`).
    pub async fn change<F>(&self, _principal: &Principal, _decide: F) -> Result<()>
    where
        F: FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send,
    {
        todo!()
    }
    /// Reads a value of the catalog's small key-value table.
    pub async fn get_secret(&self, _key: &str) -> Result<Option<Vec<u8>>> {
        todo!()
    }
    /// Writes such a value, durably.
    pub async fn put_secret(&self, _key: &str, _value: &[u8]) -> Result<()> {
        todo!()
    }
    /// Returns a running index by its concrete name.
    pub fn index(&self, _name: &str) -> Result<Arc<Index>> {
        todo!()
    }
    /// Resolves an index expression to running indices; closed ones as the options say.
    pub fn resolve(&self, _expression: &str, _options: &IndicesOptions) -> Result<Vec<Arc<Index>>> {
        todo!()
    }
    /// Merges a `_mapping` body into an index's mapping, durably.
    pub async fn put_mapping(&self, _principal: &Principal, _index: &str, _body: &Value) -> Result<()> {
        todo!()
    }
    /// Executes operations in order and acknowledges those that are durable. One result an
    /// operation; the outer error is for the request as a whole (overload, shutdown).
    /// Missing indices are created where `action.auto_create_index` allows.
    pub async fn write(
        &self,
        _principal: &Principal,
        _ops: Vec<WriteOp>,
        _refresh: RefreshPolicy,
        _timeout: Duration,
    ) -> Result<Vec<Result<WriteOutcome>>> {
        todo!()
    }
    /// Reads a document by id. `realtime` sees unrefreshed writes. `Ok(None)`: no such document.
    pub async fn get(
        &self,
        _principal: &Principal,
        _index: &str,
        _id: &str,
        _routing: Option<&str>,
        _realtime: bool,
    ) -> Result<Option<StoredDoc>> {
        todo!()
    }
    /// Makes everything written so far visible to search.
    pub async fn refresh(&self, _indices: &[Arc<Index>]) -> Result<()> {
        todo!()
    }
    /// Writes memtables out as segments and commits them.
    pub async fn flush(&self, _indices: &[Arc<Index>]) -> Result<()> {
        todo!()
    }
    /// Compacts each shard to at most so many segments.
    pub async fn force_merge(&self, _indices: &[Arc<Index>], _max_segments: usize) -> Result<()> {
        todo!()
    }
}
