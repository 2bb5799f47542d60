//! Regular expressions of `java.util.regex`, as components of analysis take them.
//!
//! A pattern is read into a tree (`syntax`, `escape`, `class`). Where it can, the `regex` crate matches it in linear time
//! (`regular`); look-around, back references, possessive quantifiers, and ends of lines in texts of several lines are
//! matched by backtracking, in a bounded number of steps (`program`, `backtrack`).

mod backtrack;
mod class;
mod escape;
mod program;
mod regular;
mod replacement;
mod syntax;
#[cfg(test)]
mod tests;

use std::ops::Range;

use regex::{CaptureLocations, Regex, RegexBuilder};

use backtrack::Matcher;
use millrace_runtime::{Error, Result};
use program::Program;
use regular::Domain;
use syntax::{Assertion, Flags, Node};

pub(crate) use replacement::Replacement;

/// Longest pattern that is compiled.
const MAX_PATTERN_BYTES: usize = 10_000;
/// Most bytes of an expression that the `regex` crate compiles.
const MAX_REGEX_BYTES: usize = 4 << 20;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct JavaPattern {
    /// Expression that matches in linear time, and the texts for which it is right.
    regular: Option<(Regex, Domain)>,
    program: Program,
    /// Names of the groups by number, the whole match first.
    names: Vec<Option<String>>,
}

impl JavaPattern {
    /// Compiles a pattern with Java's flags (`CASE_INSENSITIVE|DOTALL`).
    ///
    /// # Errors
    /// `IllegalArgument`: the pattern or a flag is wrong, too long, or not supported.
    pub(crate) fn new(pattern: &str, flags: &str) -> Result<Self> {
        Self::compile(pattern, flags, |node| node)
    }

    /// Compiles a pattern for [`matches`](Self::matches): it must match all of a text.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn entire(pattern: &str) -> Result<Self> {
        Self::compile(pattern, "", |node| {
            Node::Concat(vec![
                Node::Assertion(Assertion::TextStart),
                node,
                Node::Assertion(Assertion::TextEnd),
            ])
        })
    }

    fn compile(pattern: &str, flags: &str, wrap: impl FnOnce(Node) -> Node) -> Result<Self> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(Error::IllegalArgument(format!(
                "pattern of {} bytes is longer than {MAX_PATTERN_BYTES}",
                pattern.len()
            )));
        }
        let failed =
            |error: String| Error::IllegalArgument(format!("failed to compile pattern [{pattern}]: {error}"));
        let parsed = syntax::parse(pattern, read_flags(flags)?).map_err(failed)?;
        let node = wrap(parsed.node);
        let program = Program::new(&node, parsed.names.len() - 1).map_err(failed)?;
        let regular = match regular::expression(&node) {
            Some((expression, domain)) => {
                let mut builder = RegexBuilder::new(&expression);
                builder.size_limit(MAX_REGEX_BYTES).nest_limit(1_000);
                Some((builder.build().map_err(|error| failed(error.to_string()))?, domain))
            }
            None => None,
        };
        Ok(Self { regular, program, names: parsed.names })
    }

    /// Finds all matches, without their groups.
    pub(crate) fn find_all<'p, 't>(&'p self, text: &'t str) -> Matches<'p, 't> {
        self.matches_of(text, false)
    }

    /// Finds all matches with their groups.
    pub(crate) fn captures_all<'p, 't>(&'p self, text: &'t str) -> Matches<'p, 't> {
        self.matches_of(text, true)
    }

    fn matches_of<'p, 't>(&'p self, text: &'t str, with_groups: bool) -> Matches<'p, 't> {
        let regular = self.regular.as_ref().filter(|(_, domain)| domain.contains(text));
        let engine = match regular {
            Some((regex, _)) if with_groups => Engine::Captures(regex, regex.capture_locations()),
            Some((regex, _)) => Engine::Regex(regex, 0..0),
            None => Engine::Backtracking(&self.program, Matcher::new(&self.program, text)),
        };
        Matches { text, engine, from: Some(0) }
    }

    /// Returns true if the pattern occurs in a text.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.find_all(text).find_next().is_some()
    }

    /// The number of groups, the whole match apart.
    pub(crate) fn groups(&self) -> usize {
        self.names.len() - 1
    }

    /// Returns the number of a group by its name.
    fn group_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|given| given.as_deref() == Some(name))
    }
}

/// The matches of a pattern in a text, one after another.
#[derive(Debug)]
pub(crate) struct Matches<'p, 't> {
    text: &'t str,
    engine: Engine<'p, 't>,
    /// Start of the next search; `None` at the end.
    from: Option<usize>,
}

#[derive(Debug)]
enum Engine<'p, 't> {
    /// The whole match alone.
    Regex(&'p Regex, Range<usize>),
    Captures(&'p Regex, CaptureLocations),
    Backtracking(&'p Program, Matcher<'t>),
}

impl Matches<'_, '_> {
    /// Searches the next match and returns where it is. As in Java, an empty match may follow right behind a match.
    pub(crate) fn find_next(&mut self) -> Option<Range<usize>> {
        let from = self.from.take()?;
        let found = match &mut self.engine {
            Engine::Regex(regex, latest) => regex.find_at(self.text, from).map(|found| {
                *latest = found.range();
                found.range()
            }),
            Engine::Captures(regex, locations) => {
                regex.captures_read_at(locations, self.text, from).map(|found| found.range())
            }
            Engine::Backtracking(program, matcher) => match matcher.find(program, from) {
                Ok(true) => Some(matcher.slots[0]..matcher.slots[1]),
                Ok(false) => None,
                Err(backtrack::Exhausted) => {
                    tracing::debug!(bytes = self.text.len(), "a pattern needs too many steps for a text");
                    None
                }
            },
        }?;
        self.from = if found.is_empty() {
            self.text[found.end..].chars().next().map(|c| found.end + c.len_utf8())
        } else {
            Some(found.end)
        };
        Some(found)
    }

    /// Returns where a group of the latest match is.
    pub(crate) fn group(&self, group: usize) -> Option<Range<usize>> {
        match &self.engine {
            Engine::Regex(_, latest) => (group == 0).then(|| latest.clone()),
            Engine::Captures(_, locations) => locations.get(group).map(|(start, end)| start..end),
            Engine::Backtracking(_, matcher) => {
                let (start, end) = (matcher.slots[2 * group], matcher.slots[2 * group + 1]);
                (end != usize::MAX).then_some(start..end)
            }
        }
    }
}

fn read_flags(flags: &str) -> Result<Flags> {
    let mut read = Flags::default();
    for flag in flags.split('|').map(str::trim).filter(|flag| !flag.is_empty()) {
        match flag.to_uppercase().as_str() {
            "CASE_INSENSITIVE" => read.ignore_case = true,
            "MULTILINE" => read.multi_line = true,
            "DOTALL" => read.dot_all = true,
            "COMMENTS" | "COMMENT" => read.comments = true,
            "UNICODE_CASE" => read.unicode_case = true,
            "UNIX_LINES" => read.unix_lines = true,
            "UNICODE_CHAR_CLASS" | "UNICODE_CHARACTER_CLASS" => {
                read.unicode_class = true;
                read.unicode_case = true;
            }
            "CANON_EQ" => {}
            "LITERAL" => read.literal = true,
            _ => return Err(Error::IllegalArgument(format!("Unknown regex flag [{flag}]"))),
        }
    }
    Ok(read)
}
