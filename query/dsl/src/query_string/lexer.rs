//! Tokens of the classic syntax: at each place the longest that fits, the first in order of ties.
//!
//! The lexer is in one of three states, as in Lucene's grammar: after `^` only a number is a token,
//! between range brackets only bounds are. A place where nothing fits is the last token,
//! [`Kind::Invalid`]; it becomes an error when the parser comes to it.

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum Kind {
    And,
    Or,
    Not,
    Plus,
    Minus,
    /// A sign followed by white space: a word, not a sign.
    BareSign,
    OpenGroup,
    CloseGroup,
    Colon,
    Star,
    Caret,
    Quoted,
    Term,
    Tilde,
    Prefix,
    Wildcard,
    Regexp,
    OpenIncluded,
    OpenExcluded,
    Number,
    RangeTo,
    CloseIncluded,
    CloseExcluded,
    RangeQuoted,
    RangeWord,
    End,
    Invalid,
}

impl Kind {
    /// Returns whether a clause may begin with such a token.
    pub(super) fn starts_clause(self) -> bool {
        matches!(
            self,
            Self::Not
                | Self::Plus
                | Self::Minus
                | Self::BareSign
                | Self::OpenGroup
                | Self::Star
                | Self::Quoted
                | Self::Term
                | Self::Prefix
                | Self::Wildcard
                | Self::Regexp
                | Self::OpenIncluded
                | Self::OpenExcluded
                | Self::Number
        )
    }
}

/// A token: a piece of the query string.
#[derive(Clone, Debug)]
pub(super) struct Token<'a> {
    /// Kind of the token.
    pub kind: Kind,
    /// The piece; in the case of [`Kind::Invalid`] what was read to see that nothing fits.
    pub image: &'a str,
    /// Byte offset of its start.
    pub start: usize,
    /// `true` if a boost was to be read.
    pub boost: bool,
}

#[derive(Clone, Copy)]
enum State {
    Default,
    Boost,
    Range,
}

/// Cuts a query string into tokens; the last is [`Kind::End`] or [`Kind::Invalid`].
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut state = State::Default;
    let mut at = 0;
    loop {
        if !matches!(state, State::Boost) {
            at += text[at..].len() - text[at..].trim_start_matches(is_space).len();
        }
        let rest = &text[at..];
        let boost = matches!(state, State::Boost);
        if rest.is_empty() {
            tokens.push(Token { kind: Kind::End, image: "", start: at, boost });
            return tokens;
        }
        let found = match state {
            State::Default => default_token(rest),
            State::Boost => number(rest).map(|length| (Kind::Number, length)),
            State::Range => range_token(rest),
        };
        let Some((kind, length)) = found else {
            tokens.push(Token { kind: Kind::Invalid, image: &rest[..read(state, rest)], start: at, boost });
            return tokens;
        };
        tokens.push(Token { kind, image: &rest[..length], start: at, boost });
        at += length;
        state = match kind {
            Kind::Caret => State::Boost,
            Kind::OpenIncluded | Kind::OpenExcluded => State::Range,
            Kind::Number | Kind::CloseIncluded | Kind::CloseExcluded => State::Default,
            _ => state,
        };
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{3000}')
}

/// Returns whether a word may begin with the character, or hold it anywhere.
fn starts_word(c: char) -> bool {
    !is_space(c)
        && !matches!(
            c,
            '+' | '-'
                | '!'
                | '('
                | ')'
                | ':'
                | '^'
                | '['
                | ']'
                | '"'
                | '{'
                | '}'
                | '~'
                | '*'
                | '?'
                | '\\'
                | '/'
        )
}

fn continues_word(c: char) -> bool {
    starts_word(c) || matches!(c, '+' | '-')
}

/// Returns the length of the run of characters that fit, escaped ones included.
fn run(text: &str, fits: impl Fn(char) -> bool) -> usize {
    let mut length = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            match chars.next() {
                Some(escaped) => length += 1 + escaped.len_utf8(),
                None => return length,
            }
        } else if fits(c) {
            length += c.len_utf8();
        } else {
            return length;
        }
    }
    length
}

