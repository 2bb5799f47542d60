//! The `pattern` tokenizer: a regular expression that matches separators, or tokens.
//!
//! Patterns are written for Java. The differences that occur in practice are translated: `\w`,
//! `\d`, `\s` mean ASCII there. Look-around, back references and possessive quantifiers are
//! refused; in exchange matching takes linear time whatever the pattern.

use regex::{Regex, RegexBuilder};

use super::{Emitter, Tokenizer};
use crate::analysis::Token;
use crate::{Error, Result};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// The group that is the token; `None` where matches separate tokens.
    group: Option<usize>,
}

impl Pattern {
    /// Compiles a pattern with Java's flags (`CASE_INSENSITIVE|DOTALL`); `group` is -1 to split.
    pub(crate) fn new(pattern: &str, flags: &str, group: i64) -> Result<Self> {
        let mut builder = RegexBuilder::new(&ascii_classes(pattern));
        builder.size_limit(1 << 20).nest_limit(100);
        for flag in flags.split('|').map(str::trim).filter(|flag| !flag.is_empty()) {
            match flag {
                "CASE_INSENSITIVE" => builder.case_insensitive(true),
                "MULTILINE" => builder.multi_line(true),
                "DOTALL" => builder.dot_matches_new_line(true),
                "COMMENTS" => builder.ignore_whitespace(true),
                "UNICODE_CASE" | "UNICODE_CHARACTER_CLASS" => &mut builder,
                _ => return Err(Error::IllegalArgument(format!("Unknown regex flag [{flag}]"))),
            };
        }
        let regex = builder.build().map_err(|error| {
            Error::IllegalArgument(format!("failed to compile pattern [{pattern}]: {error}"))
        })?;
        let group = match usize::try_from(group) {
            Ok(group) if group >= regex.captures_len() => {
                return Err(Error::IllegalArgument(format!(
                    "invalid group specified: pattern only has: {} capturing groups",
                    regex.captures_len() - 1
                )));
            }
            Ok(group) => Some(group),
            Err(_) => None,
        };
        Ok(Self { regex, group })
    }
}

impl Tokenizer for Pattern {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut out = Emitter::new(text, sink);
        match self.group {
            Some(0) => {
                for found in self.regex.find_iter(text).filter(|found| !found.is_empty()) {
                    out.emit(text, found.start(), found.end());
                }
            }
            Some(group) => {
                for captures in self.regex.captures_iter(text) {
                    if let Some(found) = captures.get(group).filter(|found| !found.is_empty()) {
                        out.emit(text, found.start(), found.end());
                    }
                }
            }
            None => {
                let mut start = 0;
                for found in self.regex.find_iter(text) {
                    if found.start() > start {
                        out.emit(text, start, found.start());
                    }
                    start = found.end();
                }
                if start < text.len() {
                    out.emit(text, start, text.len());
                }
            }
        }
        out.next_position
    }
}

/// Replaces the shorthand classes by their ASCII meaning.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match characters.next() {
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('s') => out.push_str("[ \\t\\n\\x0b\\f\\r]"),
            Some('S') => out.push_str("[^ \\t\\n\\x0b\\f\\r]"),
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => out.push('\\'),
        }
    }
    out
}
