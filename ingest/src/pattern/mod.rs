//! Regular expressions, and grok patterns, which are put together from named ones.
//!
//! A [`Library`] has definitions: those that every installation knows, those of `patterns_dir`, and those of
//! `pattern_definitions`. [`Pattern::compile`] replaces `%{NAME:field:type}` by what the library says (`expand`).
//! [`Expression`] is a regular expression by itself, for searching and replacing.
//!
//! Both are turned from the syntax of Oniguruma, in which Logstash's users write, into that of PCRE2 (`translate`), and
//! matched in one way (`regex`): until a [`Deadline`], whatever the expression and the text.
//!
//! The filters `grok`, `kv` and `mutate`, conditions and the codec `multiline` use it.

mod captures;
mod deadline;
mod expand;
mod expression;
mod library;
mod matcher;
mod native;
mod regex;
mod translate;

pub use captures::put_capture;
pub use deadline::Deadline;
pub use expression::{Expression, Replacement};
pub use library::Library;
pub use matcher::{Capture, Captures, Kind, MatchStopped, Pattern};

#[cfg(test)]
mod tests;
