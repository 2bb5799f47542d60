//! Patterns of terms: prefixes, wildcards, regular expressions, terms near another.
//!
//! A [`Pattern`] is an automaton that reads terms byte by byte, so that a term dictionary is walked
//! only where a branch can still match, and a fixed start that narrows the walk before it begins.
//! Clauses make patterns when they meet a mapping; segments are walked with them.
//!
//! Wildcards and expressions are deterministic automata over characters ([`millrace_mapping::automaton`]);
//! nearness is a row of the distance table ([`near`]).

mod literal;
mod near;

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

use millrace_dsl::json;
use millrace_dsl::query::RegexpFlags;
use millrace_mapping::automaton::{DEFAULT_EFFORT, Dfa, Fault, TooLarge};
use millrace_work::compute::Stop;
use millrace_work::error::{Error, Result};
use tantivy_fst::Automaton;

pub use millrace_mapping::automaton::{WildcardItem, pieces};

use crate::automaton::near::{FuzzyTerms, Row};
use crate::operands::TextBound;

/// A set of terms.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Prefix of the terms.
    start: String,
    /// Pattern behind it.
    rest: PatternTail,
    /// Text inside of all terms, in any case of its ASCII letters; empty where nothing is known.
    inside: Box<str>,
    /// `true` if all strings with that text, in any case of its ASCII letters, are terms of it.
    is_containment: bool,
}

#[derive(Clone, Debug)]
enum PatternTail {
    Anything,
    Automaton {
        dfa: Dfa,
        first: Option<u32>,
    },
    Near(FuzzyTerms),
    /// Anything behind what is near.
    NearStart(FuzzyTerms),
    /// These terms, ascending.
    OneOf(Arc<[String]>),
    /// Terms between two others, by bytes; each with a flag for an inclusive bound.
    Between(TextBound, TextBound),
    /// Terms of two halves, each between the halves of two others, inclusive. All have one length in bytes.
    Halves {
        lower: Box<str>,
        upper: Box<str>,
    },
    /// Terms whose halves are the ends of a range that has a value in common with one of these: disjoint ranges, ascending, each
    /// written as the terms are.
    HalvesAcross(Arc<[String]>),
}

impl Pattern {
    /// Lets a walk over terms of the pattern be told to end.
    pub fn until<'p>(&'p self, stop: &'p Stop) -> CancellablePattern<'p> {
        CancellablePattern { pattern: self, stop, steps: None }
    }

    /// Returns the prefix of the terms, where it is the only condition on them.
    pub fn only_prefix(&self) -> Option<&str> {
        matches!(self.rest, PatternTail::Anything).then_some(self.start.as_str())
    }

