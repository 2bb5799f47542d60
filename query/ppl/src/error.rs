//! The error of a text that is no PPL, with its position.

use std::fmt;

/// A text that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The reason.
    pub kind: ParseErrorKind,
    /// The offset of the offending token, in bytes.
    pub offset: usize,
    /// The line of that token, from 1.
    pub line: usize,
    /// The column of that token in characters, from 1.
    pub column: usize,
    /// The message: offending token, position, expected tokens.
    pub message: String,
    /// A name that is near the one that was written, or the way to say it.
    pub suggestion: Option<String>,
}

/// Reasons of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// The text does not follow the syntax.
    Syntax,
    /// The text asks for something that Millrace refuses by name.
    Unsupported,
    /// The text is longer or nested deeper than the bounds allow.
    TooLarge,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ParseError {}
