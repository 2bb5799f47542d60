//! Operations on documents, their outcomes, and the writes of sources: what writers hand to a store, and what it answers.
//!
//! A [`WriteOp`] says which [`Action`] a document takes; [`WriteOutcome`] acknowledges it. A source hands its operations and the moves
//! of its positions over in one [`SourceWrite`], with an [`OnReject`] for each operation that is refused for good. The types know no
//! store: pipelines, outputs and statements make operations without the engine.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use millrace_mapping::source::ObjectText;
use millrace_runtime::Error;

use crate::access;
use crate::frame::PositionDelta;

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

/// Write of a source at once.
#[derive(Debug, Default)]
pub struct SourceWrite {
    /// Operations of its events, with the rights of the principal that writes.
    pub ops: Vec<WriteOp>,
    /// The server's own, with its rights: dead letters and the removal of them. They follow the others.
    pub own: Vec<WriteOp>,
    /// Moves of positions.
    pub moves: Vec<PositionDelta>,
}

/// Says what takes the place of an operation that is refused for good, with the reason.
pub type DeadLetter = Arc<dyn Fn(&WriteOp, &Error) -> OnReject + Send + Sync>;

/// Substitute of an operation that is refused for good.
#[derive(Debug)]
pub enum OnReject {
    /// A dead letter, written with the rights of the server: nothing in it but its contents may be the event's choice.
    DeadLetter(WriteOp),
    /// Nothing: the rest is written without it.
    Skip,
    /// Nothing, and the rest is not written either.
    Abort,
}

impl From<Option<WriteOp>> for OnReject {
    fn from(letter: Option<WriteOp>) -> Self {
        letter.map_or(Self::Skip, Self::DeadLetter)
    }
}