    /// Makes the pattern of the terms that start with a text. `folded` takes ASCII letters in either case.
    pub fn prefix(text: &str, folded: bool) -> Result<Self> {
        if !folded || !text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
            return Ok(Self::new(text.to_owned(), PatternTail::Anything));
        }
        let mut pieces: Vec<WildcardItem> = text.chars().map(WildcardItem::Character).collect();
        pieces.push(WildcardItem::Any);
        Self::of_pieces(&pieces, true)
    }

    /// Makes the pattern of the terms that start with any of some texts.
    pub fn prefixes(texts: &[String]) -> Result<Self> {
        match Dfa::any_start(texts, DEFAULT_EFFORT) {
            Ok(dfa) => Ok(Self::of_dfa(dfa)),
            Err(TooLarge::States(most)) => Err(too_many_states(most)),
            Err(TooLarge::Effort(limit)) => Err(Error::TooComplex(format!(
                "Determinizing {} prefixes would require more than {limit} effort.",
                texts.len()
            ))),
        }
    }

    /// Makes the pattern of a term with its ASCII letters in either case.
    pub fn folded(text: &str) -> Result<Self> {
        let pieces: Vec<WildcardItem> = text.chars().map(WildcardItem::Character).collect();
        Self::of_pieces(&pieces, true)
    }

    /// Makes the pattern of `*` and `?`.
    pub fn of_pieces(pieces: &[WildcardItem], folded: bool) -> Result<Self> {
        if !folded && let Some((WildcardItem::Any, text)) = pieces.split_last() {
            let plain = |piece: &WildcardItem| match piece {
                WildcardItem::Character(character) => Some(*character),
                _ => None,
            };
            if let Some(start) = text.iter().map(plain).collect::<Option<String>>() {
                return Ok(Self::new(start, PatternTail::Anything));
            }
        }
        let dfa = Dfa::wildcard(pieces, folded, DEFAULT_EFFORT).map_err(|error| match error {
            TooLarge::Effort(limit) => {
                let states: usize =
                    pieces.iter().map(|piece| if *piece == WildcardItem::Any { 1 } else { 2 }).sum();
                let transitions = (2 * pieces.len()).saturating_sub(1);
                Error::TooComplex(format!(
                    "Determinizing automaton with {states} states and {transitions} transitions would require more than {limit} effort."
                ))
            }
            TooLarge::States(most) => too_many_states(most),
        })?;
        let is_containment = folded
            && matches!(pieces, [WildcardItem::Any, text @ .., WildcardItem::Any]
                if text.iter().all(|piece| matches!(piece, WildcardItem::Character(_))));
        Ok(Self { inside: literal::of_pieces(pieces).into(), is_containment, ..Self::of_dfa(dfa) })
    }

    /// Makes the pattern of a regular expression.
    pub fn regexp(text: &str, flags: RegexpFlags, folded: bool, states: i64) -> Result<Self> {
        let dfa = Dfa::regexp(text, flags, folded, states).map_err(|fault| match fault {
            Fault::Syntax(message) => Error::IllegalArgument(message),
            Fault::Number(digits) => json::not_a_number(&digits),
            Fault::TooLarge(TooLarge::Effort(limit)) => {
                Error::TooComplex(format!("Determinizing {text} would require more than {limit} effort."))
            }
            Fault::TooLarge(TooLarge::States(most)) => too_many_states(most),
        })?;
        Ok(Self { inside: literal::of_regexp(text).into(), ..Self::of_dfa(dfa) })
    }

    /// Makes the pattern of the terms at most so many edits away from one; their first `prefix`
    /// characters are the same.
    pub fn near(term: &str, edits: u8, prefix: usize, transpositions: bool) -> Self {
        let near = FuzzyTerms::new(term, edits, prefix, transpositions);
        Self::new(near.start().to_owned(), PatternTail::Near(near))
    }

    /// Makes the pattern of some terms.
    pub fn one_of(mut terms: Vec<String>) -> Self {
        terms.sort_unstable();
        terms.dedup();
        Self::new(String::new(), PatternTail::OneOf(terms.into()))
    }

    /// Makes the pattern of the terms between two.
    pub fn between(from: TextBound, to: TextBound) -> Self {
        Self::new(String::new(), PatternTail::Between(from, to))
    }

    /// Makes the pattern of the terms whose halves are each between the halves of two others, inclusive. Both have the length of
    /// the terms.
    pub fn halves_between(lower: String, upper: String) -> Self {
        Self::new(String::new(), PatternTail::Halves { lower: lower.into(), upper: upper.into() })
    }

    /// Makes the pattern of the terms whose halves are the ends of a range that has a value in common with one of some ranges.
    /// These are disjoint and ascending, and written as the terms are.
    pub fn halves_across(ranges: Vec<String>) -> Self {
        Self::new(String::new(), PatternTail::HalvesAcross(ranges.into()))
    }

    /// Lets anything follow where terms near another are looked for.
    pub fn starting(self) -> Self {
        let rest = match self.rest {
            PatternTail::Near(near) => PatternTail::NearStart(near),
            rest => rest,
        };
        Self { rest, ..self }
    }

    fn new(start: String, rest: PatternTail) -> Self {
        Self { start, rest, inside: Box::default(), is_containment: false }
    }

    fn of_dfa(dfa: Dfa) -> Self {
        let start = dfa.literal_start();
        let mut first = dfa.start();
        for character in start.chars() {
            first = first.and_then(|state| dfa.step(state, character.into()));
        }
        Self::new(start, PatternTail::Automaton { dfa, first })
    }

    /// Puts a fixed text before all terms.
    pub fn behind(mut self, lead: &str) -> Self {
        self.start.insert_str(0, lead);
        self
    }

    /// Returns the prefix of all terms.
    pub fn start(&self) -> &str {
        &self.start
    }

    /// Returns texts that are in all terms, in any case of their ASCII letters.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        [self.start.as_str(), &self.inside].into_iter().filter(|text| !text.is_empty())
    }

    /// Returns the text that makes all terms: strings that have it anywhere, in any case of its ASCII letters.
    pub fn contained(&self) -> Option<&str> {
        (self.is_containment && self.start.is_empty() && !self.inside.is_empty()).then_some(&*self.inside)
    }

    /// Returns whether its terms are of two halves with a condition on each: a walk passes many terms that are none of it.
    pub fn has_halves(&self) -> bool {
        matches!(self.rest, PatternTail::Halves { .. } | PatternTail::HalvesAcross(_))
    }

    /// Returns whether a term belongs to it.
    pub fn matches(&self, term: &str) -> bool {
        let Some(rest) = term.as_bytes().strip_prefix(self.start.as_bytes()) else { return false };
        // Of a whole term, each half is compared at once.
        match &self.rest {
            PatternTail::Halves { lower, upper } => return has_halves_between((lower, upper), rest),
            PatternTail::HalvesAcross(ranges) => return has_halves_across(ranges, rest),
            _ => {}
        }
        let mut state = Automaton::start(&self);
        for byte in rest {
            state = self.accept(&state, *byte);
        }
        self.is_match(&state)
    }

    /// Returns the boost of a term of it: how near it is to the one asked for, 1 for other patterns.
    /// `lead` is what [`Pattern::behind`] put before.
    pub fn boost(&self, lead: &str, term: &str) -> f32 {
        match &self.rest {
            PatternTail::Near(near) => near.similarity(term.strip_prefix(lead).unwrap_or(term)),
            _ => 1.0,
        }
    }
}

