//! Analyzers: text to tokens, as Lucene cuts it.
//!
//! [`Analyzers`] holds the analyzers and normalizers of one index, built once from its settings
//! (`index.analysis.*`); an [`Analyzer`] is a tokenizer followed by filters. The mapping
//! keeps the `Analyzers` of its index; the [`bundle`](crate::bundle) builder feeds every distinct
//! text value through one, and queries feed their text through the same one.
//!
//! There is one file a family of tokenizers or filters; to add a type, implement
//! `tokenizer::Tokenizer` or `filter::Filter` and name it in `registry`. A type that is not
//! built is refused at index creation with OpenSearch's message: an analyzer that did something
//! else than its name says would corrupt an index silently.

mod analyzer;
pub(crate) mod filter;
mod registry;
mod settings;
pub(crate) mod tokenizer;

#[cfg(test)]
mod tests;

pub use analyzer::{Analyzer, Token};
pub use registry::Analyzers;
