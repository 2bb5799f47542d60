//! A text in kuery as tokens. Words side by side are one literal, with the white space between them; what begins with a word that joins,
//! `and`, `or` or `not`, is the next token.
//!
//! `\t`, `\r`, `\n` and `\u0041` stand for characters everywhere. Beside these, a backslash takes the meaning from what follows it, but
//! between quotes from a quote and a backslash alone.

use std::fmt;
use std::mem;

/// Characters of a text that an error shows.
const SHOWN: usize = 64;

/// A part of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name or a value.
    Literal(Literal),
    Colon,
    /// `<`, `<=`, `>`, `>=` by the names of ranges.
    Range(&'static str),
    Open,
    Close,
    /// `{`
    OpenNested,
    /// `}`
    CloseNested,
    And,
    Or,
    Not,
}

/// A name or a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Literal {
    /// Texts between the wildcard stars, without the backslashes of escaped ones; one part where there is no such star.
    parts: Vec<String>,
    /// `true` if it stood between quotes.
    pub(super) quoted: bool,
}

impl Literal {
    pub(super) fn parts(&self) -> &[String] {
        &self.parts
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.len() == 1 && self.parts.iter().all(String::is_empty)
    }

    /// Returns whether it has a star that means something.
    pub(super) fn is_pattern(&self) -> bool {
        self.parts.len() > 1
    }

    /// Returns whether it is such a star and nothing else.
    pub(super) fn is_star(&self) -> bool {
        self.parts.len() == 2 && self.parts.iter().all(String::is_empty)
    }
}

impl fmt::Display for Literal {
    /// Writes what it says: stars that mean something look like others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("*"))
    }
}

impl fmt::Display for Token {
    /// Writes it as errors name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = match self {
            Self::Literal(literal) => return write!(f, "[{}]", short(&literal.to_string())),
            Self::Colon => "[:]",
            Self::Range(_) => "a comparison",
            Self::Open => "[(]",
            Self::Close => "[)]",
            Self::OpenNested => "[{]",
            Self::CloseNested => "[}]",
            Self::And => "[and]",
            Self::Or => "[or]",
            Self::Not => "[not]",
        };
        f.write_str(written)
    }
}

/// Shortens a text for an error.
pub(super) fn short(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Cuts a text into tokens.
///
/// # Errors
/// A quote that does not end, a backslash at the end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let (token, left) = match first {
            ':' => (Token::Colon, after),
            '(' => (Token::Open, after),
            ')' => (Token::Close, after),
            '{' => (Token::OpenNested, after),
            '}' => (Token::CloseNested, after),
            '<' => match after.strip_prefix('=') {
                Some(left) => (Token::Range("lte"), left),
                None => (Token::Range("lt"), after),
            },
            '>' => match after.strip_prefix('=') {
                Some(left) => (Token::Range("gte"), left),
                None => (Token::Range("gt"), after),
            },
            '"' => quoted(after)?,
            _ => match joins(rest) {
                Some(found) => found,
                None => unquoted(rest)?,
            },
        };
        tokens.push(token);
        rest = left.trim_start();
    }
    Ok(tokens)
}

/// Reads what stands behind a quote, up to the next one.
fn quoted(mut rest: &str) -> Result<(Token, &str), String> {
    let mut text = String::new();
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '"' => return Ok((Token::Literal(Literal { parts: vec![text], quoted: true }), rest)),
            '\\' => match escaped(rest) {
                Some((one, left)) => {
                    text.push(one);
                    rest = left;
                }
                None => text.push('\\'),
            },
            one => text.push(one),
        }
    }
    Err("has a quote that does not end".to_owned())
}

/// Reads words, up to what means something. The first is none that joins.
fn unquoted(mut rest: &str) -> Result<(Token, &str), String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        match first {
            '\\' => {
                let (one, left) = taken(after)?;
                part.push(one);
                rest = left;
            }
            '*' => {
                parts.push(mem::take(&mut part));
                rest = after;
            }
            space if space.is_whitespace() => {
                let next = after.trim_start();
                if next.is_empty() || next.starts_with(ends_word) || joins(next).is_some() {
                    break;
                }
                part.push_str(&rest[..rest.len() - next.len()]);
                rest = next;
            }
            one if ends_word(one) => break,
            one => {
                part.push(one);
                rest = after;
            }
        }
    }
    parts.push(part);
    Ok((Token::Literal(Literal { parts, quoted: false }), rest))
}

/// Returns whether a character is no part of a word, where nothing escapes it.
fn ends_word(one: char) -> bool {
    one.is_whitespace() || matches!(one, ':' | '(' | ')' | '<' | '>' | '"' | '{' | '}')
}

/// Reads the first word where it is one that joins.
fn joins(text: &str) -> Option<(Token, &str)> {
    let (word, left) = text.split_at(text.find(ends_word).unwrap_or(text.len()));
    let token = match word {
        _ if word.eq_ignore_ascii_case("and") => Token::And,
        _ if word.eq_ignore_ascii_case("or") => Token::Or,
        _ if word.eq_ignore_ascii_case("not") => Token::Not,
        _ => return None,
    };
    Some((token, left))
}

/// Reads what a backslash before it makes of a text outside of quotes.
fn taken(text: &str) -> Result<(char, &str), String> {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return Err("ends with a backslash that escapes nothing".to_owned());
    };
    // The letter of `\not` is that of a word.
    let not = text.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("not"))
        && text.chars().nth(3).is_none_or(ends_word);
    Ok(escaped(text).filter(|_| !not).unwrap_or((first, chars.as_str())))
}

/// Reads an escape behind its backslash: one that has a meaning between quotes, too.
fn escaped(text: &str) -> Option<(char, &str)> {
    let mut chars = text.chars();
    let one = match chars.next()? {
        't' => '\t',
        'r' => '\r',
        'n' => '\n',
        one @ ('"' | '\\') => one,
        'u' => return spelled(chars.as_str()),
        _ => return None,
    };
    Some((one, chars.as_str()))
}

/// Reads the character that `\u0041` spells, from its digits on; one that is a pair of surrogates is spelled by two of these.
fn spelled(text: &str) -> Option<(char, &str)> {
    let unit = |text: &str| -> Option<u16> {
        let digits = text.get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (first, rest) = (unit(text)?, &text[4..]);
    if let Some(one) = char::from_u32(first.into()) {
        return Some((one, rest));
    }
    let low = rest.strip_prefix("\\u")?;
    let pair = [first, unit(low)?];
    Some((char::decode_utf16(pair).next()?.ok()?, &low[4..]))
}