/// Returns the state of reading: a term that is near enough may go on as it likes.
fn near_start(near: &FuzzyTerms, row: Row) -> StatePosition {
    if near.accepts(&row) { StatePosition::Anywhere } else { StatePosition::Row(Box::new(row)) }
}

fn too_many_states(most: usize) -> Error {
    Error::TooComplex(format!("an automaton of more than {most} states is not built"))
}

/// State of reading a term.
#[derive(Clone, Debug)]
pub struct MatchState {
    place: StatePosition,
    /// The character that is being read, as far as it was.
    character: u32,
    /// Bytes of it that are to come.
    missing: u8,
}

#[derive(Clone, Debug)]
enum StatePosition {
    Anywhere,
    State(u32),
    /// Kept apart: the reader of terms of other patterns is small.
    Row(Box<Row>),
    /// So many bytes were read, which are those of the lower bound, and of the upper one.
    Between {
        read: u32,
        lower: bool,
        upper: bool,
    },
    /// So many bytes were read, with which the terms at these places start; of ranges, their greatest ends, or in the second half
    /// the least end of the first.
    Among {
        read: u32,
        from: u32,
        to: u32,
    },
    Nowhere,
}

/// Reads a byte of a term of a list, behind so many others with which the terms at some places start.
fn among(terms: &[String], read: u32, (from, to): (u32, u32), byte: u8) -> StatePosition {
    // What is as long as what was read comes before what goes on.
    let next = |term: &String| term.as_bytes().get(read as usize).copied();
    let own = &terms[from as usize..to as usize];
    let place = |at: usize| from + at as u32;
    let to = place(own.partition_point(|term| next(term) <= Some(byte)));
    let from = place(own.partition_point(|term| next(term) < Some(byte)));
    match from < to {
        true => StatePosition::Among { read: read + 1, from, to },
        false => StatePosition::Nowhere,
    }
}

