//! An analyzer: one tokenizer and the filters behind it.

use super::filter::{Filter, Stage, lowercase};
use super::tokenizer::Tokenizer;
use crate::bundle::MAX_TERM_BYTES;

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The term.
    pub text: String,
    /// Position; the first token has 0; gaps where a filter removed tokens.
    pub position: u32,
    /// How many positions the token spans: more than one where other tokens of the graph lie beside it.
    pub position_length: u32,
    /// Where the token starts in the text that was given, in UTF-16 code units.
    pub start: u32,
    /// Where it ends, in UTF-16 code units.
    pub end: u32,
    /// The type, as Lucene names it: `<ALPHANUM>`, `word`, `SYNONYM`.
    pub kind: &'static str,
    /// Whether stemmers leave the token alone.
    pub keyword: bool,
}

impl Default for Token {
    fn default() -> Self {
        Self {
            text: String::new(),
            position: 0,
            position_length: 1,
            start: 0,
            end: 0,
            kind: "word",
            keyword: false,
        }
    }
}

/// Turns text into tokens.
#[derive(Debug)]
pub struct Analyzer {
    tokenizer: Box<dyn Tokenizer>,
    filters: Vec<Box<dyn Filter>>,
    /// The filters are exactly `lowercase`: applied in place, without a stage.
    only_lowercase: bool,
}

/// What is known once a text has been analyzed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Positions that the text took, removed tokens included: the next value of the field goes on
    /// behind them.
    pub(crate) positions: u32,
    /// Whether a token was cut for its length.
    pub(crate) cut: bool,
}

impl Analyzer {
    pub(crate) fn new(tokenizer: Box<dyn Tokenizer>, filters: Vec<Box<dyn Filter>>) -> Self {
        let only_lowercase = filters.len() == 1 && filters[0].is_lowercase();
        Self { tokenizer, filters, only_lowercase }
    }

    /// Feeds every token of `text` to `sink`; the token is reused between calls. Returns whether a
    /// token was cut or left out for its length (the value is then listed in `_ignored`): a term
    /// is never longer than [`MAX_TERM_BYTES`].
    pub fn analyze(&self, text: &str, sink: &mut dyn FnMut(&Token)) -> bool {
        self.run(text, sink).cut
    }

    /// Prepares a term that is not to be cut (a prefix, a pattern, a bound of a range): only the
    /// filters that map characters apply.
    pub fn normalize(&self, text: &str) -> String {
        let mut out = String::new();
        let mut sink = |token: &Token| out.push_str(&token.text);
        let mut last = Last { sink: &mut sink, cut: false };
        {
            let mut stage: Box<dyn Stage + '_> = Box::new(&mut last);
            for filter in self.filters.iter().rev().filter(|filter| filter.is_normalizing()) {
                stage = filter.stage(stage);
            }
            stage.token(&mut Token { text: text.to_owned(), ..Token::default() });
            stage.end(1);
        }
        out
    }

    /// As [`Analyzer::analyze`], saying how many positions the text took.
    pub(crate) fn run(&self, text: &str, sink: &mut dyn FnMut(&Token)) -> Outcome {
        let mut last = Last { sink, cut: false };
        let positions = if self.filters.is_empty() {
            self.tokenizer.tokenize(text, &mut |token| last.token(token))
        } else if self.only_lowercase {
            self.tokenizer.tokenize(text, &mut |token| {
                lowercase::apply(token);
                last.token(token);
            })
        } else {
            let mut stage: Box<dyn Stage + '_> = Box::new(&mut last);
            for filter in self.filters.iter().rev() {
                stage = filter.stage(stage);
            }
            let positions = self.tokenizer.tokenize(text, &mut |token| stage.token(token));
            stage.end(positions)
        };
        Outcome { positions, cut: last.cut }
    }
}

/// The end of every chain: bounds the term and hands it to the caller.
struct Last<'a> {
    sink: &'a mut dyn FnMut(&Token),
    cut: bool,
}

impl Stage for &mut Last<'_> {
    fn token(&mut self, token: &mut Token) {
        Last::token(self, token);
    }

    fn end(&mut self, positions: u32) -> u32 {
        positions
    }
}

impl Last<'_> {
    fn token(&mut self, token: &mut Token) {
        if token.text.len() > MAX_TERM_BYTES {
            let mut end = MAX_TERM_BYTES;
            while !token.text.is_char_boundary(end) {
                end -= 1;
            }
            token.text.truncate(end);
            self.cut = true;
        }
        (self.sink)(token);
    }
}
