//! Why the process ends, and with which exit code. `--help` lists the codes.

use std::fmt;

use millrace_runtime::{Error, Kind};

/// One line for stderr and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    const OTHER: u8 = 1;
    const CONFIG: u8 = 3;
    const LISTEN: u8 = 4;
    const LOCKED: u8 = 5;
    const DATA: u8 = 6;
    const MISMATCH: u8 = 7;
    /// Exit code after a second signal.
    pub(crate) const INTERRUPTED: u8 = 130;

    fn new(code: u8, error: impl fmt::Display) -> Self {
        // The alternate form of `anyhow` joins causes with colons; one failure stays one line.
        Self { code, message: format!("{error:#}").replace('\n', " ") }
    }

    /// The configuration is wrong.
    pub(crate) fn config(error: anyhow::Error) -> Self {
        Self::new(Self::CONFIG, error)
    }

    /// A listener cannot be opened.
    pub(crate) fn listen(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(Self::LISTEN, anyhow::Error::new(error))
    }

    /// The store cannot be opened.
    pub(crate) fn open(error: Error) -> Self {
        let code = match (&error, error.kind()) {
            (Error::Locked(_), _) => Self::LOCKED,
            (Error::Mismatch { .. }, _) => Self::MISMATCH,
            (_, Kind::InvalidInput) => Self::CONFIG,
            _ => Self::DATA,
        };
        Self::new(code, error)
    }

    /// The data directory is another process's, and there is another way to what was wanted.
    pub(crate) fn or(self, way: &str) -> Self {
        if self.code != Self::LOCKED {
            return self;
        }
        Self { message: format!("{}; {way}", self.message), ..self }
    }

    /// Anything else.
    pub(crate) fn other(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Self::OTHER, error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_one_line_with_their_own_code() {
        let failure = Failure::open(Error::Locked("data".to_owned()));
        assert_eq!(failure.code, 5);
        let mismatch = Error::Mismatch { what: "two stores".to_owned(), remedy: "choose one".to_owned() };
        let failure = Failure::open(mismatch);
        assert_eq!(failure.code, 7);
        assert_eq!(failure.to_string(), "two stores; choose one; nothing was changed");
        let corrupt =
            Error::Corrupt { file: "wal/1".to_owned(), offset: 7, reason: "checksum\nbroken".into() };
        let failure = Failure::open(corrupt);
        assert_eq!(failure.code, 6);
        assert_eq!(failure.to_string(), "corrupt file [wal/1] at offset 7: checksum broken");
    }
}