/// Reads a byte of a term between two, behind so many others that are those of the bounds.
fn between(
    (from, to): (&TextBound, &TextBound),
    read: u32,
    (lower, upper): (bool, bool),
    byte: u8,
) -> StatePosition {
    let compared = |bound: &TextBound| {
        let (bound, _) = bound.as_ref()?;
        // What is longer than a bound is greater.
        Some(bound.as_bytes().get(read as usize).map_or(Ordering::Greater, |own| byte.cmp(own)))
    };
    let (below, above) = (compared(from).filter(|_| lower), compared(to).filter(|_| upper));
    match (below, above) {
        (Some(Ordering::Less), _) | (_, Some(Ordering::Greater)) => StatePosition::Nowhere,
        (below, above) if below != Some(Ordering::Equal) && above != Some(Ordering::Equal) => {
            StatePosition::Anywhere
        }
        (below, above) => StatePosition::Between {
            read: read + 1,
            lower: below == Some(Ordering::Equal),
            upper: above == Some(Ordering::Equal),
        },
    }
}

/// Reads a byte of a term whose halves are between those of two others, behind so many bytes. The second half is compared anew.
fn halves_between(
    (from, to): (&str, &str),
    read: u32,
    (lower, upper): (bool, bool),
    byte: u8,
) -> StatePosition {
    let compared = |bound: &str| bound.as_bytes().get(read as usize).map(|own| byte.cmp(own));
    let (Some(below), Some(above)) = (compared(from), compared(to)) else { return StatePosition::Nowhere };
    if lower && below == Ordering::Less || upper && above == Ordering::Greater {
        return StatePosition::Nowhere;
    }
    let read = read + 1;
    let anew = read as usize == from.len() / 2;
    StatePosition::Between {
        read,
        lower: anew || lower && below == Ordering::Equal,
        upper: anew || upper && above == Ordering::Equal,
    }
}

/// Returns whether each half of a term is between those of two others.
fn has_halves_between((lower, upper): (&str, &str), term: &[u8]) -> bool {
    let half = lower.len() / 2;
    let (lower, upper) = (lower.as_bytes(), upper.as_bytes());
    term.len() == lower.len()
        && (&lower[..half]..=&upper[..half]).contains(&&term[..half])
        && (&lower[half..]..=&upper[half..]).contains(&&term[half..])
}

/// Returns whether the halves of a term are the ends of a range that has a value in common with one of some ranges.
fn has_halves_across(ranges: &[String], term: &[u8]) -> bool {
    let half = ranges.first().map_or(0, String::len) / 2;
    let Some((from, to)) = term.split_at_checked(half) else { return false };
    let at = ranges.partition_point(|range| &range.as_bytes()[half..] < from);
    to.len() == half && ranges.get(at).is_some_and(|range| &range.as_bytes()[..half] <= to)
}

/// Reads a byte of a term whose halves are the ends of a range. The first half leaves the first range that does not end before it:
/// the second must not end before that begins.
fn halves_across(ranges: &[String], read: u32, (from, to): (u32, u32), byte: u8) -> StatePosition {
    let half = ranges.first().map_or(0, String::len) as u32 / 2;
    if read >= half {
        let least = ranges.get(from as usize).and_then(|range| range.as_bytes().get((read - half) as usize));
        let Some(least) = least else { return StatePosition::Nowhere };
        return match (from < to, byte.cmp(least)) {
            (true, Ordering::Less) => StatePosition::Nowhere,
            (true, Ordering::Equal) => StatePosition::Among { read: read + 1, from, to },
            _ => StatePosition::Among { read: read + 1, from, to: from },
        };
    }
    let next = |range: &String| range.as_bytes().get((half + read) as usize).copied();
    let own = &ranges[from as usize..to as usize];
    let place = |at: usize| from + at as u32;
    let (from, to) = (
        place(own.partition_point(|range| next(range) < Some(byte))),
        place(own.partition_point(|range| next(range) <= Some(byte))),
    );
    if from as usize == ranges.len() {
        return StatePosition::Nowhere;
    }
    let read = read + 1;
    StatePosition::Among { read, from, to: if read == half { from + 1 } else { to } }
}