fn default_token(rest: &str) -> Option<(Kind, usize)> {
    let first = rest.chars().next()?;
    let one = |kind| Some((kind, first.len_utf8()));
    match first {
        '+' | '-' | '!' => {
            let second = rest[1..].chars().next().filter(|c| is_space(*c));
            match (second, first) {
                (Some(space), _) => Some((Kind::BareSign, 1 + space.len_utf8())),
                (None, '+') => one(Kind::Plus),
                (None, '-') => one(Kind::Minus),
                (None, _) => one(Kind::Not),
            }
        }
        '(' => one(Kind::OpenGroup),
        ')' => one(Kind::CloseGroup),
        ':' => one(Kind::Colon),
        '^' => one(Kind::Caret),
        '[' => one(Kind::OpenIncluded),
        '{' => one(Kind::OpenExcluded),
        '~' => Some((Kind::Tilde, 1 + run(&rest[1..], continues_word))),
        '"' => {
            let inside = run(&rest[1..], |c| c != '"');
            rest[1 + inside..].starts_with('"').then_some((Kind::Quoted, inside + 2))
        }
        '/' => delimited(rest, '/').map(|length| (Kind::Regexp, length)),
        _ => word(rest, first),
    }
}

/// A word, with wildcards or without, or one of the operators that are spelled like words.
fn word(rest: &str, first: char) -> Option<(Kind, usize)> {
    let plain = match first {
        '*' | '?' => 0,
        _ => run(rest, continues_word),
    };
    let wild = run(rest, |c| continues_word(c) || matches!(c, '*' | '?'));
    if wild == 0 {
        return None;
    }
    if wild == plain {
        let kind = match &rest[..plain] {
            "AND" | "&&" => Kind::And,
            "OR" | "||" => Kind::Or,
            "NOT" => Kind::Not,
            _ => Kind::Term,
        };
        return Some((kind, plain));
    }
    let kind = match &rest[plain..wild] {
        "*" if plain == 0 => Kind::Star,
        "*" => Kind::Prefix,
        _ => Kind::Wildcard,
    };
    Some((kind, wild))
}

/// Returns the length of a text between two delimiters; one behind a backslash ends it only if
/// none comes later.
fn delimited(rest: &str, delimiter: char) -> Option<usize> {
    let mut last = None;
    let mut before = delimiter;
    for (at, c) in rest.char_indices().skip(1) {
        if c == delimiter {
            last = Some(at + 1);
            if before != '\\' {
                break;
            }
        }
        before = c;
    }
    last
}

fn number(rest: &str) -> Option<usize> {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let whole = digits(rest);
    let fraction = rest[whole..].strip_prefix('.').map_or(0, digits);
    match (whole, fraction) {
        (0, _) => None,
        (_, 0) => Some(whole),
        _ => Some(whole + 1 + fraction),
    }
}

fn range_token(rest: &str) -> Option<(Kind, usize)> {
    match rest.chars().next()? {
        ']' => return Some((Kind::CloseIncluded, 1)),
        '}' => return Some((Kind::CloseExcluded, 1)),
        _ => {}
    }
    let word = rest.find([' ', ']', '}']).unwrap_or(rest.len());
    if &rest[..word] == "TO" {
        return Some((Kind::RangeTo, word));
    }
    let quoted = match rest.starts_with('"') {
        true => delimited(rest, '"').filter(|length| *length > 2).unwrap_or(0),
        false => 0,
    };
    if quoted >= word { Some((Kind::RangeQuoted, quoted)) } else { Some((Kind::RangeWord, word)) }
}

/// Returns how much of the rest was read before it was plain that nothing fits.
fn read(state: State, rest: &str) -> usize {
    match (state, rest.chars().next()) {
        (State::Default, Some('"' | '/')) => rest.len(),
        (_, first) => first.map_or(0, char::len_utf8),
    }
}
