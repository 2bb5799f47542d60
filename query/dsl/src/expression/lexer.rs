//! Cuts sources into tokens.

use millrace_work::error::Result;

use super::compile_error;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A whole number.
    Int(i64),
    /// A floating point number.
    Double(f64),
    Name(String),
    /// A quoted text.
    Text(String),
    /// An operator or punctuation.
    Symbol(&'static str),
}

/// Operators and punctuation, longest first.
const SYMBOLS: &[&str] = &[
    "===", "!==", "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "(",
    ")", "[", "]", "{", "}", ".", ",", ";",
];

/// Cuts a source.
pub(super) fn tokens(source: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = source.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = if first.is_ascii_digit()
            || (first == '.' && rest.get(1..2).is_some_and(|next| next.as_bytes()[0].is_ascii_digit()))
        {
            number(rest)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (Token::Name(rest[..end].to_owned()), &rest[end..])
        } else if first == '\'' || first == '"' {
            let inner = &rest[1..];
            let end = inner.find(first).ok_or_else(|| unexpected(rest))?;
            (Token::Text(inner[..end].to_owned()), &inner[end + 1..])
        } else {
            let symbol = SYMBOLS.iter().copied().find(|symbol| rest.starts_with(symbol));
            let symbol = symbol.ok_or_else(|| unexpected(rest))?;
            (Token::Symbol(symbol), &rest[symbol.len()..])
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn unexpected(rest: &str) -> millrace_work::error::Error {
    let shown: String = rest.chars().take(16).collect();
    compile_error(&format!("unexpected character [{shown}]."))
}

/// Takes a number off the beginning.
fn number(rest: &str) -> Result<(Token, &str)> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| {
        from + bytes.get(from..).map_or(0, |tail| tail.iter().take_while(|b| b.is_ascii_digit()).count())
    };
    let mut end = digits(0);
    let mut whole = true;
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
        whole = false;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
            whole = false;
        }
    }
    let text = &rest[..end];
    let suffix = bytes.get(end).copied().filter(|b| b"lLfFdD".contains(b));
    let after = &rest[end + usize::from(suffix.is_some())..];
    let out_of_range = || compile_error(&format!("Invalid number [{text}]."));
    if whole && !matches!(suffix, Some(b'f' | b'F' | b'd' | b'D')) {
        return Ok((Token::Int(text.parse().map_err(|_| out_of_range())?), after));
    }
    Ok((Token::Double(text.parse().map_err(|_| out_of_range())?), after))
}
