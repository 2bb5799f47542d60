//! The `ngram` and `edge_ngram` tokenizers: runs of characters of a text, or of each word of it.

use super::{Emitter, Tokenizer};
use crate::analysis::Token;
use crate::analysis::allowance::{Allowance, MAX_ADDED_BYTES, most_made};
use crate::analysis::filter::gram_growth;

/// Characters that belong to a word.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenChars {
    pub(crate) letter: bool,
    pub(crate) digit: bool,
    pub(crate) whitespace: bool,
    pub(crate) punctuation: bool,
    pub(crate) symbol: bool,
    pub(crate) custom: Vec<char>,
}

impl TokenChars {
    /// Returns whether every character belongs to words.
    fn is_all(&self) -> bool {
        !(self.letter || self.digit || self.whitespace || self.punctuation || self.symbol)
            && self.custom.is_empty()
    }

    fn contains(&self, c: char) -> bool {
        use super::class;
        (self.letter && class::is_letter(c))
            || (self.digit && class::decimal_digit(c).is_some())
            || (self.whitespace && class::is_java_whitespace(c))
            || (self.punctuation && class::is_punctuation(c))
            || (self.symbol && class::is_symbol(c))
            || self.custom.contains(&c)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct NGram {
    pub(crate) min: usize,
    pub(crate) max: usize,
    /// Only the runs at the start of each word.
    pub(crate) edges_only: bool,
    pub(crate) chars: TokenChars,
}

impl Tokenizer for NGram {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        self.run(text, sink).0
    }

    fn growth(&self, bytes: usize) -> usize {
        most_made(bytes, gram_growth(self.min, self.max, self.edges_only))
    }

    fn cuts(&self, text: &str) -> bool {
        self.growth(text.len()) > MAX_ADDED_BYTES && self.run(text, &mut |_| {}).1
    }
}

impl NGram {
    /// Cuts a text; returns the positions taken, and whether too much would come of it.
    fn run(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> (u32, bool) {
        let mut out = Emitter::new(text, sink);
        let mut allowance = Allowance::default();
        allowance.take(text.len());
        let all = self.chars.is_all();
        let mut edge = true;
        for (start, c) in text.char_indices() {
            if !all && !self.chars.contains(c) {
                edge = true;
                continue;
            }
            if edge || !self.edges_only {
                let mut count = 0;
                for (at, next) in text[start..].char_indices() {
                    if !all && !self.chars.contains(next) {
                        break;
                    }
                    count += 1;
                    if count >= self.min {
                        if !allowance.spend(at + next.len_utf8()) {
                            return (out.next_position, true);
                        }
                        out.emit(text, start, start + at + next.len_utf8());
                    }
                    if count >= self.max {
                        break;
                    }
                }
            }
            edge = false;
            if all && self.edges_only {
                break;
            }
        }
        (out.next_position, false)
    }
}
