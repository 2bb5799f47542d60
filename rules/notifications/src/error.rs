//! The crate's one error type, and what a caller should do about each kind of it.

use millrace_runtime::Kind;

/// Result of an operation on notifications.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with notifications that are not under way yet.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that was asked cannot be done.
    #[error("[{field}] {reason}")]
    Invalid {
        /// The field.
        field: String,
        /// The reason why it is refused.
        reason: String,
    },
    /// Secrets cannot be kept.
    #[error("secrets cannot be kept: set notifications.secret_key in the server's configuration")]
    NoKey,
    /// There are as many as there may be, or as many things under way.
    #[error("{0}")]
    Busy(String),
    /// The configuration cannot be used.
    #[error("notifications.{0}")]
    Config(String),
    /// The store refused or failed.
    #[error(transparent)]
    Storage(#[from] millrace_runtime::Error),
    /// Something that cannot be has happened.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// Returns the remedy of the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } | Self::NoKey | Self::Config(_) => Kind::InvalidInput,
            Self::Busy(_) => Kind::Overloaded,
            Self::Storage(error) => error.kind(),
            Self::Internal(_) => Kind::Internal,
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }
}
