//! Tokenizers that look at one character at a time: `whitespace`, `letter`, `lowercase`, `keyword`.

use super::{Emitter, Tokenizer};
use crate::analysis::Token;

/// Which characters make tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CharClass {
    /// Everything that Java's `Character.isWhitespace` denies.
    NotWhitespace,
    /// Letters.
    Letter,
}

/// Joins neighbouring characters of a class, cutting at a length.
#[derive(Debug)]
pub(crate) struct CharTokenizer {
    pub(crate) class: CharClass,
    /// Longest token in UTF-16 code units.
    pub(crate) max_token_length: usize,
}

impl Tokenizer for CharTokenizer {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut out = Emitter::new(text, sink);
        let mut start = None;
        let mut units = 0;
        for (at, c) in text.char_indices() {
            if !self.class.contains(c) {
                if let Some(start) = start.take() {
                    out.emit(text, start, at);
                }
                continue;
            }
            if start.is_none() {
                start = Some(at);
                units = 0;
            }
            units += c.len_utf16();
            if units >= self.max_token_length
                && let Some(start) = start.take()
            {
                out.emit(text, start, at + c.len_utf8());
            }
        }
        if let Some(start) = start {
            out.emit(text, start, text.len());
        }
        out.next_position
    }
}

impl CharClass {
    fn contains(self, c: char) -> bool {
        match self {
            Self::NotWhitespace => !is_java_whitespace(c),
            Self::Letter => c.is_alphabetic(),
        }
    }
}

/// Java's `Character.isWhitespace`: no-break spaces are not white space, separators 1C to 1F are.
fn is_java_whitespace(c: char) -> bool {
    match c {
        '\u{9}'..='\u{d}' | '\u{1c}'..='\u{20}' => true,
        '\u{85}' | '\u{a0}' | '\u{2007}' | '\u{202f}' => false,
        _ => c.is_whitespace(),
    }
}

/// The whole text as one token.
#[derive(Debug)]
pub(crate) struct Keyword;

impl Tokenizer for Keyword {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut out = Emitter::new(text, sink);
        out.emit(text, 0, text.len());
        out.next_position
    }
}
