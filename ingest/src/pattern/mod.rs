//! Grok patterns: regular expressions put together from named ones.
//!
//! A [`Library`] has definitions: those that every installation knows, those of `patterns_dir`, and those of
//! `pattern_definitions`. [`Pattern::compile`] replaces `%{NAME:field:type}` by what the library says (`expand`),
//! turns the result from the syntax of Oniguruma, in which Logstash's users write, into that of PCRE2 (`translate`), and
//! compiles it. Matching is bounded in steps, see [`Bounds`].
//!
//! [`Expression`] is a regular expression by itself, in the same syntax and with the same bounds, for searching and replacing.
//!
//! The filter `grok` and the codec `multiline` use it.

mod expand;
mod expression;
mod library;
mod matcher;
mod translate;

pub use expression::{Expression, Replacement};
pub use library::Library;
pub use matcher::{Bounds, Capture, Captures, Kind, Pattern, Stopped};

#[cfg(test)]
mod tests;
