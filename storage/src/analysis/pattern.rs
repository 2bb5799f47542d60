//! Regular expressions written for Java, as analysis components take them.
//!
//! They run on the `regex` crate, in linear time whatever the pattern. What is written differently
//! there is translated: `\w`, `\d`, `\s`, `\b` and the POSIX classes mean ASCII in Java, `\uXXXX` is a
//! character, `\Q…\E` a quotation. Look-around, back references and possessive quantifiers are refused.

use regex::{Captures, Regex, RegexBuilder};

use super::char_filter::most_bytes;
use crate::{Error, Result};

/// Longest pattern that is compiled.
const MAX_PATTERN_BYTES: usize = 10_000;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct JavaPattern {
    regex: Regex,
}

/// A replacement with references to groups, `$1` or `${name}`.
#[derive(Debug)]
pub(crate) struct Replacement {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Group(usize),
}

impl JavaPattern {
    /// Compiles a pattern with Java's flags (`CASE_INSENSITIVE|DOTALL`).
    pub(crate) fn new(pattern: &str, flags: &str) -> Result<Self> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(Error::IllegalArgument(format!(
                "pattern of {} bytes is longer than {MAX_PATTERN_BYTES}",
                pattern.len()
            )));
        }
        let mut literal = false;
        let mut options: Vec<&str> = Vec::new();
        for flag in flags.split('|').map(str::trim).filter(|flag| !flag.is_empty()) {
            match flag.to_uppercase().as_str() {
                "CASE_INSENSITIVE" => options.push("i"),
                "MULTILINE" => options.push("m"),
                "DOTALL" => options.push("s"),
                "COMMENTS" | "COMMENT" => options.push("x"),
                "UNICODE_CASE"
                | "CANON_EQ"
                | "UNIX_LINES"
                | "UNICODE_CHAR_CLASS"
                | "UNICODE_CHARACTER_CLASS" => {}
                "LITERAL" => literal = true,
                _ => return Err(Error::IllegalArgument(format!("Unknown regex flag [{flag}]"))),
            }
        }
        let translated = if literal { regex::escape(pattern) } else { translate(pattern)? };
        let mut builder = RegexBuilder::new(&translated);
        builder.size_limit(4 << 20).nest_limit(100);
        builder.case_insensitive(options.contains(&"i"));
        builder.multi_line(options.contains(&"m"));
        builder.dot_matches_new_line(options.contains(&"s"));
        builder.ignore_whitespace(options.contains(&"x"));
        let regex = builder.build().map_err(|error| {
            Error::IllegalArgument(format!("failed to compile pattern [{pattern}]: {error}"))
        })?;
        Ok(Self { regex })
    }

    /// Iterates over matches with their groups.
    pub(crate) fn captures_iter<'p, 't>(&'p self, text: &'t str) -> regex::CaptureMatches<'p, 't> {
        self.regex.captures_iter(text)
    }

    /// Iterates over matches.
    pub(crate) fn find_iter<'p, 't>(&'p self, text: &'t str) -> regex::Matches<'p, 't> {
        self.regex.find_iter(text)
    }

    /// Whether the pattern matches all of `text`.
    pub(crate) fn matches(&self, text: &str) -> bool {
        // Anchored alternatives may end earlier, so that all matches are looked at.
        self.regex.find(text).is_some_and(|found| found.start() == 0 && found.end() == text.len())
    }

    /// The number of groups, the whole match apart.
    pub(crate) fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// Reads a replacement for matches of this pattern.
    pub(crate) fn replacement(&self, text: &str) -> Result<Replacement> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            match c {
                '\\' => literal.push(characters.next().ok_or_else(|| {
                    Error::IllegalArgument("character to be escaped is missing".to_owned())
                })?),
                '$' => {
                    let group = if characters.peek() == Some(&'{') {
                        characters.next();
                        let name: String = characters.by_ref().take_while(|&c| c != '}').collect();
                        self.regex
                            .capture_names()
                            .position(|given| given == Some(name.as_str()))
                            .ok_or_else(|| Error::IllegalArgument(format!("No group with name {{{name}}}")))?
                    } else {
                        let mut group = characters
                            .next()
                            .and_then(|c| c.to_digit(10))
                            .ok_or_else(|| Error::IllegalArgument("Illegal group reference".to_owned()))?
                            as usize;
                        if group > self.groups() {
                            return Err(Error::IllegalArgument(format!("No group {group}")));
                        }
                        // Further digits belong to the reference while there is such a group.
                        while let Some(digit) = characters.peek().and_then(|c| c.to_digit(10)) {
                            let longer = group * 10 + digit as usize;
                            if longer > self.groups() {
                                break;
                            }
                            group = longer;
                            characters.next();
                        }
                        group
                    };
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Group(group));
                }
                c => literal.push(c),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Replacement { parts })
    }

    /// Replaces all matches, or only the first.
    pub(crate) fn replace(&self, text: &str, replacement: &Replacement, all: bool) -> Option<String> {
        let mut out = String::new();
        let mut last = None;
        for captures in self.regex.captures_iter(text) {
            let Some(whole) = captures.get(0) else { continue };
            out.push_str(&text[last.unwrap_or(0)..whole.start()]);
            if !replacement.expand(&captures, &mut out, most_bytes(text.len())) {
                // Longer than any term, so the token counts as cut.
                return Some(out);
            }
            last = Some(whole.end());
            if !all {
                break;
            }
        }
        last.map(|last| {
            out.push_str(&text[last..]);
            out
        })
    }
}

