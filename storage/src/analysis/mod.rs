//! Analyzers: text to tokens, as Lucene cuts it.
// CONTRACT STUB (owner: bundle)
use serde_json::{Map, Value};

use crate::Result;

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Token {
    /// The term.
    pub text: String,
    /// Position; the first token has 0; gaps where a filter removed tokens.
    pub position: u32,
    /// Byte offset of the token's start in the text.
    pub start: u32,
    /// Byte offset of its end.
    pub end: u32,
}

/// Turns text into tokens.
#[derive(Debug)]
pub struct Analyzer {}

impl Analyzer {
    /// Feeds every token of `text` to `sink`; the token is reused between calls. Returns whether a
    /// token was cut or left out for its length (the value is then listed in `_ignored`).
    pub fn analyze(&self, _text: &str, _sink: &mut dyn FnMut(&Token)) -> bool {
        todo!()
    }
}

/// The analyzers and normalizers of one index.
#[derive(Debug)]
pub struct Analyzers {}

impl Analyzers {
    /// Builds the built-in analyzers and those under `index.analysis.*` of the flattened settings.
    pub fn new(_settings: &Map<String, Value>) -> Result<Self> {
        todo!()
    }
    /// Finds an analyzer by name.
    pub fn get(&self, _name: &str) -> Option<&Analyzer> {
        todo!()
    }
    /// Applies a normalizer to a keyword value; `None` when there is no such normalizer.
    pub fn normalize(&self, _name: &str, _value: &str) -> Option<String> {
        todo!()
    }
}
