//! Tokenizers: where one token ends and the next begins.
//!
//! One file a family. A tokenizer reuses a single [`Token`] for a text, so that a token costs no
//! allocation.

mod character;
mod emoji;
mod pattern;
mod standard;

use std::fmt::Debug;

use super::Token;

pub(crate) use character::{CharClass, CharTokenizer, Keyword};
pub(crate) use pattern::Pattern;
pub(crate) use standard::Standard;

/// Lucene's default bound on the length of a token, in UTF-16 code units.
pub(crate) const DEFAULT_MAX_TOKEN_LENGTH: usize = 255;

/// Cuts text into tokens.
pub(crate) trait Tokenizer: Debug + Send + Sync {
    /// Feeds each token of `text` to `sink`, positions ascending from 0. Returns the number of
    /// positions taken.
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32;
}

/// Fills the reused token and counts positions for a tokenizer.
pub(super) struct Emitter<'a> {
    token: Token,
    next_position: u32,
    sink: &'a mut dyn FnMut(&mut Token),
}

impl<'a> Emitter<'a> {
    fn new(sink: &'a mut dyn FnMut(&mut Token)) -> Self {
        Self { token: Token::default(), next_position: 0, sink }
    }

    /// Emits `text[start..end]` as the next token.
    #[inline]
    fn emit(&mut self, text: &str, start: usize, end: usize) {
        self.token.text.clear();
        self.token.text.push_str(&text[start..end]);
        self.token.position = self.next_position;
        self.token.start = offset(start);
        self.token.end = offset(end);
        self.next_position += 1;
        (self.sink)(&mut self.token);
    }
}

/// Texts are far below 4 GiB (a request body is bounded); an offset beyond saturates.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Returns the byte length of the longest prefix of `text` with at most `units` UTF-16 code units,
/// and at least one character.
pub(super) fn prefix_of_utf16_units(text: &str, units: usize) -> usize {
    let mut left = units;
    for (at, c) in text.char_indices() {
        let width = c.len_utf16();
        if width > left && at > 0 {
            return at;
        }
        left = left.saturating_sub(width);
    }
    text.len()
}

/// Whether `text` has more than `units` UTF-16 code units.
pub(super) fn longer_than_utf16_units(text: &str, units: usize) -> bool {
    text.len() > units && text.chars().map(char::len_utf16).sum::<usize>() > units
}