impl Replacement {
    /// Appends the replacement of one match: its beginning, and false, where the text would be longer than `most` bytes.
    pub(crate) fn expand(&self, captures: &Captures<'_>, out: &mut String, most: usize) -> bool {
        for part in &self.parts {
            let part = match part {
                Part::Text(text) => text.as_str(),
                Part::Group(group) => captures.get(*group).map_or("", |found| found.as_str()),
            };
            let room = most.saturating_sub(out.len());
            if part.len() > room {
                out.push_str(&part[..part.floor_char_boundary(room)]);
                return false;
            }
            out.push_str(part);
        }
        true
    }
}

/// Rewrites what Java writes differently.
fn translate(pattern: &str) -> Result<String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut characters = pattern.chars().peekable();
    let mut class_depth = 0usize;
    while let Some(c) = characters.next() {
        match c {
            '[' => {
                class_depth += 1;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    out.extend(characters.next());
                }
                // A bracket that comes first is a character in Java too only where it is escaped.
                continue;
            }
            ']' if class_depth > 0 => class_depth -= 1,
            '\\' => {
                escape(&mut characters, class_depth > 0, &mut out)?;
                continue;
            }
            // Java's classes know no subtraction or symmetric difference.
            '-' | '~' if class_depth > 0 && characters.peek() == Some(&c) => out.push('\\'),
            '+' if class_depth == 0
                && out.ends_with(['*', '+', '?', '}'])
                && !out.ends_with("\\*")
                && !out.ends_with("\\+")
                && !out.ends_with("\\?")
                && !out.ends_with("\\}") =>
            {
                return Err(Error::IllegalArgument(format!(
                    "possessive quantifiers are not supported in pattern [{pattern}]"
                )));
            }
            _ => {}
        }
        out.push(c);
    }
    Ok(out)
}

fn escape(
    characters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    in_class: bool,
    out: &mut String,
) -> Result<()> {
    let Some(c) = characters.next() else {
        out.push('\\');
        return Ok(());
    };
    match c {
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        's' => out.push_str("[ \\t\\n\\x0b\\f\\r]"),
        'S' => out.push_str("[^ \\t\\n\\x0b\\f\\r]"),
        'h' => out.push_str("[ \\t\\u{a0}\\u{1680}\\u{180e}\\u{2000}-\\u{200a}\\u{202f}\\u{205f}\\u{3000}]"),
        'v' => out.push_str("[\\n\\x0b\\f\\r\\u{85}\\u{2028}\\u{2029}]"),
        'R' if !in_class => out.push_str("(?:\\r\\n|[\\n\\x0b\\f\\r\\u{85}\\u{2028}\\u{2029}])"),
        'Z' if !in_class => out.push_str("\\n?\\z"),
        'e' => out.push_str("\\x1b"),
        'Q' => {
            let mut quoted = String::new();
            while let Some(c) = characters.next() {
                if c == '\\' && characters.peek() == Some(&'E') {
                    characters.next();
                    break;
                }
                quoted.push(c);
            }
            out.push_str(&regex::escape(&quoted));
        }
        'u' if characters.peek() != Some(&'{') => {
            let digits: String = characters.by_ref().take(4).collect();
            let code =
                u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4).ok_or_else(|| {
                    Error::IllegalArgument(format!("Illegal Unicode escape sequence [\\u{digits}]"))
                })?;
            out.push_str(&format!("\\x{{{code:x}}}"));
        }
        'p' | 'P' if characters.peek() == Some(&'{') => {
            characters.next();
            let name: String = characters.by_ref().take_while(|&c| c != '}').collect();
            property(c == 'P', &name, out);
        }
        other => {
            out.push('\\');
            out.push(other);
        }
    }
    Ok(())
}

/// Writes a property: the POSIX names are ASCII in Java, `Is…` and `In…` are prefixes.
fn property(negated: bool, name: &str, out: &mut String) {
    let posix = match name {
        "Lower" => "a-z",
        "Upper" => "A-Z",
        "ASCII" => "\\x00-\\x7f",
        "Alpha" => "A-Za-z",
        "Digit" => "0-9",
        "Alnum" => "0-9A-Za-z",
        "Punct" => "!-/:-@\\[-`{-~",
        "Graph" => "!-~",
        "Print" => " -~",
        "Blank" => " \\t",
        "Cntrl" => "\\x00-\\x1f\\x7f",
        "XDigit" => "0-9A-Fa-f",
        "Space" => " \\t\\n\\x0b\\f\\r",
        "javaLowerCase" => "\\p{Lowercase}",
        "javaUpperCase" => "\\p{Uppercase}",
        "javaWhitespace" => {
            "\\t-\\r\\x1c-\\x1f \\u{1680}\\u{2000}-\\u{2006}\\u{2008}-\\u{200a}\\u{2028}\\u{2029}\\u{205f}\\u{3000}"
        }
        "javaLetter" => "\\p{L}",
        "javaDigit" => "\\p{Nd}",
        "javaLetterOrDigit" => "\\p{L}\\p{Nd}",
        _ => "",
    };
    if !posix.is_empty() {
        out.push_str(if negated { "[^" } else { "[" });
        out.push_str(posix);
        out.push(']');
        return;
    }
    let name = name.strip_prefix("Is").unwrap_or(name);
    let name = name.strip_prefix("IS").unwrap_or(name);
    out.push_str(if negated { "\\P{" } else { "\\p{" });
    out.push_str(name);
    out.push('}');
}
