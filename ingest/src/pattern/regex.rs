//! The one way to match a regular expression: in the syntax of Ruby, and never longer than until a [`Deadline`].
//!
//! PCRE2 counts steps, and anew at each place of the text where a match may begin; between two steps it may look at the whole
//! text. A match is therefore tried in two ways. At first quickly, without a clock: so many places at once, and so few steps
//! at each, that it ends within a tenth of a second even if each step looks at the whole text. Ordinary matches of ordinary lines need one such call.
//! Places where the steps did not do are tried again by code that is compiled with callouts, which look at the clock; it
//! takes about ten times as long, and ends when the time is over.

use std::ops::{Deref, DerefMut, Range};
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::native::{Code, CompileError, Locations, MatchEnd, Mode};
use super::translate::{translate, translate_shared};
use super::{Capture, Deadline, MatchStopped};

/// Longest expression, in bytes, in the syntax of PCRE2.
const MAX_BYTES: usize = 1 << 20;
/// Length from which on an expression may be too large for PCRE2 when it is compiled.
const LARGE: usize = 4 << 10;
/// Bytes of a text that one call without a clock may look at, over all its steps: less than a tenth of a second at a nanosecond each, which sets of
/// Unicode take; most take a tenth of it.
const WORK: usize = 1 << 26;
/// Steps at a place; the patterns of the library need up to 200 on lines that they are made for.
const STEPS: usize = 500;
/// Most steps at a place, on short texts.
const MAX_STEPS: usize = 20_000;
/// Fewest steps at a place, on long texts; beyond, texts are searched by the clock at once.
const MIN_STEPS: usize = 100;
/// Locations kept for reuse.
const MAX_IDLE: usize = 16;

/// A compiled regular expression.
#[derive(Debug)]
pub(super) struct Regex {
    expression: String,
    /// The same with definitions that are written once, where that may be needed.
    shared: Option<String>,
    mode: Mode,
    quick: Code,
    /// Made when the steps do not do for the first time; `None` where there is no room for it.
    watched: OnceLock<Option<Code>>,
    cost: Cost,
    idle: Mutex<IdleLocations>,
}

#[derive(Default)]
struct IdleLocations(Vec<Locations>);

impl std::fmt::Debug for IdleLocations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Idle").field(&self.0.len()).finish()
    }
}

/// Bound on the cost of one start position, in bytes that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// The same on all texts: nothing is repeated.
    Fixed(usize),
    /// So much for each byte of the text: one character or set is repeated.
    PerByte(usize),
    /// Bounded by the steps only.
    Steps,
    /// The places cannot be tried by parts: `\G` is where the search began.
    Whole,
}

/// Part of a search without a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allowance {
    places: usize,
    steps: usize,
}

