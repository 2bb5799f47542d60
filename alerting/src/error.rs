//! The crate's one error type, and what a caller should do about each kind of it.

use millrace_storage::Kind;

/// Result of an operation on rules.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with rules at work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The definition of a rule, or its stored state, cannot be used.
    #[error(transparent)]
    Rule(#[from] millrace_rules::Error),
    /// What is asked of a rule cannot be done.
    #[error("{0}")]
    Invalid(String),
    /// There is no such rule, or none that the asker may see.
    #[error("no such rule [{0}]")]
    NotFound(String),
    /// There is no such alert, or none that the asker may see.
    #[error("no such alert [{0}]")]
    NoAlert(String),
    /// Somebody else has changed the rule meanwhile, or it would stand in for two.
    #[error("{0}")]
    Conflict(String),
    /// There are as many as there may be.
    #[error("{0}")]
    TooMany(String),
    /// A filter cannot be compiled or asked.
    #[error("[search.request.body] {0}")]
    Filter(#[from] millrace_query::Error),
    /// What a rule says of notifications cannot be used, or is too much at once.
    #[error(transparent)]
    Notifications(#[from] millrace_notifications::Error),
    /// The store refused or failed.
    #[error(transparent)]
    Storage(#[from] millrace_storage::Error),
}

impl Error {
    /// Tells what the caller can do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Rule(error) => match error.kind() {
                millrace_rules::Kind::InvalidInput => Kind::InvalidInput,
                millrace_rules::Kind::TooLarge => Kind::TooLarge,
                millrace_rules::Kind::Corrupt => Kind::Corrupt,
            },
            Self::Invalid(_) | Self::Filter(_) => Kind::InvalidInput,
            Self::NotFound(_) | Self::NoAlert(_) => Kind::NotFound,
            Self::Conflict(_) => Kind::Conflict,
            Self::TooMany(_) => Kind::TooLarge,
            Self::Notifications(error) => error.kind(),
            Self::Storage(error) => error.kind(),
        }
    }
}
