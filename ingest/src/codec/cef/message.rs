//! Syntax of CEF: seven header fields that pipes end, then `key=value` pairs. Values may have spaces, so that a key with its `=`
//! behind a space ends the value before it.

use std::borrow::Cow;

/// Header fields of a message.
const HEADER_FIELDS: usize = 7;
/// Most pairs of a message.
const MAX_PAIRS: usize = 10_000;

/// A message, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CefMessage {
    /// Text before `CEF:`, where there is one.
    pub(super) syslog: Option<String>,
    /// Version of CEF, vendor, product, version, signature, name and severity.
    pub(super) header: [String; HEADER_FIELDS],
    /// Keys with their values, in the order written.
    pub(super) pairs: Vec<(String, String)>,
}

/// Reason why a text is no message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MalformedCef {
    #[error("[{0}] of 7 header fields end with a pipe")]
    Header(usize),
    #[error("the message has several lines; [delimiter] cuts messages apart")]
    Lines,
    #[error("text without a key follows the header")]
    Keyless,
    #[error("the message has more than {MAX_PAIRS} pairs")]
    TooManyPairs,
}

impl CefMessage {
    /// Parses a message.
    ///
    /// # Errors
    /// The reason why the text is none.
    pub(super) fn parse(text: &str) -> Result<Self, MalformedCef> {
        let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.contains('\n') {
            return Err(MalformedCef::Lines);
        }
        let mut header: [String; HEADER_FIELDS] = Default::default();
        let mut rest = text;
        for (number, field) in header.iter_mut().enumerate() {
            let end = unescaped_pipe(rest).ok_or(MalformedCef::Header(number))?;
            let (value, behind) = rest.split_at(end);
            *field = unescaped_header(value);
            rest = behind.get(1..).unwrap_or_default();
        }
        let mut syslog = None;
        let [version, ..] = &mut header;
        if let Some((before, own)) = version.rsplit_once(' ') {
            syslog = Some(before.to_owned());
            *version = own.to_owned();
        }
        if let Some(number) = version.strip_prefix("CEF:") {
            *version = number.to_owned();
        }
        Ok(Self { syslog, header, pairs: parse_pairs(rest.trim_matches(is_space))? })
    }
}

/// Returns whether a character is white space to Ruby's expressions.
fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n' | '\u{b}' | '\u{c}')
}

/// Finds the first pipe without a backslash before it.
fn unescaped_pipe(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'|' if !is_escaped => return Some(at),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

fn unescaped_header(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some(&escaped @ ('\\' | '|'))) => {
                text.push(escaped);
                letters.next();
            }
            _ => text.push(letter),
        }
    }
    text
}

fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, MalformedCef> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let key = key_length(rest).ok_or(MalformedCef::Keyless)?;
        let (key, behind) = rest.split_at(key);
        let value = behind.get(1..).unwrap_or_default();
        let end = value_length(value);
        let (value, behind) = value.split_at(end);
        if pairs.len() >= MAX_PAIRS {
            return Err(MalformedCef::TooManyPairs);
        }
        pairs.push((key.to_owned(), unescaped_value(value)));
        rest = behind.trim_start_matches(is_space);
    }
    Ok(pairs)
}

/// Returns the length of the key that a text begins with, up to its `=`: `word`, `word.sub-key` or `word[0]`.
fn key_length(text: &str) -> Option<usize> {
    let word =
        |text: &str| text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let mut length = word(text);
    if length == 0 {
        return None;
    }
    while let Some(rest) = text.get(length..).and_then(|rest| rest.strip_prefix('.')) {
        let ends = |letter: char| is_space(letter) || matches!(letter, '.' | '=' | '|' | '\\' | '[' | ']');
        let part = rest.find(ends).unwrap_or(rest.len());
        if part == 0 {
            return None;
        }
        length += 1 + part;
    }
    if let Some(rest) = text.get(length..).and_then(|rest| rest.strip_prefix('[')) {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || rest.as_bytes().get(digits) != Some(&b']') {
            return None;
        }
        length += digits + 2;
    }
    (text.as_bytes().get(length) == Some(&b'=')).then_some(length)
}

/// Returns the length of the value that a text begins with: up to white space that a key follows.
fn value_length(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let Some(space) = rest.find(is_space) else { return text.len() };
        let behind = rest.get(space..).unwrap_or_default().trim_start_matches(is_space);
        if key_length(behind).is_some() {
            return at + space;
        }
        if behind.is_empty() {
            return text.len();
        }
        at = text.len() - behind.len();
    }
}

fn unescaped_value(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        let escaped = match (letter, letters.peek()) {
            ('\\', Some('\\')) => '\\',
            ('\\', Some('=')) => '=',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            _ => {
                text.push(letter);
                continue;
            }
        };
        text.push(escaped);
        letters.next();
    }
    text
}

/// Escapes a header field; line ends become spaces.
pub(super) fn escaped_header(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for letter in value.replace("\r\n", "\n").chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '|' => text.push_str("\\|"),
            '\n' | '\r' => text.push(' '),
            other => text.push(other),
        }
    }
    text
}

/// Escapes a value; line ends become `\n`.
pub(super) fn escaped_value(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for letter in value.replace("\r\n", "\n").chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '=' => text.push_str("\\="),
            '\n' | '\r' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text
}

/// Leaves the letters and digits of a key.
pub(super) fn plain_key(key: &str) -> Cow<'_, str> {
    if key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(key);
    }
    Cow::Owned(key.chars().filter(char::is_ascii_alphanumeric).collect())
}