impl Regex {
    /// Compiles an expression in the syntax of Ruby. Answers also what it captures.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(super) fn compile(expression: &str) -> Result<(Self, Vec<Capture>), String> {
        let (expression, captures) = translate(expression, Vec::new())?;
        Self::build(expression, None, captures, false)
    }

    /// Compiles an expression in which groups were made for the captures given, and where `.` matches ends of lines. Where it is too large as a
    /// whole, another form of it is compiled.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(super) fn compile_pattern(
        expression: &str,
        made: Vec<Capture>,
        shared: impl FnOnce() -> Option<(String, Vec<String>)>,
    ) -> Result<(Self, Vec<Capture>), String> {
        let large = expression.len() > LARGE;
        let shared = large.then(shared).flatten().and_then(|(expression, definitions)| {
            translate_shared(&expression, &definitions, made.clone()).ok()
        });
        let (expression, captures) = translate(expression, made)?;
        Self::build(expression, shared, captures, true)
    }

    fn build(
        expression: String,
        shared: Option<String>,
        captures: Vec<Capture>,
        dot_all: bool,
    ) -> Result<(Self, Vec<Capture>), String> {
        if expression.len() > MAX_BYTES {
            return Err(format!("it is longer than {MAX_BYTES} bytes"));
        }
        let mode = Mode { named: !captures.is_empty(), watched: false, dot_all };
        let quick = compile(&expression, shared.as_deref(), mode).map_err(CompileError::into_message)?;
        let cost = Cost::new(&expression);
        let (watched, idle) = (OnceLock::new(), Mutex::default());
        Ok((Self { expression, shared, mode, quick, watched, cost, idle }, captures))
    }

    /// Finds the first match that begins at a place or behind it, and puts it into the locations.
    ///
    /// # Errors
    /// [`MatchStopped`] when the time is over, or the match needs too much memory.
    pub(super) fn find(
        &self,
        locations: &mut Locations,
        text: &str,
        from: usize,
        deadline: &Deadline,
    ) -> Result<bool, MatchStopped> {
        if from > text.len() {
            return Ok(false);
        }
        let mut from = boundary(text, from);
        loop {
            let allowance = self.cost.allowance(text.len(), text.len().saturating_sub(from) + 1);
            let end = allowance.map_or(text.len() + 1, |allowance| from.saturating_add(allowance.places));
            let end = boundary(text, end);
            let ended = match allowance {
                Some(allowance) => {
                    let steps = u32::try_from(allowance.steps).unwrap_or(u32::MAX);
                    self.quick.search(locations, text, from..end, steps, None)
                }
                None => MatchEnd::OutOfSteps,
            };
            let ended = match ended {
                MatchEnd::OutOfSteps => match self.watched() {
                    Some(watched) => watched.search(locations, text, from..end, u32::MAX, Some(deadline)),
                    None => self.search_in_steps(locations, text, from..end, deadline),
                },
                ended => ended,
            };
            match ended {
                MatchEnd::Found => return Ok(true),
                MatchEnd::Nothing if end > text.len() => return Ok(false),
                MatchEnd::Nothing => from = end,
                MatchEnd::OutOfSteps | MatchEnd::Stopped => return Err(MatchStopped),
            }
            if deadline.is_over() {
                return Err(MatchStopped);
            }
        }
    }

    /// Searches without a clock in the expression, with more steps each time, until these do or the time is over: for expressions that are too large to
    /// be watched. The steps at most double from one look at the clock to the next.
    fn search_in_steps(
        &self,
        locations: &mut Locations,
        text: &str,
        places: Range<usize>,
        deadline: &Deadline,
    ) -> MatchEnd {
        let mut steps = u32::try_from(MAX_STEPS).unwrap_or(u32::MAX);
        loop {
            if deadline.is_over() {
                return MatchEnd::Stopped;
            }
            match self.quick.search(locations, text, places.clone(), steps, None) {
                MatchEnd::OutOfSteps if steps < u32::MAX => steps = steps.saturating_mul(2),
                MatchEnd::OutOfSteps => return MatchEnd::Stopped,
                ended => return ended,
            }
        }
    }

    fn watched(&self) -> Option<&Code> {
        let mode = Mode { watched: true, ..self.mode };
        self.watched.get_or_init(|| compile(&self.expression, self.shared.as_deref(), mode).ok()).as_ref()
    }

    /// Locations for its matches.
    pub(super) fn locations(&self) -> LocationsGuard<'_> {
        let idle = self.idle.lock().0.pop();
        LocationsGuard { regex: self, locations: Some(idle.unwrap_or_else(|| Locations::new(&self.quick))) }
    }
}

/// Compiles an expression, or another form of it where it is too large.
fn compile(expression: &str, shared: Option<&str>, mode: Mode) -> Result<Code, CompileError> {
    match (Code::compile(expression, mode), shared) {
        (Err(CompileError::TooLarge(_)), Some(shared)) => Code::compile(shared, mode),
        (compiled, _) => compiled,
    }
}

impl Cost {
    /// Judges an expression of PCRE2 by its signs, those that stand for themselves included: a doubtful expression costs more.
    fn new(expression: &str) -> Self {
        // More than that may multiply beyond all bounds.
        const MAX_CHOICES: u32 = 8;
        let (mut choices, mut repeats) = (0, 0);
        let mut before = ' ';
        let mut is_escape = false;
        for letter in expression.chars() {
            match letter {
                'G' if is_escape => return Self::Whole,
                // Back references, calls of groups, clusters.
                '0'..='9' | 'k' | 'g' | 'X' if is_escape => return Self::Steps,
                '*' | '+' | '{' | '?' if before == ')' => return Self::Steps,
                // Conditions, calls of groups and what they may be taken for.
                '(' | '|' | '&' | '+' | '-' | '0'..='9' if before == '?' => return Self::Steps,
                '*' | '+' | '{' => repeats += 1,
                '?' if before != '(' => choices += 1,
                '|' => choices += 1,
                _ => {}
            }
            is_escape = letter == '\\' && !is_escape;
            before = letter;
        }
        let once = expression.len().max(1) << choices.min(MAX_CHOICES);
        match repeats {
            _ if choices > MAX_CHOICES => Self::Steps,
            0 => Self::Fixed(once),
            1 => Self::PerByte(once),
            _ => Self::Steps,
        }
    }

