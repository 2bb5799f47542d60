//! Compiled patterns and matching with them.

use std::fmt;
use std::ops::Range;

use serde_json::{Number, Value};

use super::expand::{expand, expand_shared};
use super::regex::{LocationsGuard, Regex};
use super::{Deadline, Library};
use crate::number::{float, integer};

/// Type that a capture is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text, as it is.
    Text,
    /// A whole number: the digits that the text begins with, 0 where there are none.
    Integer,
    /// A number: the digits that the text begins with, 0 where there are none.
    Float,
}

impl Kind {
    /// The kind by the name that patterns use. An unknown one leaves the text as it is, as in Logstash.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "int" => Self::Integer,
            "float" => Self::Float,
            _ => Self::Text,
        }
    }

    /// Converts a text.
    pub fn value(self, text: &str) -> Value {
        match self {
            Self::Text => Value::String(text.to_owned()),
            Self::Integer => Value::Number(integer(text)),
            Self::Float => Number::from_f64(float(text)).map_or(Value::Null, Value::Number),
        }
    }
}

/// A part of a text that a pattern hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Name of the field.
    pub name: String,
    /// Type that it is converted to.
    pub kind: Kind,
    /// Name of the type as the pattern has it.
    pub type_name: Option<Box<str>>,
    /// Number of the group.
    pub(super) group: usize,
}

/// A match ended because the time was over, or for want of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchStopped;

/// A compiled pattern.
pub struct Pattern {
    regex: Regex,
    /// In the order of their groups.
    captures: Vec<Capture>,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").field("captures", &self.captures).finish_non_exhaustive()
    }
}

impl Pattern {
    /// Compiles a pattern, in which `.` matches ends of lines, as in Logstash. With `named_only`, `%{NAME}` without a field captures nothing; otherwise its
    /// field is `NAME`.
    ///
    /// # Errors
    /// What is wrong with it: a name that has no definition, a definition by itself, a bad regular
    /// expression.
    pub fn compile(pattern: &str, library: &Library, named_only: bool) -> Result<Self, String> {
        let (expression, captures) = expand(pattern, library, named_only)?;
        let shared = || expand_shared(pattern, library, named_only);
        let (regex, captures) = Regex::compile_pattern(&expression, captures, shared)
            .map_err(|error| format!("the pattern [{pattern}] is not a regular expression: {error}"))?;
        Ok(Self { regex, captures })
    }

    /// Returns the captures of the pattern, in the order that [`Captures::range`] counts.
    pub fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// Returns whether a text has a match.
    ///
    /// # Errors
    /// [`MatchStopped`] when the time is over.
    pub fn is_match(&self, text: &str, deadline: &Deadline) -> Result<bool, MatchStopped> {
        Ok(self.find(text, deadline)?.is_some())
    }

    /// Finds the first match.
    ///
    /// # Errors
    /// [`MatchStopped`] when the time is over.
    pub fn find(&self, text: &str, deadline: &Deadline) -> Result<Option<Captures<'_>>, MatchStopped> {
        let mut locations = self.regex.locations();
        let found = self.regex.find(&mut locations, text, 0, deadline)?;
        Ok(found.then_some(Captures { pattern: self, locations }))
    }
}

/// A match.
pub struct Captures<'a> {
    pattern: &'a Pattern,
    locations: LocationsGuard<'a>,
}

impl fmt::Debug for Captures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captures").field("whole", &self.whole()).finish_non_exhaustive()
    }
}

impl Captures<'_> {
    /// Returns the range of a capture in the text, in bytes; `None` where its group took no part.
    pub fn range(&self, capture: usize) -> Option<Range<usize>> {
        self.locations.get(self.pattern.captures.get(capture)?.group)
    }

    /// Returns the range of the whole match.
    pub fn whole(&self) -> Range<usize> {
        self.locations.get(0).unwrap_or_default()
    }
}
