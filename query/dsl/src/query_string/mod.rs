//! The two query string languages: text to a syntax tree, independent of any index.
//!
//! [`parse`] reads Lucene's classic syntax as `query_string` and the parameter `q` have it
//! ([`lexer`], [`parser`], [`syntax`]); [`simple`] reads the syntax of `simple_query_string`, in which
//! every text means something. `table::resolve` gives both trees their meaning for an index.
//! Length, nesting and clauses are bounded here, before anything recurses over a tree.

mod escape;
mod expected;
mod lexer;
mod parser;
pub mod simple;
pub mod syntax;
#[cfg(test)]
mod tests;

pub use escape::escape;
pub use parser::{ParsedQuery, parse};

/// Reads a number: digits, not the names of what is none.
pub fn number(text: &str) -> Option<f32> {
    let digits = text.bytes().any(|byte| byte.is_ascii_digit());
    digits.then(|| text.trim().parse().ok()).flatten()
}

/// Why a text is not in the language, as Lucene words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError(pub String);
