//! Tokenizers that look at one character at a time: `whitespace`, `letter`, `lowercase`, `char_group`,
//! `keyword`.

use super::class::{decimal_digit, is_java_whitespace, is_letter, is_punctuation, is_symbol};
use super::{Emitter, Tokenizer};
use crate::analysis::Token;

/// Class of the characters that make tokens.
#[derive(Clone, Debug)]
pub(crate) enum CharClass {
    /// Everything that Java's `Character.isWhitespace` denies.
    NotWhitespace,
    /// Letters.
    Letter,
    /// All but separators.
    Except(Separators),
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
    fn contains(&self, c: char) -> bool {
        match self {
            Self::NotWhitespace => !is_java_whitespace(c),
            Self::Letter => is_letter(c),
            Self::Except(separators) => !separators.contains(c),
        }
    }
}

/// Characters that separate tokens: single ones and whole classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Separators {
    pub(crate) characters: Vec<char>,
    pub(crate) letter: bool,
    pub(crate) digit: bool,
    pub(crate) whitespace: bool,
    pub(crate) punctuation: bool,
    pub(crate) symbol: bool,
}

impl Separators {
    fn contains(&self, c: char) -> bool {
        self.characters.contains(&c)
            || (self.letter && is_letter(c))
            || (self.digit && decimal_digit(c).is_some())
            || (self.whitespace && is_java_whitespace(c))
            || (self.punctuation && is_punctuation(c))
            || (self.symbol && is_symbol(c))
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
