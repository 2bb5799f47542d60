//! The crate's one error type, and what a caller should do about each kind of it.

use std::fmt;

use millrace_runtime::{Kind, catch_panic};

/// Longest text of a panic, in bytes.
const MAX_PANIC: usize = 500;

/// Result of an operation on AI rules.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with AI rules.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field cannot be used.
    #[error("[{field}] {reason}")]
    Invalid {
        /// Its name.
        field: String,
        /// The reason why it is refused.
        reason: String,
    },
    /// There is no such rule, or none that the asker may see.
    #[error("no such AI rule [{0}]")]
    NotFound(String),
    /// Somebody else has changed the rule meanwhile, it runs already, or its name is another one's.
    #[error("{0}")]
    Conflict(String),
    /// The caller may not do that.
    #[error("{0}")]
    Forbidden(String),
    /// There are as many as there may be.
    #[error("{0}")]
    TooMany(String),
    /// A run cannot be done: its rule or what it reads has to be another.
    #[error("{0}")]
    Run(String),
    /// A model has panicked, which is a defect of the server.
    #[error(
        "the model has failed, which is a defect of the server: {0}; another [algorithm], or a run over other documents, may do"
    )]
    ModelFailed(String),
    /// The predictions cannot be stored.
    #[error("{0}")]
    Stored(String),
    /// The series cannot be forecast.
    #[error(transparent)]
    Forecast(#[from] millrace_forecast::Error),
    /// A search is refused or fails.
    #[error("{}", reason_of(.0))]
    Query(#[from] millrace_query::Error),
    /// The store refused or failed.
    #[error(transparent)]
    Storage(#[from] millrace_runtime::Error),
}

/// Says why a search failed: where all shards refused it, why the first did.
fn reason_of(error: &millrace_query::Error) -> String {
    match error {
        millrace_query::Error::SearchPhase { failures } => match failures.first() {
            Some(first) => format!("the search failed: {}", first.reason),
            None => error.to_string(),
        },
        _ => error.to_string(),
    }
}

impl Error {
    /// Makes the refusal of a field.
    pub(crate) fn invalid(field: &str, reason: impl fmt::Display) -> Self {
        Self::Invalid { field: field.to_owned(), reason: reason.to_string() }
    }

    /// Returns the remedy of the caller; the error of a query has its own.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } | Self::Run(_) | Self::Stored(_) | Self::Forecast(_) | Self::Query(_) => {
                Kind::InvalidInput
            }
            Self::NotFound(_) => Kind::NotFound,
            Self::Conflict(_) => Kind::Conflict,
            Self::Forbidden(_) => Kind::Unauthorized,
            Self::TooMany(_) => Kind::TooLarge,
            Self::ModelFailed(_) => Kind::Internal,
            Self::Storage(error) => error.kind(),
        }
    }
}

/// Runs work of a model, and returns the text of its panic. What the work has changed by then must not be used any more.
pub(crate) fn catch_model_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_panic(work, MAX_PANIC)
}
