//! PPL, the pipe language over indices.
//!
//! `ast` has the types that commands share, `command` a file a command with its type and its syntax. A query is a source and
//! commands behind pipes. Expressions are those of sqlparser, so that the binder of SQL types them.

pub mod ast;
pub mod command;
pub mod error;
pub mod plan;
