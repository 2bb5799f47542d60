//! The crate's error type, in OpenSearch's words where it has them.

use millrace_runtime::Kind;

/// Result of an operation on snapshots.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with repositories and snapshots.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No repository of that name is registered.
    #[error("[{repository}] missing")]
    RepositoryMissing {
        /// Name of the repository.
        repository: String,
    },
    /// The repository cannot be used: its settings, its content, or the store behind it.
    #[error("[{repository}] {reason}")]
    Repository {
        /// Name of the repository.
        repository: String,
        /// The cause, and the remedy.
        reason: String,
    },
    /// The repository does not keep what is written there.
    #[error("[{repository}] {reason}")]
    Verification {
        /// Name of the repository.
        repository: String,
        /// The step that failed.
        reason: String,
    },
    /// The repository is in use.
    #[error("trying to modify or unregister repository [{repository}] that is currently used")]
    RepositoryBusy {
        /// Name of the repository.
        repository: String,
    },
    /// No snapshot of that name.
    #[error("[{repository}:{snapshot}] is missing")]
    SnapshotMissing {
        /// Name of the repository.
        repository: String,
        /// Name of the snapshot.
        snapshot: String,
    },
    /// The name cannot be that of a new snapshot.
    #[error("[{repository}:{snapshot}] Invalid snapshot name [{snapshot}], {reason}")]
    InvalidSnapshotName {
        /// Name of the repository.
        repository: String,
        /// Name of the snapshot.
        snapshot: String,
        /// Why it is refused.
        reason: String,
    },
    /// Another operation on the snapshot is under way.
    #[error("[{repository}:{snapshot}] {reason}")]
    Concurrent {
        /// Name of the repository.
        repository: String,
        /// Name of the snapshot.
        snapshot: String,
        /// The other operation.
        reason: String,
    },
    /// The snapshot cannot be made.
    #[error("[{repository}:{snapshot}] {reason}")]
    Snapshot {
        /// Name of the repository.
        repository: String,
        /// Name of the snapshot.
        snapshot: String,
        /// The failure, by name of index and file.
        reason: String,
    },
    /// The snapshot cannot be restored.
    #[error("[{repository}:{snapshot}] {reason}")]
    Restore {
        /// Name of the repository.
        repository: String,
        /// Name of the snapshot.
        snapshot: String,
        /// The failure, by name of index and file.
        reason: String,
    },
    /// A member or parameter has a value that cannot be used.
    #[error("{0}")]
    IllegalArgument(String),
    /// The store's own.
    #[error(transparent)]
    Store(#[from] millrace_runtime::Error),
}

impl Error {
    /// Returns the kind, which tells a caller what to do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::RepositoryMissing { .. } | Self::SnapshotMissing { .. } => Kind::NotFound,
            Self::InvalidSnapshotName { .. } | Self::IllegalArgument(_) => Kind::InvalidInput,
            Self::Concurrent { .. } | Self::RepositoryBusy { .. } => Kind::Conflict,
            Self::Repository { .. }
            | Self::Verification { .. }
            | Self::Snapshot { .. }
            | Self::Restore { .. } => Kind::Unavailable,
            Self::Store(error) => error.kind(),
        }
    }
}
