//! The vocabulary of the store's interface: operations, outcomes, documents, figures, snapshots.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use millrace_catalog::access;
use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_mapping::source::ObjectText;
use millrace_segment::SegmentView;

use crate::shard::ContextFigures;

/// Write of one document.
#[derive(Clone, Debug)]
pub struct WriteOp {
    /// Index or alias, as the request named it.
    pub index: Arc<str>,
    /// Document id; generated where absent (then the action is `Index` or `Create`).
    pub id: Option<String>,
    /// Routing value.
    pub routing: Option<String>,
    /// Action of the write.
    pub action: Action,
    /// External version, or expected internal version.
    pub version: Option<(u64, VersionType)>,
    /// Expected `_seq_no`.
    pub if_seq_no: Option<u64>,
    /// Expected `_primary_term`.
    pub if_primary_term: Option<u64>,
    /// `true` if the name must be an alias.
    pub require_alias: bool,
    /// Type segment that the request named, for messages; `_doc` otherwise.
    pub doc_type: Arc<str>,
}

/// The type segment of operations that name none; they share it.
static DOC: LazyLock<Arc<str>> = LazyLock::new(|| "_doc".into());

impl WriteOp {
    /// Makes an operation without conditions, routed by its id.
    pub fn new(index: impl Into<Arc<str>>, id: Option<String>, action: Action) -> Self {
        Self::of_type(Arc::clone(&DOC), index, id, action)
    }

    /// Makes one of a type segment: who makes many on several threads shares one among a request's and not among all.
    pub fn of_type(
        doc_type: Arc<str>,
        index: impl Into<Arc<str>>,
        id: Option<String>,
        action: Action,
    ) -> Self {
        Self {
            index: index.into(),
            id,
            routing: None,
            action,
            version: None,
            if_seq_no: None,
            if_primary_term: None,
            require_alias: false,
            doc_type,
        }
    }

    /// Says what its writer must be allowed to do. A document whose id is generated replaces none.
    pub fn needs(&self) -> access::Action {
        match self.action {
            Action::Index(_) if self.id.is_some() => access::Action::IndexDocument,
            Action::Index(_) | Action::Create(_) => access::Action::CreateDocument,
            Action::Delete => access::Action::DeleteDocument,
            Action::Update(_) => access::Action::UpdateDocument,
        }
    }
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

/// Kind of an [`Action`], without its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Creates or replaces.
    Index,
    /// Creates.
    Create,
    /// Deletes.
    Delete,
    /// Merges.
    Update,
}

impl Action {
    /// Returns its kind.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Index(_) => ActionKind::Index,
            Self::Create(_) => ActionKind::Create,
            Self::Delete => ActionKind::Delete,
            Self::Update(_) => ActionKind::Update,
        }
    }
}

impl ActionKind {
    /// Reads the name that bulk requests have for it.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "index" => Self::Index,
            "create" => Self::Create,
            "delete" => Self::Delete,
            "update" => Self::Update,
            _ => return None,
        })
    }

    /// The name that bulk requests have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Update => "update",
        }
    }
}

/// A partial update.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// Members merged into the current source, recursively for objects.
    pub doc: Option<ObjectText>,
    /// Document stored where none exists.
    pub upsert: Option<ObjectText>,
    /// `true` if `doc` doubles as `upsert`.
    pub doc_as_upsert: bool,
    /// `true` if an update that changes nothing is a no-op.
    pub detect_noop: bool,
    /// Attempts after a version conflict with a concurrent writer.
    pub retry_on_conflict: u32,
    /// `true` if the outcome carries the source after the update.
    pub returns_source: bool,
}

impl Update {
    /// Returns what is stored where there is no document; `None` where that is an error.
    pub fn stored_where_missing(&self) -> Option<&ObjectText> {
        self.upsert.as_ref().or(if self.doc_as_upsert { self.doc.as_ref() } else { None })
    }
}

/// Comparison of a given version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionType {
    /// Equal to the current version.
    Internal,
    /// Greater than the current version, and kept.
    External,
    /// Greater than or equal to the current version, and kept.
    ExternalGte,
}

impl VersionType {
    /// Reads a name of requests.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "internal" => Self::Internal,
            "external" | "external_gt" => Self::External,
            "external_gte" => Self::ExternalGte,
            _ => return None,
        })
    }

    /// The name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::External => "external",
            Self::ExternalGte => "external_gte",
        }
    }
}

/// Time at which writes become visible to search.
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

/// Result of a write for a document.
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
    /// Result of the write.
    pub result: DocResult,
    /// Copies that the index is configured for: 1 + number_of_replicas.
    pub shard_copies: u32,
    /// The source after an update that asked for it; see [`Update::returns_source`].
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

/// Counters of an index.
#[derive(Clone, Debug, Default)]
pub struct IndexFigures {
    /// A line a shard.
    pub shards: Vec<ShardFigures>,
}

/// Fault of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardFault {
    /// Its files are damaged: it answers nothing and takes nothing.
    Damaged,
    /// This version does not accept the settings or the mapping of its index: it answers nothing and takes nothing.
    Unsupported,
    /// A file of one of its segments is damaged: what needs that file fails, the rest is served.
    Unreadable,
    /// It serves, but its last refresh, flush or compaction failed, and the next is to mend it; or another process has taken
    /// the object store over, and it takes no writes.
    Failing,
}

impl ShardFault {
    /// Returns whether the shard answers nothing and takes nothing.
    pub fn is_out_of_use(self) -> bool {
        matches!(self, Self::Damaged | Self::Unsupported)
    }
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
    /// Flushes that nobody asked for, among those.
    pub periodic_flushes: u64,
    /// Operations in the log that are in no stored segment yet.
    pub log_operations: u64,
    /// Bytes of their documents.
    pub log_bytes: u64,
    /// Time at which the oldest of them arrived, in milliseconds.
    pub log_since_ms: Option<i64>,
    /// Compactions since start.
    pub merge_total: u64,
    /// Snapshots handed to searches since start.
    pub query_total: u64,
    /// Scrolls over the shard.
    pub scrolls: ContextFigures,
    /// Points in time over the shard.
    pub points_in_time: ContextFigures,
    /// Cursors of statements over the shard.
    pub cursors: ContextFigures,
}

/// Sizes of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFigures {
    /// Number of the segment in its shard; never used again for another.
    pub number: u64,
    /// Live documents.
    pub docs: u64,
    /// Rows of deleted documents.
    pub deleted: u64,
    /// Bytes of its files, 0 in memory.
    pub store_bytes: u64,
    /// Number of its files, 0 in memory.
    pub files: u64,
    /// Bytes held in memory.
    pub memory_bytes: u64,
    /// `true` if it is stored.
    pub committed: bool,
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
