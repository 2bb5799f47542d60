//! The crate's errors: of changes of accounts ([`Error`]), and of requests that nobody is known to have sent
//! ([`Refusal`]).

use std::time::Duration;

use millrace_runtime::Kind;

/// Result of an operation on accounts.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why accounts cannot be read or changed as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request's content cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// There is no such thing.
    #[error("{what} [{name}] not found")]
    NotFound {
        /// Such as `user`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// Another one stands in the way.
    #[error("{0}")]
    Conflict(String),
    /// It is built in, and cannot be changed like that.
    #[error("{what} [{name}] is reserved and cannot be {change}")]
    Reserved {
        /// Such as `role`.
        what: &'static str,
        /// Its name.
        name: String,
        /// Attempted change, such as `deleted`.
        change: &'static str,
    },
    /// The caller may not have that.
    #[error("{0}")]
    Forbidden(String),
    /// A bound on what there may be is reached.
    #[error("there are more {what} than the limit of [{limit}]")]
    TooMany {
        /// Things that exceed the limit.
        what: &'static str,
        /// Largest number that is allowed.
        limit: usize,
    },
    /// There is no place for it now: try again later.
    #[error("{reason}")]
    Later {
        /// Exhausted resource.
        reason: &'static str,
        /// Time after which to try again.
        after: Duration,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] millrace_runtime::Error),
    /// A defect of this program, or of the system that it runs on.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// Returns the remedy of the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid(_) => Kind::InvalidInput,
            Self::NotFound { .. } => Kind::NotFound,
            Self::Conflict(_) => Kind::Conflict,
            Self::Reserved { .. } | Self::Forbidden(_) => Kind::Forbidden,
            Self::TooMany { .. } => Kind::TooLarge,
            Self::Later { .. } => Kind::Overloaded,
            Self::Store(error) => error.kind(),
            Self::Internal(_) => Kind::Internal,
        }
    }

    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        Self::Internal(error.to_string())
    }
}

/// Why it is not known who sent a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are no credentials, or wrong ones: send others.
    #[error("{0}")]
    Unauthenticated(String),
    /// There is no telling now: try again later.
    #[error("{reason}")]
    Later {
        /// Exhausted resource.
        reason: &'static str,
        /// Time after which to try again, in whole seconds.
        after: Duration,
    },
    /// The check itself failed. The text is for the log.
    #[error("{0}")]
    Failed(String),
}
