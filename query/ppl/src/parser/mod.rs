//! The parser: recursive descent over a cursor.
//!
//! [`parse`] is the way in. Each command reads itself (`command`). `search` reads sources and free text, `name` names,
//! `aggregate` aggregates and keys. `expression`, `call` and `literal` read expressions. Every token that was looked for is
//! noted with its offset (`expected`): the furthest ones make the error. Text, nesting and levels are bounded.

mod aggregate;
mod call;
mod cursor;
mod expected;
mod expression;
mod literal;
mod name;
mod pipeline;
mod search;
mod token;

pub(crate) use self::expected::{Expectation, ExpectedTokens};
pub(crate) use self::literal::time_of_text;
#[cfg(test)]
pub(crate) use self::pipeline::COMMANDS;

use self::cursor::Cursor;
use crate::ast::{PipedQuery, Pipeline, TextSpan};
use crate::error::{ParseError, ParseErrorKind};
use crate::suggestion::nearest;

/// Longest text of a query, in bytes.
pub const MAX_BYTES: usize = 256 << 10;
/// Most brackets and parentheses that are open at once.
const MAX_NESTING: usize = 40;
/// Most commands of a pipeline.
const MAX_COMMANDS: usize = 500;
/// Most expected tokens that an error lists.
const MAX_LISTED: usize = 24;
/// Most characters of a token that an error shows.
const MAX_SHOWN: usize = 40;

/// Parses a query.
///
/// # Errors
/// The first fault of the text, with its position and the tokens that were expected there.
pub fn parse(text: &str) -> Result<PipedQuery, ParseError> {
    Parser::new(text)?.finish(Parser::query)
}

/// Returns the tokens that can stand at the furthest place that the parser reaches.
pub(crate) fn expected_at_end(text: &str) -> ExpectedTokens {
    let Ok(mut parser) = Parser::new(text) else { return ExpectedTokens::default() };
    // The answer is the same whether the text is complete or not.
    drop(parser.query());
    parser.expected
}

/// The text does not go on as expected. The reason is in the parser: a fault, else the expected tokens.
#[derive(Debug)]
pub(crate) struct Mismatch;

/// Result of reading a piece of syntax.
pub(crate) type ParseResult<T> = Result<T, Mismatch>;