    /// Returns the number of start positions that a text of a length allows at once, and the steps of each, if so many are left.
    /// `None` where the search needs a clock.
    fn allowance(self, length: usize, left: usize) -> Option<Allowance> {
        let length = length.max(1);
        let bounded = |cost: usize| {
            let places = WORK / cost.max(1);
            (places > 0).then_some(Allowance { places, steps: usize::MAX })
        };
        match self {
            Self::Whole => None,
            Self::Fixed(cost) => bounded(cost),
            Self::PerByte(cost) => bounded(cost.saturating_mul(length)),
            Self::Steps => {
                let steps = (WORK / length / left.max(1)).clamp(STEPS, MAX_STEPS);
                let places = WORK / length / steps;
                match places {
                    0 => Some(WORK / length).filter(|steps| *steps >= MIN_STEPS),
                    _ => Some(steps),
                }
                .map(|steps| Allowance { places: places.max(1), steps })
            }
        }
    }
}

/// The place itself, or the next one where a character begins.
fn boundary(text: &str, mut place: usize) -> usize {
    while place < text.len() && !text.is_char_boundary(place) {
        place += 1;
    }
    place
}

/// Locations that go back when they are dropped.
pub(super) struct LocationsGuard<'a> {
    regex: &'a Regex,
    /// Taken out only at the end.
    locations: Option<Locations>,
}

impl Deref for LocationsGuard<'_> {
    type Target = Locations;

    fn deref(&self) -> &Locations {
        self.locations.as_ref().expect("taken out only at the end")
    }
}

impl DerefMut for LocationsGuard<'_> {
    fn deref_mut(&mut self) -> &mut Locations {
        self.locations.as_mut().expect("taken out only at the end")
    }
}

impl Drop for LocationsGuard<'_> {
    fn drop(&mut self) {
        if let Some(locations) = self.locations.take() {
            let mut idle = self.regex.idle.lock();
            if idle.0.len() < MAX_IDLE {
                idle.0.push(locations);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_never_underestimated() {
        for (expression, cost) in [
            (",", Cost::Fixed(1)),
            (r"\r$", Cost::Fixed(3)),
            ("[ab]|c", Cost::Fixed(12)),
            (r"\s+$", Cost::PerByte(4)),
            (r"\\G", Cost::Fixed(3)),
            (r"\G,", Cost::Whole),
            ("a*a*", Cost::Steps),
            ("(a+)+", Cost::Steps),
            ("(a)?(b)?", Cost::Steps),
            (r"(a+)\1", Cost::Steps),
            ("a?a?a?a?a?a?a?a?a?aaaaaaaaa", Cost::Steps),
            ("a{2}b{3}", Cost::Steps),
            ("(?(1)a)", Cost::Steps),
        ] {
            assert_eq!(Cost::new(expression), cost, "{expression}");
        }
    }

    #[test]
    fn a_call_without_a_clock_is_bounded() {
        for length in [0, 1, 80, 324, 1_000, 4_000, 60_000, 130_000, 600_000, 10_000_000, 1 << 30] {
            for cost in [Cost::Fixed(7), Cost::PerByte(7), Cost::Steps] {
                let Some(allowance) = cost.allowance(length, length + 1) else { continue };
                let place = match cost {
                    Cost::Fixed(cost) => cost,
                    Cost::PerByte(cost) => cost * length,
                    _ => allowance.steps * length,
                };
                assert!(place.saturating_mul(allowance.places) <= WORK, "{length} {cost:?} {allowance:?}");
                assert!(
                    allowance.places > 0 && allowance.steps >= MIN_STEPS,
                    "{length} {cost:?} {allowance:?}"
                );
            }
        }
        // An ordinary line is one call.
        assert!(Cost::Steps.allowance(360, 361).is_some_and(|allowance| allowance.places >= 361));
    }
}
