//! The crate's one error type and what a caller should do about each kind of it.
//!
//! Variants name the thing that went wrong in the vocabulary of the store; `millrace-api` alone
//! translates them into HTTP statuses and Elasticsearch-shaped bodies, by [`Error::kind`] for the
//! status and by variant for the exception name.

use std::io;

/// Result of a storage operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Remedy of a caller for an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong and will stay wrong: change it.
    InvalidInput,
    /// The named thing does not exist.
    NotFound,
    /// The request lost against the current state: read again, then decide.
    Conflict,
    /// The request exceeds a bound: send less.
    TooLarge,
    /// The node is short of a resource: retry later.
    Overloaded,
    /// The request is well formed but forbidden by a block or a setting.
    Forbidden,
    /// The caller may not do that: ask an administrator of roles.
    Unauthorized,
    /// Stored bytes are not what was written: restore them; never retried.
    Corrupt,
    /// A dependency (disk, object store, catalog) failed: retry once it is back.
    Unavailable,
    /// A defect of this program.
    Internal,
}

/// Everything that can go wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No index, alias or matching expression of that name.
    #[error("no such index [{index}]")]
    IndexNotFound {
        /// Name or expression as the caller gave it.
        index: String,
    },
    /// A write names a missing index that must not be created by it. It is an index that was not found.
    #[error("no such index [{index}] {reason}")]
    AutoCreateRefused {
        /// Name as the caller gave it.
        index: String,
        /// The rule of `action.auto_create_index` that refuses it.
        reason: String,
    },
    /// The index (or an alias of that name) is there already.
    #[error("index [{index}/{uuid}] already exists")]
    IndexAlreadyExists {
        /// Name of the existing index.
        index: String,
        /// Its uuid.
        uuid: String,
    },
    /// The data stream is there already.
    #[error("data_stream [{name}] already exists")]
    DataStreamAlreadyExists {
        /// Name of the existing data stream.
        name: String,
    },
    /// The caller's roles do not allow it.
    #[error("action [{action}] is unauthorized for {caller}{}", on(.index))]
    Unauthorized {
        /// Name of the action.
        action: &'static str,
        /// Caller, as `user [ann]`.
        caller: String,
        /// Index or expression as the caller gave it; `None` where it is not allowed on any.
        index: Option<String>,
    },
    /// The index is closed.
    #[error("closed")]
    IndexClosed {
        /// Name of the closed index.
        index: String,
    },
    /// The name cannot be an index name.
    #[error("Invalid index name [{index}], {reason}")]
    InvalidIndexName {
        /// The offending name.
        index: String,
        /// Why it is refused.
        reason: String,
    },
    /// The name cannot be an alias name.
    #[error("Invalid alias name [{alias}]: {reason}")]
    InvalidAliasName {
        /// The offending name.
        alias: String,
        /// Why it is refused.
        reason: String,
    },
    /// One or more aliases are missing.
    #[error("aliases [{aliases}] missing")]
    AliasesNotFound {
        /// Comma-separated missing aliases.
        aliases: String,
    },
    /// No index template of that name.
    #[error("index_template [{name}] missing")]
    TemplateNotFound {
        /// Name or pattern as the caller gave it.
        name: String,
    },
    /// A parameter, setting or body member has a value that cannot be used.
    #[error("{0}")]
    IllegalArgument(String),
    /// An operation without the routing value that the mapping requires.
    #[error("routing is required for [{index}]/[_doc]/[{id}]")]
    RoutingMissing {
        /// Index of the document.
        index: String,
        /// Id of the document.
        id: String,
    },
    /// A body of a request has a member that is not known there, or not of that form.
    #[error("{0}")]
    Parse(String),
    /// A name, template or request is refused by a validation rule.
    #[error("Validation Failed: {0}")]
    Validation(String),
    /// A mapping or a document does not fit: the message names the field.
    #[error("{reason}")]
    MapperParsing {
        /// Mismatch, with the field's name.
        reason: String,
        /// The cause below, as `(type, reason)`.
        caused_by: Option<(String, String)>,
    },
    /// A new field under `dynamic: strict`.
    #[error("mapping set to strict, dynamic introduction of [{field}] within [{parent}] is not allowed")]
    StrictDynamicMapping {
        /// The new field's name.
        field: String,
        /// The object that refuses it, `_doc` at the root.
        parent: String,
    },
    /// Optimistic concurrency control or `op_type=create` lost.
    #[error("[{id}]: version conflict, {reason}")]
    VersionConflict {
        /// Index of the document.
        index: String,
        /// Uuid of that index.
        index_uuid: String,
        /// Shard of the document.
        shard: u32,
        /// Id of the document.
        id: String,
        /// Expected against found.
        reason: String,
    },
    /// The position of a source is not what its batch comes from: it was stored already, or the part has
    /// another owner now. To be read again from the stored position.
    #[error("position of [{source_id}/{partition}] of pipeline [{pipeline}] was moved by another owner")]
    PositionMoved {
        /// Pipeline of the source.
        pipeline: String,
        /// Natural identity of the source.
        source_id: String,
        /// Part of the source.
        partition: String,
    },
    /// The substitute of a refused operation is refused as well.
    #[error("dead letter cannot be written: {0}")]
    DeadLetterRefused(String),
    /// An update of a document that does not exist.
    #[error("[{doc_type}][{id}]: document missing")]
    DocumentMissing {
        /// Index of the document.
        index: String,
        /// Uuid of that index.
        index_uuid: String,
        /// Shard that the document would be in.
        shard: u32,
        /// Type segment that the request named, `_doc` otherwise.
        doc_type: String,
        /// Id of the document.
        id: String,
    },
    /// An update of a document whose index keeps no source of documents.
    #[error("[{doc_type}][{id}]: document source missing")]
    DocumentSourceMissing {
        /// Index of the document.
        index: String,
        /// Uuid of that index.
        index_uuid: String,
        /// Shard of the document.
        shard: u32,
        /// Type segment that the request named, `_doc` otherwise.
        doc_type: String,
        /// Id of the document.
        id: String,
    },
    /// A block of the index or the cluster forbids the operation.
    #[error("index [{index}] blocked by: [{reason}];")]
    Blocked {
        /// Index that carries the block.
        index: String,
        /// Level and description, such as `FORBIDDEN/8/index write (api)`.
        reason: String,
    },
    /// A bound on bytes was exceeded.
    #[error("{0}")]
    TooLarge(String),
    /// Memory for unflushed writes, a queue or the disk is full.
    #[error("rejected execution: {0}")]
    Rejected(String),
    /// Stored bytes fail their checksum or format.
    #[error("corrupt file [{file}] at offset {offset}: {reason}")]
    Corrupt {
        /// Path or object key.
        file: String,
        /// Byte offset of the damage, 0 where only the file is known.
        offset: u64,
        /// Expected and actual content.
        reason: String,
    },
    /// The stored settings or mapping of an index are none that this version accepts. The index is out of use; its files stay.
    #[error(
        "index [{index}] is out of use, as this version does not accept its settings or mapping: {reason}; start the version that \
         wrote them, or delete the index"
    )]
    IndexUnsupported {
        /// Name of the index.
        index: String,
        /// Refusal of the settings or the mapping.
        reason: String,
    },
    /// Catalog, log and object store are not of one store, or not of one time. Nothing was changed.
    #[error("{what}; {remedy}; nothing was changed")]
    Mismatch {
        /// Difference, with names and ids.
        what: String,
        /// Remedy of the problem.
        remedy: String,
    },
    /// The data directory belongs to another running process.
    #[error("data directory [{0}] is locked by another process; stop it or choose another --data directory")]
    Locked(String),
    /// A file operation failed.
    #[error("{operation} [{path}]: {source}")]
    Io {
        /// Attempted operation.
        operation: &'static str,
        /// The path it was attempted on.
        path: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The object store failed.
    #[error("object store: {0}")]
    ObjectStore(#[from] object_store::Error),
    /// The catalog failed.
    #[error("catalog: {0}")]
    Catalog(#[from] sqlx::Error),
    /// Arrow or Parquet refused data that this program made.
    #[error("columnar data: {0}")]
    Columnar(String),
    /// The node has stopped accepting writes, after a failed fsync or at shutdown.
    #[error("node is not accepting writes: {0}")]
    Stopped(String),
    /// No caller waits for the work any more.
    #[error("the work was cancelled")]
    Cancelled,
    /// A defect of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

/// Names the index of a refusal.
fn on(index: &Option<String>) -> String {
    index.as_ref().map_or_else(String::new, |index| format!(" on indices [{index}]"))
}

impl Error {
    /// Returns the kind, which tells a caller what to do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::IndexNotFound { .. }
            | Self::AutoCreateRefused { .. }
            | Self::AliasesNotFound { .. }
            | Self::TemplateNotFound { .. }
            | Self::DocumentMissing { .. } => Kind::NotFound,
            Self::IndexAlreadyExists { .. }
            | Self::DataStreamAlreadyExists { .. }
            | Self::IndexClosed { .. }
            | Self::InvalidIndexName { .. }
            | Self::InvalidAliasName { .. }
            | Self::DocumentSourceMissing { .. }
            | Self::IllegalArgument(_)
            | Self::Parse(_)
            | Self::RoutingMissing { .. }
            | Self::Validation(_)
            | Self::MapperParsing { .. }
            | Self::StrictDynamicMapping { .. } => Kind::InvalidInput,
            Self::VersionConflict { .. } | Self::PositionMoved { .. } => Kind::Conflict,
            Self::Blocked { .. } => Kind::Forbidden,
            Self::Unauthorized { .. } => Kind::Unauthorized,
            Self::TooLarge(_) => Kind::TooLarge,
            Self::Rejected(_) => Kind::Overloaded,
            Self::Corrupt { .. } | Self::IndexUnsupported { .. } | Self::Mismatch { .. } => Kind::Corrupt,
            Self::Locked(_)
            | Self::Io { .. }
            | Self::ObjectStore(_)
            | Self::Catalog(_)
            | Self::DeadLetterRefused(_)
            | Self::Cancelled
            | Self::Stopped(_) => Kind::Unavailable,
            Self::Columnar(_) | Self::Internal(_) => Kind::Internal,
        }
    }

    /// Makes an [`Error::Io`].
    pub fn io(operation: &'static str, path: impl AsRef<std::path::Path>, source: io::Error) -> Self {
        Self::Io { operation, path: path.as_ref().display().to_string(), source }
    }

    /// Makes an [`Error::MapperParsing`] without a cause.
    pub fn mapper_parsing(reason: impl Into<String>) -> Self {
        Self::MapperParsing { reason: reason.into(), caused_by: None }
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::Columnar(error.to_string())
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        match error {
            parquet::errors::ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(error) => Self::io("write", "a segment", *error),
                Err(inner) => Self::Columnar(inner.to_string()),
            },
            other => Self::Columnar(other.to_string()),
        }
    }
}