/// The state of the parser.
#[derive(Debug)]
pub(crate) struct Parser<'t> {
    cursor: Cursor<'t>,
    expected: ExpectedTokens,
    fault: Option<ParseError>,
    nesting: usize,
    /// Levels of the tree that was read last.
    levels: usize,
    /// Subsearches of the expression that is read.
    subsearches: Vec<Pipeline>,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Self, ParseError> {
        if text.len() > MAX_BYTES {
            return Err(ParseError {
                kind: ParseErrorKind::TooLarge,
                offset: 0,
                line: 1,
                column: 1,
                message: format!(
                    "the query has {} bytes, more than the {MAX_BYTES} that are allowed",
                    text.len()
                ),
                suggestion: None,
            });
        }
        Ok(Self {
            cursor: Cursor::new(text),
            expected: ExpectedTokens::default(),
            fault: None,
            nesting: 0,
            levels: 0,
            subsearches: Vec::new(),
        })
    }

    fn finish<T>(mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> Result<T, ParseError> {
        match read(&mut self) {
            Ok(value) => Ok(value),
            Err(Mismatch) => Err(self.into_error()),
        }
    }

    fn into_error(self) -> ParseError {
        if let Some(fault) = self.fault {
            return fault;
        }
        let offset = self.expected.offset();
        let text = self.cursor.text();
        let token = token_at(text.get(offset..).unwrap_or_default());
        let location = self.cursor.location(offset);
        let mut tokens = self.expected.tokens().to_vec();
        // Words tell more than signs.
        tokens.sort_by_key(|token| matches!(token, Expectation::Symbol(_)));
        let mut listed: Vec<String> = tokens.iter().take(MAX_LISTED).map(|token| token.describe()).collect();
        if tokens.len() > MAX_LISTED {
            listed.push(format!("and {} more", tokens.len() - MAX_LISTED));
        }
        let suggestion = nearest(&token, tokens.iter().filter_map(|token| token.word()))
            .map(|word| format!("did you mean [{word}]?"))
            .or_else(|| {
                let misses_source = token == "<EOF>" && tokens.contains(&Expectation::OptionName("source"));
                misses_source.then(|| "a query begins with its source: source=index | …".to_owned())
            });
        let message = format!(
            "[{token}] is not a valid term at this part of the query: '{}' <-- HERE, at line {}, column {}. Expecting tokens: {}",
            excerpt(text, offset),
            location.line,
            location.column,
            listed.join(", ")
        );
        ParseError {
            kind: ParseErrorKind::Syntax,
            offset,
            line: usize::try_from(location.line).unwrap_or(usize::MAX),
            column: usize::try_from(location.column).unwrap_or(usize::MAX),
            message,
            suggestion,
        }
    }

    /// Refuses the text at an offset, with a message of its own.
    pub(crate) fn refuse<T>(
        &mut self,
        kind: ParseErrorKind,
        offset: usize,
        message: impl Into<String>,
        suggestion: Option<&str>,
    ) -> ParseResult<T> {
        let location = self.cursor.location(offset);
        self.fault.get_or_insert(ParseError {
            kind,
            offset,
            line: usize::try_from(location.line).unwrap_or(usize::MAX),
            column: usize::try_from(location.column).unwrap_or(usize::MAX),
            message: message.into(),
            suggestion: suggestion.map(str::to_owned),
        });
        Err(Mismatch)
    }

    /// Refuses the text at an offset as wrong syntax.
    pub(crate) fn refuse_syntax<T>(&mut self, offset: usize, message: impl Into<String>) -> ParseResult<T> {
        self.refuse(ParseErrorKind::Syntax, offset, message, None)
    }

    /// Reads one level deeper, within the bound.
    pub(crate) fn nest<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.nesting == MAX_NESTING {
            let offset = self.cursor.offset();
            let message = format!("the query is nested deeper than {MAX_NESTING} levels");
            return self.refuse(ParseErrorKind::TooLarge, offset, message, None);
        }
        self.nesting += 1;
        let read = read(self);
        self.nesting -= 1;
        read
    }

    /// Returns the span from an offset to the end of the last token.
    pub(crate) fn span_from(&self, start: usize) -> TextSpan {
        TextSpan { start, end: self.cursor.last_end().max(start) }
    }

    /// Returns a place to come back to.
    pub(crate) fn checkpoint(&self) -> (usize, usize) {
        self.cursor.checkpoint()
    }

    /// Goes back to a place.
    pub(crate) fn back_to(&mut self, place: (usize, usize)) {
        self.cursor.back_to(place);
    }

    /// Returns whether one of these characters stands right behind the last token.
    pub(crate) fn is_followed_by(&self, letters: &[char]) -> bool {
        self.cursor.is_followed_by(letters)
    }

    /// Returns the text that has not been read.
    pub(crate) fn rest(&self) -> &'t str {
        self.cursor.rest()
    }

    /// Takes so many bytes as a token.
    pub(crate) fn take(&mut self, bytes: usize) -> &'t str {
        self.cursor.advance(bytes)
    }

    /// Returns the text of a span.
    pub(crate) fn text_of(&self, span: TextSpan) -> String {
        self.cursor.slice(span.start, span.end).to_owned()
    }
}

/// Returns the token at the start of a text, for an error.
fn token_at(rest: &str) -> String {
    let Some(first) = rest.chars().next() else { return "<EOF>".to_owned() };
    let length = match cursor::segment_length(rest, false) {
        0 => first.len_utf8(),
        length => length,
    };
    let token = rest.get(..length).unwrap_or_default();
    if token.chars().count() > MAX_SHOWN {
        return token.chars().take(MAX_SHOWN).chain(['…']).collect();
    }
    token.to_owned()
}

/// Returns the end of the text before and with the token at an offset.
fn excerpt(text: &str, offset: usize) -> String {
    let token = token_at(text.get(offset..).unwrap_or_default());
    let before = text.get(..offset).unwrap_or_default();
    let shown: Vec<char> = before.chars().rev().take(MAX_SHOWN).collect();
    let lead = if before.len() > shown.iter().map(|c| c.len_utf8()).sum() { "…" } else { "" };
    let token = if token == "<EOF>" { "" } else { token.as_str() };
    format!("{lead}{}{token}", shown.iter().rev().collect::<String>())
}
