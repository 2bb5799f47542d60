//! Analyzers: text to tokens, as Lucene cuts it.
//!
//! [`Analyzers`] holds the analyzers and normalizers of one index, built once from its settings
//! (`index.analysis.*`); an [`Analyzer`] is character filters, a tokenizer, and filters behind it. The
//! mapping keeps the `Analyzers` of its index; the `bundle` of `millrace-segment` builder feeds every distinct
//! text value through one, and queries feed their text through the same one.
//!
//! There is one file a family of character filters (`char_filter`), tokenizers (`tokenizer`) and token
//! filters (`filter`); what belongs to a language is in `language`. To add a type, implement the trait
//! of its kind and name it in `build`. A type that is not built is refused at index creation with
//! OpenSearch's message: an analyzer that did something else than its name says would corrupt an index
//! silently.

mod allowance;
mod analyzer;
mod as_you_type;
mod build;
pub(crate) mod char_filter;
pub(crate) mod filter;
mod language;
mod paths;
mod pattern;
mod registry;
mod settings;
mod synonyms;
pub(crate) mod tokenizer;

#[cfg(test)]
mod analyze_tests;
#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod tests;

pub use analyzer::{Analyzer, AnalyzerComponents, Outcome, Token};
pub use as_you_type::{AsYouTypeSubfield, shingles};
pub use char_filter::strip_html;
pub use filter::Shingles;
pub use paths::{SEPARATOR, paths};
pub(crate) use pattern::JavaPattern;
pub use registry::Analyzers;

/// A component as a request names or describes it.
#[derive(Clone, Debug)]
pub enum Component {
    /// One of the index, or one that every index has.
    Named(String),
    /// One that the request defines.
    Inline(serde_json::Map<String, serde_json::Value>),
}
