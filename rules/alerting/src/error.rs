//! The crate's one error type, and what a caller should do about each kind of it.

use millrace_percolator::reason_of;
use millrace_runtime::Kind;

/// Result of an operation on rules.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with rules at work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The definition of a rule, or its stored state, cannot be used.
    #[error(transparent)]
    Rule(#[from] millrace_rules::Error),
    /// A request about a rule cannot be carried out.
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
    #[error("[search.request.body] {}", reason_of(.0))]
    Filter(#[from] millrace_query::Error),
    /// A rule's notifications cannot be used, or are too much at once.
    #[error(transparent)]
    Notifications(#[from] millrace_notifications::Error),
    /// The store refused or failed.
    #[error(transparent)]
    Storage(#[from] millrace_runtime::Error),
}

impl Error {
    /// Returns the remedy of the caller.
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

#[cfg(test)]
mod tests {
    use millrace_query::Error as QueryError;

    use super::*;

    #[test]
    fn the_reason_comes_first_and_is_bounded() {
        let name = "missing".to_owned();
        let unknown = QueryError::UnknownQuery { reason: "unknown query [missing]".to_owned(), name };
        let inside = QueryError::unread_member("bool", "filter", unknown);
        let error = Error::from(QueryError::unread_member("bool", "must", inside));
        assert_eq!(
            error.to_string(),
            "[search.request.body] unknown query [missing] ([bool] failed to parse field [filter])"
        );
        let long = Error::from(QueryError::Parsing("x".repeat(250_000)));
        assert!(long.to_string().len() < 1_100);
    }
}