/// Returns whether a term that ends behind so many bytes is between two.
fn ends_between((from, to): (&TextBound, &TextBound), read: u32, (lower, upper): (bool, bool)) -> bool {
    let of =
        |bound: &TextBound| bound.as_ref().map(|(bound, included)| (read as usize == bound.len(), *included));
    of(from).is_none_or(|(whole, included)| !lower || whole && included)
        && of(to).is_none_or(|(whole, included)| !upper || !whole || included)
}

/// A pattern whose walk over terms can be told to end: then nothing matches any more.
#[derive(Clone, Copy, Debug)]
pub struct CancellablePattern<'p> {
    /// Pattern that matches.
    pub pattern: &'p Pattern,
    stop: &'p Stop,
    /// Steps that the walk may still take, where they are bounded.
    steps: Option<&'p Cell<u64>>,
}

impl<'p> CancellablePattern<'p> {
    /// Lets the walk end after so many steps: 0 are left then.
    pub(crate) fn within(self, steps: &'p Cell<u64>) -> Self {
        Self { steps: Some(steps), ..self }
    }

    /// Returns whether the walk has not been told to end.
    #[inline]
    pub fn goes_on(&self) -> bool {
        let left = self.steps.is_none_or(|steps| {
            steps.set(steps.get().saturating_sub(1));
            steps.get() > 0
        });
        left && !self.stop.requested()
    }
}

impl Automaton for CancellablePattern<'_> {
    type State = MatchState;

    fn start(&self) -> MatchState {
        Automaton::start(&self.pattern)
    }

    #[inline]
    fn is_match(&self, reading: &MatchState) -> bool {
        self.pattern.is_match(reading)
    }

    #[inline]
    fn can_match(&self, reading: &MatchState) -> bool {
        self.pattern.can_match(reading) && self.goes_on()
    }

    #[inline]
    fn accept(&self, reading: &MatchState, byte: u8) -> MatchState {
        self.pattern.accept(reading, byte)
    }
}

impl Automaton for &Pattern {
    type State = MatchState;

    fn start(&self) -> MatchState {
        let place = match &self.rest {
            PatternTail::Anything => StatePosition::Anywhere,
            PatternTail::Automaton { first, .. } => {
                first.map_or(StatePosition::Nowhere, StatePosition::State)
            }
            PatternTail::Near(near) => StatePosition::Row(Box::new(near.first())),
            PatternTail::NearStart(near) => near_start(near, near.first()),
            PatternTail::OneOf(terms) | PatternTail::HalvesAcross(terms) => {
                StatePosition::Among { read: 0, from: 0, to: terms.len() as u32 }
            }
            PatternTail::Between(from, to) => {
                StatePosition::Between { read: 0, lower: from.is_some(), upper: to.is_some() }
            }
            PatternTail::Halves { .. } => StatePosition::Between { read: 0, lower: true, upper: true },
        };
        MatchState { place, character: 0, missing: 0 }
    }

