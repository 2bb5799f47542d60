//! Tokens of scripts.

/// A token with its offset in the source.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) offset: usize,
    pub(super) kind: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Name(String),
    Int(i64),
    Double(f64),
    Text(String),
    /// A regular expression with its flags.
    Pattern(String, String),
    Symbol(&'static str),
    End,
}

/// Symbols, longer ones before those that begin them.
const SYMBOLS: [&str; 54] = [
    "===", "!==", "==~", ">>>", "<<=", ">>=", "&=", "|=", "^=", "->", "?.", "?:", "++", "--", "+=", "-=",
    "*=", "/=", "%=", "==", "!=", "=~", "<=", ">=", "&&", "||", "::", "<<", ">>", "&", "|", "^", "~", "(",
    ")", "[", "]", "{", "}", ".", ",", ";", ":", "?", "=", "<", ">", "+", "-", "*", "/", "%", "!", "@",
];

/// Cuts a source into tokens.
///
/// # Errors
/// Offset and reason of what is no token.
pub(super) fn tokens(source: &str) -> Result<Vec<Token>, (usize, String)> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(letter) = source.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = source.get(at..).unwrap_or_default();
        if letter.is_whitespace() {
            at += letter.len_utf8();
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").ok_or_else(|| (at, "a comment is not closed".to_owned()))?;
            at += end + 2;
        } else if letter.is_ascii_alphabetic() || matches!(letter, '_' | '$') {
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
            let length = rest.bytes().take_while(is_name).count();
            let name = rest.get(..length).unwrap_or_default().to_owned();
            out.push(Token { offset: at, kind: TokenKind::Name(name) });
            at += length;
        } else if letter.is_ascii_digit() {
            let (kind, length) = number(rest).map_err(|reason| (at, reason))?;
            out.push(Token { offset: at, kind });
            at += length;
        } else if matches!(letter, '"' | '\'') {
            let (text, length) = text(rest, letter).map_err(|reason| (at, reason))?;
            out.push(Token { offset: at, kind: TokenKind::Text(text) });
            at += length;
        } else if letter == '/' && begins_value(out.last()) {
            let (kind, length) = pattern(rest).map_err(|reason| (at, reason))?;
            out.push(Token { offset: at, kind });
            at += length;
        } else {
            let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
            let symbol = symbol.ok_or_else(|| (at, format!("unexpected character [{letter}].")))?;
            out.push(Token { offset: at, kind: TokenKind::Symbol(symbol) });
            at += symbol.len();
        }
    }
    out.push(Token { offset: source.len(), kind: TokenKind::End });
    Ok(out)
}

/// Returns whether a value stands behind a token, so that a slash begins a regular expression.
fn begins_value(before: Option<&Token>) -> bool {
    match before.map(|token| &token.kind) {
        Some(TokenKind::Symbol(symbol)) => !matches!(*symbol, ")" | "]" | "}" | "++" | "--"),
        Some(TokenKind::Name(name)) => matches!(name.as_str(), "return" | "in"),
        Some(_) => false,
        None => true,
    }
}

fn pattern(source: &str) -> Result<(TokenKind, usize), String> {
    let mut text = String::new();
    let mut letters = source.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '/' => {
                let flags = source.get(at + 1..).unwrap_or_default();
                let length = flags.bytes().take_while(u8::is_ascii_lowercase).count();
                let flags = flags.get(..length).unwrap_or_default().to_owned();
                return Ok((TokenKind::Pattern(text, flags), at + 1 + length));
            }
            '\n' => break,
            '\\' => match letters.next() {
                Some((_, '/')) => text.push('/'),
                Some((_, '\n')) | None => break,
                Some((_, escaped)) => text.extend(['\\', escaped]),
            },
            letter => text.push(letter),
        }
    }
    Err("a regular expression is not closed".to_owned())
}

fn number(text: &str) -> Result<(TokenKind, usize), String> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let length = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
        let number = i64::from_str_radix(hex.get(..length).unwrap_or_default(), 16);
        let number = number.map_err(|_| "an invalid number".to_owned())?;
        return Ok((TokenKind::Int(number), length + 2));
    }
    let mut length = digits(text);
    let mut is_double = false;
    let rest = |length: usize| text.get(length..).unwrap_or_default();
    if let Some(fraction) = rest(length).strip_prefix('.')
        && digits(fraction) > 0
    {
        length += 1 + digits(fraction);
        is_double = true;
    }
    if let Some(exponent) = rest(length).strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits(unsigned) > 0 {
            length += 1 + (exponent.len() - unsigned.len()) + digits(unsigned);
            is_double = true;
        }
    }
    let literal = text.get(..length).unwrap_or_default();
    let suffix = rest(length).chars().next().filter(|letter| "lLdDfF".contains(*letter));
    let length = length + usize::from(suffix.is_some());
    if is_double || matches!(suffix, Some('d' | 'D' | 'f' | 'F')) {
        let number = literal.parse().map_err(|_| format!("an invalid number [{literal}]"))?;
        return Ok((TokenKind::Double(number), length));
    }
    let number = literal.parse().map_err(|_| format!("the number [{literal}] does not fit into a long"))?;
    Ok((TokenKind::Int(number), length))
}

fn text(source: &str, quote: char) -> Result<(String, usize), String> {
    let mut out = String::new();
    let mut letters = source.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            letter if letter == quote => return Ok((out, at + 1)),
            '\\' => match letters.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 't')) => out.push('\t'),
                Some((_, 'r')) => out.push('\r'),
                Some((_, escaped @ ('\\' | '\'' | '"'))) => out.push(escaped),
                Some((_, other)) => return Err(format!("the escape [\\{other}] is not valid")),
                None => break,
            },
            letter => out.push(letter),
        }
    }
    Err("a string is not closed".to_owned())
}
