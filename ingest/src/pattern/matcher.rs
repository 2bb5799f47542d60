//! Compiled patterns and matching with them.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use parking_lot::Mutex;
use pcre2::bytes::{CaptureLocations, Regex, RegexBuilder};

use super::Library;
use super::expand::expand;
use super::translate::translate;

/// Steps of the engine that take about a millisecond; measured on patterns that backtrack without end: 100,000
/// to 300,000.
const STEPS_PER_MILLISECOND: u64 = 100_000;
/// The engine counts steps anew at each place of a text where a match may begin: of so many places all
/// may take their steps within the time that is given.
const PLACES: u64 = 2_048;
/// Fewest steps at a place, which any sensible match can do with.
const MIN_STEPS: u64 = 20_000;
/// Most steps at a place: PCRE2's own bound.
const MAX_STEPS: u64 = 10_000_000;
/// Most bytes of the stack of the engine.
const MAX_STACK_BYTES: usize = 1 << 20;
/// Stacks kept for reuse.
const MAX_IDLE: usize = 16;

// Codes of PCRE2's errors that mean that a bound was met.
const MATCH_LIMIT: i32 = -47;
const DEPTH_LIMIT: i32 = -53;
const HEAP_LIMIT: i32 = -63;
const STACK_LIMIT: i32 = -46;

/// What the text of a capture is turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text, as it is.
    Text,
    /// A whole number: the digits that the text begins with, 0 where there are none.
    Integer,
    /// A number: what of it the text begins with, 0 where there is nothing.
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
}

/// A part of a text that a pattern hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Name of the field.
    pub name: String,
    /// What it is turned into.
    pub kind: Kind,
    /// Number of the group.
    pub(super) group: usize,
}

/// Bounds of matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// About how long one match may take on a text of two KiB; what is allowed is counted in steps of the engine, so a
    /// longer text may take longer in proportion.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { time: Duration::from_secs(30) }
    }
}

impl Bounds {
    /// Compiles an expression in the syntax of PCRE2. Where groups have names, those without one do not capture.
    pub(super) fn compile(self, expression: &str, named: bool) -> Result<Regex, pcre2::Error> {
        let steps = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX);
        let steps = (steps.saturating_mul(STEPS_PER_MILLISECOND) / PLACES).clamp(MIN_STEPS, MAX_STEPS);
        let names = if named { "(?n)" } else { "" };
        RegexBuilder::new()
            .utf(true)
            .multi_line(true)
            .jit_if_available(true)
            .max_jit_stack_size(Some(MAX_STACK_BYTES))
            .build(&format!(
                "(*LIMIT_MATCH={steps})(*LIMIT_DEPTH=100000)(*LIMIT_HEAP=65536){names}{expression}"
            ))
    }
}

/// A match ended at a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// A compiled pattern.
pub struct Pattern {
    regex: Regex,
    /// In the order of their groups.
    captures: Vec<Capture>,
    idle: Mutex<Vec<CaptureLocations>>,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").field("captures", &self.captures).finish_non_exhaustive()
    }
}

impl Pattern {
    /// Compiles a pattern. With `named_only`, `%{NAME}` without a field captures nothing; otherwise its
    /// field is `NAME`.
    ///
    /// # Errors
    /// What is wrong with it: a name that has no definition, a definition by itself, a bad regular
    /// expression.
    pub fn compile(
        pattern: &str,
        library: &Library,
        named_only: bool,
        bounds: Bounds,
    ) -> Result<Self, String> {
        let (expression, captures) = expand(pattern, library, named_only)?;
        let (expression, captures) = translate(&expression, captures)?;
        let regex = bounds.compile(&expression, !captures.is_empty());
        let regex =
            regex.map_err(|error| format!("the pattern [{pattern}] is not a regular expression: {error}"))?;
        Ok(Self { regex, captures, idle: Mutex::new(Vec::new()) })
    }

    /// What the pattern hands out, in the order that [`Captures::range`] counts.
    pub fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// Whether a text has a match.
    ///
    /// # Errors
    /// [`Stopped`] at a bound.
    pub fn is_match(&self, text: &str) -> Result<bool, Stopped> {
        Ok(self.find(text)?.is_some())
    }

    /// Finds the first match.
    ///
    /// # Errors
    /// [`Stopped`] at a bound.
    pub fn find(&self, text: &str) -> Result<Option<Captures<'_>>, Stopped> {
        let idle = self.idle.lock().pop();
        let mut locations = idle.unwrap_or_else(|| self.regex.capture_locations());
        let found = self.regex.captures_read(&mut locations, text.as_bytes()).map(|found| found.is_some());
        let captures = Captures { pattern: self, locations: Some(locations) };
        match found {
            Ok(true) => Ok(Some(captures)),
            Ok(false) => Ok(None),
            Err(error) => {
                debug_assert!(
                    [MATCH_LIMIT, DEPTH_LIMIT, HEAP_LIMIT, STACK_LIMIT].contains(&error.code()),
                    "{error}"
                );
                Err(Stopped)
            }
        }
    }
}

/// A match.
pub struct Captures<'a> {
    pattern: &'a Pattern,
    /// Taken out only at the end.
    locations: Option<CaptureLocations>,
}

impl fmt::Debug for Captures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captures").field("whole", &self.whole()).finish_non_exhaustive()
    }
}

impl Captures<'_> {
    /// Where a capture of the pattern is in the text, in bytes; `None` where its group took no part.
    pub fn range(&self, capture: usize) -> Option<Range<usize>> {
        self.group(self.pattern.captures.get(capture)?.group)
    }

    /// Where the whole match is.
    pub fn whole(&self) -> Range<usize> {
        self.group(0).unwrap_or_default()
    }

    fn group(&self, group: usize) -> Option<Range<usize>> {
        let (start, end) = self.locations.as_ref()?.get(group)?;
        // A group in a look-behind can end before it begins.
        (start <= end).then_some(start..end)
    }
}

impl Drop for Captures<'_> {
    fn drop(&mut self) {
        if let Some(locations) = self.locations.take() {
            let mut idle = self.pattern.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(locations);
            }
        }
    }
}