    #[inline]
    fn is_match(&self, reading: &MatchState) -> bool {
        reading.missing == 0
            && match (&reading.place, &self.rest) {
                (StatePosition::Anywhere, _) => true,
                (StatePosition::State(state), PatternTail::Automaton { dfa, .. }) => dfa.accepts(*state),
                (StatePosition::Row(row), PatternTail::Near(near)) => near.accepts(row),
                (StatePosition::Among { read, from, to }, PatternTail::OneOf(terms)) => {
                    from < to && terms[*from as usize].len() == *read as usize
                }
                (StatePosition::Among { read, .. }, PatternTail::HalvesAcross(ranges)) => {
                    ranges.first().is_some_and(|range| range.len() == *read as usize)
                }
                (StatePosition::Between { read, lower, upper }, PatternTail::Between(from, to)) => {
                    ends_between((from, to), *read, (*lower, *upper))
                }
                (StatePosition::Between { read, .. }, PatternTail::Halves { lower, .. }) => {
                    *read as usize == lower.len()
                }
                _ => false,
            }
    }

    #[inline]
    fn can_match(&self, reading: &MatchState) -> bool {
        !matches!(reading.place, StatePosition::Nowhere)
    }

    #[inline]
    fn accept(&self, reading: &MatchState, byte: u8) -> MatchState {
        match (&reading.place, &self.rest) {
            // Nearly all that is read of nearly all patterns.
            (StatePosition::State(state), PatternTail::Automaton { dfa, .. })
                if byte < 0x80 && reading.missing == 0 =>
            {
                let place =
                    dfa.step(*state, byte.into()).map_or(StatePosition::Nowhere, StatePosition::State);
                MatchState { place, character: 0, missing: 0 }
            }
            _ => self.read(reading, byte),
        }
    }
}

impl Pattern {
    /// Goes on by a byte, from any state.
    fn read(&self, reading: &MatchState, byte: u8) -> MatchState {
        let place = match &reading.place {
            StatePosition::Anywhere | StatePosition::Nowhere => return reading.clone(),
            // Lists and bounds are compared byte by byte.
            StatePosition::Among { read, from, to } => {
                let place = match &self.rest {
                    PatternTail::OneOf(terms) => among(terms, *read, (*from, *to), byte),
                    PatternTail::HalvesAcross(ranges) => halves_across(ranges, *read, (*from, *to), byte),
                    _ => return reading.clone(),
                };
                return MatchState { place, character: 0, missing: 0 };
            }
            StatePosition::Between { read, lower, upper } => {
                let place = match &self.rest {
                    PatternTail::Between(from, to) => between((from, to), *read, (*lower, *upper), byte),
                    PatternTail::Halves { lower: from, upper: to } => {
                        halves_between((from, to), *read, (*lower, *upper), byte)
                    }
                    _ => return reading.clone(),
                };
                return MatchState { place, character: 0, missing: 0 };
            }
            place => place,
        };
        let (character, missing) = match (reading.missing, byte) {
            (0, 0..0x80) => (u32::from(byte), 0),
            (0, 0xc0..0xe0) => (u32::from(byte & 0x1f), 1),
            (0, 0xe0..0xf0) => (u32::from(byte & 0x0f), 2),
            (0, _) => (u32::from(byte & 0x07), 3),
            (missing, _) => (reading.character << 6 | u32::from(byte & 0x3f), missing - 1),
        };
        if missing > 0 {
            return MatchState { place: place.clone(), character, missing };
        }
        let place = match (place, &self.rest) {
            (StatePosition::State(state), PatternTail::Automaton { dfa, .. }) => {
                dfa.step(*state, character).map_or(StatePosition::Nowhere, StatePosition::State)
            }
            (StatePosition::Row(row), PatternTail::Near(near)) => near
                .step(row, character)
                .map_or(StatePosition::Nowhere, |row| StatePosition::Row(Box::new(row))),
            (StatePosition::Row(row), PatternTail::NearStart(near)) => {
                near.step(row, character).map_or(StatePosition::Nowhere, |row| near_start(near, row))
            }
            _ => StatePosition::Nowhere,
        };
        MatchState { place, character: 0, missing: 0 }
    }
}

#[cfg(test)]
mod tests;
