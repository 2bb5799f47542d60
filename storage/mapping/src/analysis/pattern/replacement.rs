//! Replacements with references to groups, as `java.util.regex.Matcher` reads them.

use millrace_runtime::{Error, Result};

use super::{JavaPattern, Matches};
use crate::analysis::char_filter::most_bytes;

/// A replacement with references to groups, `$1` or `${name}`.
#[derive(Debug)]
pub(crate) struct Replacement {
    parts: Vec<ReplacementItem>,
}

#[derive(Debug)]
enum ReplacementItem {
    Text(String),
    Group(usize),
}

impl JavaPattern {
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
                        self.group_of(&name)
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
                        parts.push(ReplacementItem::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(ReplacementItem::Group(group));
                }
                c => literal.push(c),
            }
        }
        if !literal.is_empty() {
            parts.push(ReplacementItem::Text(literal));
        }
        Ok(Replacement { parts })
    }

    /// Replaces all matches, or only the first.
    pub(crate) fn replace(&self, text: &str, replacement: &Replacement, all: bool) -> Option<String> {
        let mut out = String::new();
        let mut last = None;
        let mut matches = self.captures_all(text);
        while let Some(whole) = matches.find_next() {
            out.push_str(&text[last.unwrap_or(0)..whole.start]);
            if !replacement.expand(text, &matches, &mut out, most_bytes(text.len())) {
                // Longer than any term, so the token counts as cut.
                return Some(out);
            }
            last = Some(whole.end);
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
    pub(crate) fn expand(&self, text: &str, found: &Matches<'_, '_>, out: &mut String, most: usize) -> bool {
        for part in &self.parts {
            let part = match part {
                ReplacementItem::Text(literal) => literal.as_str(),
                ReplacementItem::Group(group) => found.group(*group).map_or("", |group| &text[group]),
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
