//! Tokenizers: where one token ends and the next begins.
//!
//! One file a family. A tokenizer reuses a single [`Token`] for a text, so that a token costs no
//! allocation.

mod character;
pub(super) mod class;
mod classic;
mod emoji;
mod ngram;
mod path;
mod pattern;
mod simple_pattern;
mod standard;
mod url_email;

use std::fmt::Debug;
use std::ops::Range;

use super::Token;

pub(crate) use character::{CharClass, CharTokenizer, Keyword, Separators};
pub(crate) use classic::Classic;
pub(crate) use ngram::{NGram, TokenChars};
pub(crate) use path::PathHierarchy;
pub(crate) use pattern::Pattern;
pub(crate) use simple_pattern::SimplePattern;
pub(crate) use standard::Standard;
pub(crate) use url_email::UrlEmail;

/// Lucene's default bound on the length of a token, in UTF-16 code units.
pub(crate) const DEFAULT_MAX_TOKEN_LENGTH: usize = 255;

/// Cuts text into tokens.
pub(crate) trait Tokenizer: Debug + Send + Sync {
    /// Feeds each token of `text` to `sink`, positions ascending from 0. Returns the number of
    /// positions taken.
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32;

    /// Bytes that it may make of a text of so many.
    fn growth(&self, bytes: usize) -> usize {
        bytes
    }

    /// Returns true if it leaves tokens out, since too much would come of the text.
    fn cuts(&self, _text: &str) -> bool {
        false
    }
}

/// Fills the reused token and counts positions and offsets for a tokenizer.
pub(super) struct Emitter<'a> {
    token: Token,
    next_position: u32,
    units: Units,
    sink: &'a mut dyn FnMut(&mut Token),
}

impl<'a> Emitter<'a> {
    fn new(text: &str, sink: &'a mut dyn FnMut(&mut Token)) -> Self {
        Self { token: Token::default(), next_position: 0, units: Units::new(text), sink }
    }

    /// Emits `text[start..end]` as the next token.
    #[inline]
    fn emit(&mut self, text: &str, start: usize, end: usize) {
        self.emit_as(text, start, end, "word");
    }

    /// Leaves a position without a token.
    fn skip(&mut self) {
        self.next_position += 1;
    }

    /// Emits `text[start..end]` as the next token, of a type.
    #[inline]
    fn emit_as(&mut self, text: &str, start: usize, end: usize, kind: &'static str) {
        self.emit_shortened(text, start..end, end, kind);
    }

    /// Emits a range of `text` as the next token, whose offsets go on to `end`.
    #[inline]
    fn emit_shortened(&mut self, text: &str, range: Range<usize>, end: usize, kind: &'static str) {
        self.token.text.clear();
        self.token.text.push_str(&text[range.clone()]);
        self.token.position = self.next_position;
        self.token.position_length = 1;
        self.token.start = self.units.at(text, range.start);
        self.token.end = self.units.at(text, end);
        self.token.kind = kind;
        self.token.keyword = false;
        self.token.frequency = 1;
        self.token.payload = None;
        self.next_position += 1;
        (self.sink)(&mut self.token);
    }
}

/// Turns byte offsets of a text into UTF-16 ones, going on from the last asked for.
#[derive(Debug)]
pub(crate) struct Units {
    /// Byte offsets are UTF-16 offsets.
    ascii: bool,
    byte: usize,
    unit: u32,
}

impl Units {
    pub(crate) fn new(text: &str) -> Self {
        Self { ascii: text.is_ascii(), byte: 0, unit: 0 }
    }

    /// Returns the UTF-16 offset of `byte`. Texts are far below 4 GiB (a request body is bounded); an
    /// offset beyond saturates.
    #[inline]
    pub(crate) fn at(&mut self, text: &str, byte: usize) -> u32 {
        if self.ascii {
            return u32::try_from(byte).unwrap_or(u32::MAX);
        }
        let bytes = text.as_bytes();
        if byte >= self.byte {
            self.unit = self.unit.saturating_add(utf16_units(&bytes[self.byte..byte]));
        } else {
            self.unit = self.unit.saturating_sub(utf16_units(&bytes[byte..self.byte]));
        }
        self.byte = byte;
        self.unit
    }
}

/// Counts the UTF-16 code units of UTF-8: one for each character, two for those of four bytes.
fn utf16_units(bytes: &[u8]) -> u32 {
    bytes.iter().map(|&byte| u32::from(byte & 0xc0 != 0x80) + u32::from(byte >= 0xf0)).sum()
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

/// Returns whether `text` has more than `units` UTF-16 code units.
pub(super) fn longer_than_utf16_units(text: &str, units: usize) -> bool {
    text.len() > units && text.chars().map(char::len_utf16).sum::<usize>() > units
}
