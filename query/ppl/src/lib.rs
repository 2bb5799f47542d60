//! PPL, the pipe language over indices.
//!
//! [`parse`] reads a text into a [`PipedQuery`](ast::PipedQuery): a source and commands behind pipes. `ast` has the types that
//! commands share, `command` a file a command with its type and its syntax, `parser` the rest of the syntax. Expressions are
//! those of sqlparser, so that the binder of SQL types them. A [`ParseError`] has the position, the expected tokens and the
//! nearest name.

pub mod answer;
pub mod ast;
pub mod command;
pub mod plan;
mod error;
mod parser;
mod suggestion;

pub use error::{ParseError, ParseErrorKind};
pub use parser::{MAX_BYTES, parse};
