//! Regular expressions for searching and replacing.

use std::fmt;
use std::ops::Range;

use super::native::Locations;
use super::regex::Regex;
use super::{Deadline, MatchStopped};

/// Longest expression, in bytes. Events may name some.
const MAX_BYTES: usize = 64 << 10;

/// Longest text that replacing makes, in bytes.
const MAX_REPLACED_BYTES: usize = 64 << 20;

/// A compiled regular expression.
pub struct Expression {
    text: String,
    regex: Regex,
    /// Names of the groups, with their numbers.
    names: Vec<(String, usize)>,
}

/// Shows it as it is written.
impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.text)
    }
}

/// Replacement of a match: text, and groups as `\1`, `\0` and `\k<name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    parts: Vec<ExpressionItem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpressionItem {
    Text(String),
    Group(usize),
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn compile(expression: &str) -> Result<Self, String> {
        if expression.len() > MAX_BYTES {
            return Err(format!("a regular expression is longer than {MAX_BYTES} bytes"));
        }
        let (regex, captures) = Regex::compile(expression)
            .map_err(|error| format!("[{expression}] is not a regular expression: {error}"))?;
        let names = captures.into_iter().map(|capture| (capture.name, capture.group)).collect();
        Ok(Self { text: expression.to_owned(), regex, names })
    }

    /// Returns its source text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether a text has a match.
    ///
    /// # Errors
    /// [`MatchStopped`] when the time is over.
    pub fn is_match(&self, text: &str, deadline: &Deadline) -> Result<bool, MatchStopped> {
        self.regex.find(&mut self.regex.locations(), text, 0, deadline)
    }

    /// Finds the first match that begins at a place or behind it.
    ///
    /// # Errors
    /// [`MatchStopped`] when the time is over.
    pub fn find_at(
        &self,
        text: &str,
        from: usize,
        deadline: &Deadline,
    ) -> Result<Option<Range<usize>>, MatchStopped> {
        self.find(&mut self.regex.locations(), text, from, deadline)
    }

    /// Finds the first match that begins at a place or behind it, with its groups; the first of these is the match itself.
    ///
    /// # Errors
    /// [`MatchStopped`] when the time is over.
    pub fn captures_at(
        &self,
        text: &str,
        from: usize,
        deadline: &Deadline,
    ) -> Result<Option<Vec<Option<Range<usize>>>>, MatchStopped> {
        let mut locations = self.regex.locations();
        let Some(whole) = self.find(&mut locations, text, from, deadline)? else { return Ok(None) };
        let groups = (1..locations.groups()).map(|group| locations.get(group));
        Ok(Some(std::iter::once(Some(whole)).chain(groups).collect()))
    }

    /// Returns the names of the groups, with their numbers.
    pub fn group_names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().map(|(name, group)| (name.as_str(), *group))
    }

    /// Replaces all matches. `None` where there is none.
    ///
    /// # Errors
    /// [`MatchStopped`] when the time for all of them is over, or the text becomes longer than 64 MiB.
    pub fn replace_all(
        &self,
        text: &str,
        replacement: &Replacement,
        deadline: &Deadline,
    ) -> Result<Option<String>, MatchStopped> {
        let mut locations = self.regex.locations();
        let mut out = String::new();
        let (mut copied, mut from) = (0, 0);
        let mut any = false;
        while let Some(found) = self.find(&mut locations, text, from, deadline)? {
            any = true;
            out.push_str(text.get(copied..found.start).unwrap_or_default());
            for part in &replacement.parts {
                match part {
                    ExpressionItem::Text(text) => out.push_str(text),
                    ExpressionItem::Group(group) => {
                        let range = locations.get(*group);
                        out.push_str(range.and_then(|range| text.get(range)).unwrap_or_default());
                    }
                }
            }
            copied = found.end;
            from = found.end;
            if found.is_empty() {
                // The next match begins a character further on.
                let Some(next) = text.get(from..).and_then(|rest| rest.chars().next()) else { break };
                from += next.len_utf8();
            }
            if out.len() > MAX_REPLACED_BYTES || deadline.is_over() {
                return Err(MatchStopped);
            }
        }
        out.push_str(text.get(copied..).unwrap_or_default());
        Ok(any.then_some(out))
    }

    fn find(
        &self,
        locations: &mut Locations,
        text: &str,
        from: usize,
        deadline: &Deadline,
    ) -> Result<Option<Range<usize>>, MatchStopped> {
        if from > text.len() || !self.regex.find(locations, text, from, deadline)? {
            return Ok(None);
        }
        // A match that `\K` or a look-behind begins before the place would be found for ever.
        Ok(locations.get(0).map(|found| found.start.max(from)..found.end.max(from)))
    }
}

impl Replacement {
    /// Reads a replacement for the matches of an expression. A group that it does not have is empty.
    pub fn parse(text: &str, expression: &Expression) -> Self {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            let (before, from) = rest.split_at(at);
            literal.push_str(before);
            let (group, length) = match from.as_bytes().get(1) {
                Some(digit @ b'0'..=b'9') => (Some(usize::from(digit - b'0')), 2),
                Some(b'\\') => {
                    literal.push('\\');
                    (None, 2)
                }
                Some(b'k') => match from.strip_prefix("\\k<").and_then(|name| name.split_once('>')) {
                    Some((name, _)) => {
                        let group = expression.names.iter().rev().find(|(known, _)| known == name);
                        (Some(group.map_or(usize::MAX, |(_, group)| *group)), name.len() + 4)
                    }
                    None => {
                        literal.push_str("\\k");
                        (None, 2)
                    }
                },
                _ => {
                    literal.push('\\');
                    (None, 1)
                }
            };
            if let Some(group) = group {
                parts.push(ExpressionItem::Text(std::mem::take(&mut literal)));
                parts.push(ExpressionItem::Group(group));
            }
            rest = from.get(length..).unwrap_or_default();
        }
        literal.push_str(rest);
        parts.push(ExpressionItem::Text(literal));
        parts.retain(|part| !matches!(part, ExpressionItem::Text(text) if text.is_empty()));
        Self { parts }
    }
}
