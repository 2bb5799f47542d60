//! Tokens: the words of a script.

use super::syntax::{Position, RegexFlags};

/// A token with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) at: Position,
    /// `true` if white space precedes it.
    pub(super) spaced: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Int(i64),
    Float(f64),
    Text(Vec<TokenText>),
    Symbol(String),
    Regex(Vec<TokenText>, RegexFlags),
    Words(Vec<String>),
    /// A name that begins with a small letter; may end in `?` or `!`.
    Name(String),
    Constant(String),
    /// `name:` of a hash.
    Label(String),
    /// A variable with its sigil.
    State(String),
    Group(usize),
    Keyword(&'static str),
    Op(&'static str),
    Newline,
    End,
}

/// A part of a text: literal, or code between `#{` and `}` with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenText {
    Literal(String),
    Code(String, Position),
}
