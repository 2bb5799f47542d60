//! Finding keys and values in a text.
//!
//! A key is a run of characters without separators, of which none is behind a backslash; then comes what splits keys from values;
//! then a value: in quotes, in brackets, or up to the next separator of fields. What does not begin a pair is passed over. Each
//! character is looked at a few times only, whatever the text.

use std::ops::Range;

use millrace_ingest::pattern::{Deadline, Expression, MatchStopped};

use crate::filter::characters::Characters;

/// Separator of keys and values, or of pairs.
#[derive(Debug)]
pub(super) enum Separator {
    /// One of some characters.
    Characters(Characters),
    Expression(Expression),
}

impl Separator {
    /// The first separator at a place or behind it; a character behind a backslash is none.
    fn find(
        &self,
        text: &str,
        from: usize,
        deadline: &Deadline,
    ) -> Result<Option<Range<usize>>, MatchStopped> {
        match self {
            Self::Characters(set) => {
                let mut escaped = false;
                for (at, letter) in text.get(from..).unwrap_or_default().char_indices() {
                    if set.contains(letter) && !escaped {
                        return Ok(Some(from + at..from + at + letter.len_utf8()));
                    }
                    escaped = letter == '\\' && !escaped;
                }
                Ok(None)
            }
            Self::Expression(expression) => {
                let mut at = from;
                while let Some(found) = expression.find_at(text, at, deadline)? {
                    let before = text.get(from..found.start).unwrap_or_default();
                    let backslashes = before.bytes().rev().take_while(|byte| *byte == b'\\').count();
                    let escaped = !backslashes.is_multiple_of(2);
                    if !escaped && !found.is_empty() {
                        return Ok(Some(found));
                    }
                    if deadline.is_over() {
                        return Err(MatchStopped);
                    }
                    at = match text.get(found.start..).and_then(|rest| rest.chars().next()) {
                        Some(letter) => found.start + letter.len_utf8(),
                        None => return Ok(None),
                    };
                }
                Ok(None)
            }
        }
    }
}

/// Syntax of pairs.
#[derive(Debug)]
pub(super) struct Syntax {
    pub(super) fields: Separator,
    pub(super) values: Separator,
    /// `true` if white space around what splits keys from values means nothing.
    pub(super) lenient: bool,
    pub(super) brackets: bool,
}

/// The next separators from a place on, so that each is searched once.
struct SeparatorLookahead<'a> {
    separator: &'a Separator,
    deadline: &'a Deadline,
    /// Begin of the last search, and its result.
    known: Option<(usize, Option<Range<usize>>)>,
}

impl<'a> SeparatorLookahead<'a> {
    fn new(separator: &'a Separator, deadline: &'a Deadline) -> Self {
        Self { separator, deadline, known: None }
    }

    fn find(&mut self, text: &str, from: usize) -> Result<Option<Range<usize>>, MatchStopped> {
        if let Some((searched, found)) = &self.known
            && *searched <= from
            && found.as_ref().is_none_or(|found| found.start >= from)
        {
            return Ok(found.clone());
        }
        let found = self.separator.find(text, from, self.deadline)?;
        self.known = Some((from, found.clone()));
        Ok(found)
    }
}

impl Syntax {
    /// Hands on each key with its value, which may be empty, until `pair` answers `false`.
    ///
    /// # Errors
    /// [`MatchStopped`] when the time is over.
    pub(super) fn scan<'t>(
        &self,
        text: &'t str,
        deadline: &Deadline,
        mut pair: impl FnMut(&'t str, &'t str) -> bool,
    ) -> Result<(), MatchStopped> {
        let mut fields = SeparatorLookahead::new(&self.fields, deadline);
        let mut values = SeparatorLookahead::new(&self.values, deadline);
        let mut at = 0;
        while at < text.len() {
            // Without a further splitter there is no further pair.
            let Some(splitter) = values.find(text, at)? else { return Ok(()) };
            let field = fields.find(text, at)?;
            let end = field.as_ref().map_or(splitter.start, |field| field.start.min(splitter.start));
            if end == at {
                // A key has at least one character.
                let next =
                    if splitter.start == at { splitter.end } else { field.map_or(at, |field| field.end) };
                at = next.max(at + 1);
                continue;
            }
            let (key_end, behind) = match self.splitter_behind(text, end, &splitter) {
                Some(found) => found,
                None => {
                    at = field.map_or(splitter.end, |field| field.end).max(end);
                    continue;
                }
            };
            let key = text.get(at..key_end).unwrap_or_default();
            let (value, next) = self.value(text, behind, &mut fields)?;
            if !key.is_empty() && !pair(key, value) {
                return Ok(());
            }
            at = next.max(at + 1);
        }
        Ok(())
    }

    /// Returns the end of the key and the begin of the value, if the splitter follows the key, which ends before `end`.
    fn splitter_behind(&self, text: &str, end: usize, splitter: &Range<usize>) -> Option<(usize, usize)> {
        if !self.lenient {
            return (splitter.start == end).then_some((end, splitter.end));
        }
        let between = text.get(end..splitter.start)?;
        if !between.bytes().all(|byte| byte == b' ') {
            return None;
        }
        let key = text.get(..end)?;
        let value = text.get(splitter.end..)?;
        let space = value.len() - value.trim_start_matches(' ').len();
        Some((key.trim_end_matches(' ').len(), splitter.end + space))
    }

    /// The value at a place, and where the next pair may begin.
    fn value<'t>(
        &self,
        text: &'t str,
        at: usize,
        fields: &mut SeparatorLookahead<'_>,
    ) -> Result<(&'t str, usize), MatchStopped> {
        let rest = text.get(at..).unwrap_or_default();
        let close = match rest.as_bytes().first() {
            Some(b'"') => Some('"'),
            Some(b'\'') => Some('\''),
            Some(b'(') if self.brackets => Some(')'),
            Some(b'[') if self.brackets => Some(']'),
            Some(b'<') if self.brackets => Some('>'),
            _ => None,
        };
        if let Some(close) = close
            && let Some(length) = enclosed(rest.get(1..).unwrap_or_default(), close)
        {
            let end = at + 1 + length + 1;
            let separator = fields.find(text, end)?;
            let follows = separator.filter(|separator| separator.start == end).map(|separator| separator.end);
            let line_ends = end == text.len() || text.as_bytes().get(end) == Some(&b'\n');
            if let Some(next) = follows.or(line_ends.then_some(end)) {
                return Ok((text.get(at + 1..at + 1 + length).unwrap_or_default(), next));
            }
        }
        Ok(match fields.find(text, at)? {
            Some(separator) => (text.get(at..separator.start).unwrap_or_default(), separator.end),
            None => (rest, text.len()),
        })
    }
}

/// Bytes before the character that closes a value; one behind a backslash closes it only where no other does, as in `"C:\dir\"`.
fn enclosed(text: &str, close: char) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        if letter == close && !escaped {
            return Some(at);
        }
        escaped = letter == '\\' && !escaped;
    }
    text.rfind(close)
}
