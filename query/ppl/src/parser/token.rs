//! Tokens that are looked for: words, signs, options and their values.

use super::cursor::{is_name_part, word_length};
use super::{Expectation, Mismatch, Parser, Parsing};
use crate::ast::{StringLiteral, TextSpan};

impl<'t> Parser<'t> {
    /// Notes that a token was looked for here, and refuses the text.
    pub(crate) fn expected<T>(&mut self, token: Expectation) -> Parsing<T> {
        self.note(token);
        Err(Mismatch)
    }

    /// Notes that a token was looked for here.
    pub(crate) fn note(&mut self, token: Expectation) {
        self.cursor.skip_blank();
        self.expected.note(self.cursor.offset(), token);
    }

    /// Returns the offset of the next token.
    pub(crate) fn start(&mut self) -> usize {
        self.cursor.skip_blank();
        self.cursor.offset()
    }

    /// Returns the next word, where a word is next.
    pub(crate) fn peek_word(&mut self) -> &'t str {
        self.cursor.skip_blank();
        let rest = self.cursor.rest();
        let word = rest.get(..word_length(rest)).unwrap_or_default();
        let behind = rest.get(word.len()..).unwrap_or_default();
        // `a-b` and `a.b` are no words of the language.
        let goes_on = behind
            .strip_prefix(['-', '.'])
            .is_some_and(|behind| behind.starts_with(|letter| is_name_part(letter) || letter == '`'));
        if goes_on { "" } else { word }
    }

    /// Takes a word of the language, in any case.
    pub(crate) fn keyword(&mut self, word: &'static str) -> bool {
        self.note(Expectation::Keyword(word));
        self.take_word(word)
    }

    /// Takes a word without a note of it.
    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.peek_word().eq_ignore_ascii_case(word);
        if is_next {
            self.cursor.advance(word.len());
        }
        is_next
    }

    /// Takes a word of the language, or refuses the text.
    pub(crate) fn expect_keyword(&mut self, word: &'static str) -> Parsing<()> {
        if self.keyword(word) { Ok(()) } else { Err(Mismatch) }
    }

    /// Takes the first of several words that is next.
    pub(crate) fn one_of<T: Copy>(&mut self, words: &[(&'static str, T)]) -> Option<T> {
        words.iter().find(|(word, _)| self.keyword(word)).map(|(_, value)| *value)
    }

    /// Returns whether a sign is next.
    pub(crate) fn peek_symbol(&mut self, sign: &str) -> bool {
        self.cursor.skip_blank();
        self.cursor.rest().starts_with(sign)
    }

    /// Takes a sign.
    pub(crate) fn symbol(&mut self, sign: &'static str) -> bool {
        self.note(Expectation::Symbol(sign));
        let is_next = self.cursor.rest().starts_with(sign);
        if is_next {
            self.cursor.advance(sign.len());
        }
        is_next
    }

    /// Takes a sign, or refuses the text.
    pub(crate) fn expect_symbol(&mut self, sign: &'static str) -> Parsing<()> {
        if self.symbol(sign) { Ok(()) } else { Err(Mismatch) }
    }

    /// Returns whether a word and `=` are next.
    pub(crate) fn peek_option(&mut self) -> Option<&'t str> {
        let word = self.peek_word();
        let behind = self.cursor.rest().get(word.len()..)?.trim_start();
        (!word.is_empty() && behind.starts_with('=') && !behind.starts_with("==")).then_some(word)
    }

    /// Takes the name of an option and `=`.
    pub(crate) fn option(&mut self, name: &'static str) -> bool {
        self.note(Expectation::Choice(name));
        let is_next = self.peek_option().is_some_and(|word| word.eq_ignore_ascii_case(name));
        if is_next {
            self.cursor.advance(name.len());
            self.cursor.skip_blank();
            self.cursor.advance(1);
        }
        is_next
    }

    /// Takes the name of an option and `=`, or refuses the text.
    pub(crate) fn expect_option(&mut self, name: &'static str) -> Parsing<()> {
        if self.option(name) { Ok(()) } else { Err(Mismatch) }
    }

    /// Reads `true` or `false`, or the first letter of either.
    pub(crate) fn boolean(&mut self) -> Parsing<bool> {
        self.note(Expectation::Boolean);
        for (word, value) in [("true", true), ("false", false), ("t", true), ("f", false)] {
            if self.take_word(word) {
                return Ok(value);
            }
        }
        Err(Mismatch)
    }

    /// Reads a whole number with an optional sign.
    pub(crate) fn integer(&mut self) -> Parsing<i64> {
        self.note(Expectation::Integer);
        let rest = self.cursor.rest();
        let sign = usize::from(rest.starts_with(['-', '+']));
        let digits = rest.get(sign..).unwrap_or_default();
        let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let behind = digits.get(length..).unwrap_or_default();
        if length == 0 || behind.starts_with(is_name_part) || is_fraction(behind) {
            return Err(Mismatch);
        }
        let start = self.cursor.offset();
        let text = self.cursor.advance(sign + length);
        match text.trim_start_matches('+').parse() {
            Ok(number) => Ok(number),
            Err(_) => self.refuse_syntax(start, format!("[{text}] is out of the range of 64 bits")),
        }
    }

    /// Reads a whole number that is not negative.
    pub(crate) fn count(&mut self, of: &str) -> Parsing<u64> {
        let start = self.start();
        let number = self.integer()?;
        match u64::try_from(number) {
            Ok(number) => Ok(number),
            Err(_) => self.refuse_syntax(start, format!("[{of}] must not be negative, but is [{number}]")),
        }
    }

    /// Returns whether a digit is next.
    pub(crate) fn peek_digit(&mut self) -> bool {
        self.cursor.skip_blank();
        self.cursor.rest().starts_with(|c: char| c.is_ascii_digit())
    }

    /// Reads a text in single or double quotes.
    pub(crate) fn string(&mut self) -> Parsing<StringLiteral> {
        self.note(Expectation::Text);
        let start = self.cursor.offset();
        let Some(quote) = self.cursor.rest().chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return Err(Mismatch);
        };
        let value = self.quoted(quote)?;
        Ok(StringLiteral { value, span: TextSpan { start, end: self.cursor.last_end() } })
    }

    /// Returns whether a text in quotes is next.
    pub(crate) fn peek_string(&mut self) -> bool {
        self.cursor.skip_blank();
        self.cursor.rest().starts_with(['"', '\''])
    }

    /// Takes what stands between two quotes. Two quotes in a row are one; a backslash escapes quotes and itself, and stays in
    /// front of other characters.
    pub(crate) fn quoted(&mut self, quote: char) -> Parsing<String> {
        let start = self.cursor.offset();
        let rest = self.cursor.rest();
        let mut value = String::new();
        let mut letters = rest.char_indices().skip(1).peekable();
        while let Some((at, letter)) = letters.next() {
            let next = letters.peek().map(|(_, next)| *next);
            match (letter, next) {
                ('\\', Some(escaped @ ('"' | '\'' | '\\' | '`'))) => {
                    value.push(escaped);
                    letters.next();
                }
                _ if letter == quote && next == Some(quote) => {
                    value.push(quote);
                    letters.next();
                }
                _ if letter == quote => {
                    self.cursor.advance(at + quote.len_utf8());
                    return Ok(value);
                }
                _ => value.push(letter),
            }
        }
        self.refuse_syntax(start, format!("the text that begins with {quote} here has no closing {quote}"))
    }
}

/// Returns whether a text goes on with the fraction of a number.
pub(super) fn is_fraction(text: &str) -> bool {
    text.strip_prefix('.').is_some_and(|behind| behind.starts_with(|c: char| c.is_ascii_digit()))
}
