//! The crate's one error type, and what a caller should do about each kind of it.

use millrace_runtime::Kind;

/// Result of an operation on policies.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with policies.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A body cannot be read as a policy or as a request about one.
    #[error("{0}")]
    Invalid(String),
    /// There is no such policy.
    #[error("{0}")]
    NotFound(String),
    /// Another change of the policy came first.
    #[error("{0}")]
    Conflict(String),
    /// There are as many policies as there may be.
    #[error("{0}")]
    TooMany(String),
    /// The snapshot of that name is of another index, or lacks a part of this one.
    #[error("snapshot [{snapshot}] does not have all of index [{index}]; the next try makes another one")]
    ForeignSnapshot {
        /// Repository and name of the snapshot.
        snapshot: String,
        /// Name of the index.
        index: String,
    },
    /// A notification was not sent.
    #[error("the notification was not sent: {0}")]
    Notification(String),
    /// A snapshot or its repository failed.
    #[error(transparent)]
    Snapshot(#[from] millrace_snapshot::Error),
    /// The store refused or failed.
    #[error(transparent)]
    Storage(#[from] millrace_runtime::Error),
}

impl Error {
    /// Returns the remedy of the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid(_) => Kind::InvalidInput,
            Self::NotFound(_) => Kind::NotFound,
            Self::Conflict(_) | Self::ForeignSnapshot { .. } => Kind::Conflict,
            Self::TooMany(_) => Kind::TooLarge,
            Self::Notification(_) | Self::Snapshot(_) => Kind::Unavailable,
            Self::Storage(error) => error.kind(),
        }
    }
}
