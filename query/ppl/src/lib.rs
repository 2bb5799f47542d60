//! PPL, the pipe language over indices.
//!
//! [`parse`] reads a text into a [`PipedQuery`](ast::PipedQuery): a source and commands behind pipes. `ast` has the types that
//! commands share. `command` has a file a command, with its type and its syntax; `parser` reads the rest. Expressions are
//! those of sqlparser, so that the binder of SQL types them. A [`ParseError`] has the position, the expected tokens and the
//! nearest name. [`reference`] lists every command, option and function; [`completions`] names the tokens at a cursor.

pub mod answer;
pub mod ast;
pub mod command;
mod completion;
mod error;
pub mod fuzzing;
mod parser;
pub mod plan;
pub mod reference;
mod suggestion;
#[cfg(test)]
mod tests;

pub use completion::{
    CandidateKind, CompletionCandidate, CompletionNames, compared_field, completions, source_of,
};
pub use error::{ParseError, ParseErrorKind};
pub use parser::{MAX_BYTES, parse};
