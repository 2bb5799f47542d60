//! Regular expressions for searching and replacing.

use std::fmt;
use std::ops::Range;

use parking_lot::Mutex;
use pcre2::bytes::{CaptureLocations, Regex};

use super::translate::translate;
use super::{Bounds, Stopped};

/// Locations kept for reuse.
const MAX_IDLE: usize = 16;

/// A compiled regular expression.
pub struct Expression {
    regex: Regex,
    /// Names of the groups, with their numbers.
    names: Vec<(String, usize)>,
    idle: Mutex<Vec<CaptureLocations>>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.regex.as_str()).finish()
    }
}

/// What a match is replaced by: text, and groups as `\1`, `\0` and `\k<name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(expression: &str, bounds: Bounds) -> Result<Self, String> {
        let (translated, captures) = translate(expression, Vec::new())?;
        let names = captures.into_iter().map(|capture| (capture.name, capture.group)).collect::<Vec<_>>();
        let regex = bounds.compile(&translated, !names.is_empty());
        let regex = regex.map_err(|error| format!("[{expression}] is not a regular expression: {error}"))?;
        Ok(Self { regex, names, idle: Mutex::new(Vec::new()) })
    }

    /// Finds the first match that begins at a place or behind it.
    ///
    /// # Errors
    /// [`Stopped`] at a bound.
    pub fn find_at(&self, text: &str, from: usize) -> Result<Option<Range<usize>>, Stopped> {
        self.with_locations(|locations| self.find(locations, text, from))
    }

    /// Replaces all matches. `None` where there is none.
    ///
    /// # Errors
    /// [`Stopped`] at a bound.
    pub fn replace_all(&self, text: &str, replacement: &Replacement) -> Result<Option<String>, Stopped> {
        self.with_locations(|locations| {
            let mut out = String::new();
            let (mut copied, mut from) = (0, 0);
            let mut any = false;
            while let Some(found) = self.find(locations, text, from)? {
                any = true;
                out.push_str(text.get(copied..found.start).unwrap_or_default());
                for part in &replacement.parts {
                    match part {
                        Part::Text(text) => out.push_str(text),
                        Part::Group(group) => {
                            let range = locations.get(*group).filter(|(start, end)| start <= end);
                            out.push_str(
                                range.and_then(|(start, end)| text.get(start..end)).unwrap_or_default(),
                            );
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
            }
            out.push_str(text.get(copied..).unwrap_or_default());
            Ok(any.then_some(out))
        })
    }

    fn find(
        &self,
        locations: &mut CaptureLocations,
        text: &str,
        from: usize,
    ) -> Result<Option<Range<usize>>, Stopped> {
        if from > text.len() {
            return Ok(None);
        }
        match self.regex.captures_read_at(locations, text.as_bytes(), from) {
            // A match that `\K` or a look-behind begins before the place would be found for ever.
            Ok(found) => Ok(found.map(|found| found.start().max(from)..found.end().max(from))),
            Err(_) => Err(Stopped),
        }
    }

    fn with_locations<T>(&self, run: impl FnOnce(&mut CaptureLocations) -> T) -> T {
        let idle = self.idle.lock().pop();
        let mut locations = idle.unwrap_or_else(|| self.regex.capture_locations());
        let result = run(&mut locations);
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(locations);
        }
        result
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
                parts.push(Part::Text(std::mem::take(&mut literal)));
                parts.push(Part::Group(group));
            }
            rest = from.get(length..).unwrap_or_default();
        }
        literal.push_str(rest);
        parts.push(Part::Text(literal));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        Self { parts }
    }
}
