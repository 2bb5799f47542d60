//! The crate's one error type, and what a caller should do about each kind of it.

/// Remedy of a caller for an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The rule is wrong and will stay wrong: change it.
    InvalidInput,
    /// The rule exceeds a bound: make it smaller.
    TooLarge,
    /// Stored bytes are not what was written: begin with empty state.
    Corrupt,
}

/// Everything that can go wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field of a rule is missing, of the wrong type, or out of range.
    #[error("[{field}] {reason}")]
    Invalid {
        /// Name of the field, as users write it.
        field: String,
        /// Problem of it, and the allowed values.
        reason: String,
    },
    /// A part of a rule is larger than its bound.
    #[error("[{field}] has {size} {unit}, at most {bound} are allowed")]
    TooLarge {
        /// Name of the field.
        field: String,
        /// Its size.
        size: usize,
        /// Counted unit: bytes, entries.
        unit: &'static str,
        /// The bound.
        bound: usize,
    },
    /// A snapshot cannot be decoded.
    #[error("snapshot of rules cannot be read: {0}")]
    Corrupt(&'static str),
}

impl Error {
    /// Returns the remedy of the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } => Kind::InvalidInput,
            Self::TooLarge { .. } => Kind::TooLarge,
            Self::Corrupt(_) => Kind::Corrupt,
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }
}

/// Result of reading a rule or its state.
pub type Result<T, E = Error> = std::result::Result<T, E>;
