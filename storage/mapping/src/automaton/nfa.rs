//! Automata while they are built: states with transitions over ranges of characters, and empty ones.
//!
//! A [`NfaFragment`] is a piece with one way in and one way out inside an [`Nfa`]; the operations of
//! regular expressions join parts. [`super::dfa::Dfa`] is made of the whole.

use super::dfa::Dfa;
use super::{LAST, TooLarge};

/// Most states of an automaton while it is built.
const MAX_STATES: usize = 200_000;

/// A transition: the first and last character, and where it leads.
pub(super) type Transition = (u32, u32, u32);

/// States, numbered in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Nfa {
    pub(super) moves: Vec<Vec<Transition>>,
    pub(super) empty: Vec<Vec<u32>>,
}

/// A piece: the state where it starts and the one where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct NfaFragment {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Nfa {
    fn state(&mut self) -> Result<u32, TooLarge> {
        if self.moves.len() >= MAX_STATES {
            return Err(TooLarge::States(MAX_STATES));
        }
        self.moves.push(Vec::new());
        self.empty.push(Vec::new());
        Ok(self.moves.len() as u32 - 1)
    }

    /// Matches nothing.
    pub(super) fn nothing(&mut self) -> Result<NfaFragment, TooLarge> {
        Ok(NfaFragment { start: self.state()?, end: self.state()? })
    }

    /// Matches the empty string.
    pub(super) fn empty_string(&mut self) -> Result<NfaFragment, TooLarge> {
        let state = self.state()?;
        Ok(NfaFragment { start: state, end: state })
    }

    /// Matches one character of any of these ranges.
    pub(super) fn characters(&mut self, ranges: &[(u32, u32)]) -> Result<NfaFragment, TooLarge> {
        let part = self.nothing()?;
        let end = part.end;
        self.moves[part.start as usize].extend(ranges.iter().map(|(first, last)| (*first, *last, end)));
        Ok(part)
    }

    /// Matches any one character.
    pub(super) fn any_character(&mut self) -> Result<NfaFragment, TooLarge> {
        self.characters(&[(0, LAST)])
    }

    /// Matches any string.
    pub(super) fn any_string(&mut self) -> Result<NfaFragment, TooLarge> {
        let part = self.any_character()?;
        self.repeat(part)
    }

    /// Matches one part and then the other.
    pub(super) fn concatenate(&mut self, first: NfaFragment, second: NfaFragment) -> NfaFragment {
        self.empty[first.end as usize].push(second.start);
        NfaFragment { start: first.start, end: second.end }
    }

    /// Matches any of the parts.
    pub(super) fn union(&mut self, parts: &[NfaFragment]) -> Result<NfaFragment, TooLarge> {
        let whole = self.nothing()?;
        for part in parts {
            self.empty[whole.start as usize].push(part.start);
            self.empty[part.end as usize].push(whole.end);
        }
        Ok(whole)
    }

    /// Matches the part any number of times.
    pub(super) fn repeat(&mut self, part: NfaFragment) -> Result<NfaFragment, TooLarge> {
        let hub = self.empty_string()?;
        self.empty[hub.start as usize].push(part.start);
        self.empty[part.end as usize].push(hub.start);
        // A state of its own at either end: what is joined to a hub must not be entered again.
        let whole = self.nothing()?;
        self.empty[whole.start as usize].push(hub.start);
        self.empty[hub.start as usize].push(whole.end);
        Ok(whole)
    }

    /// Copies an automaton into this one.
    pub(super) fn embed(&mut self, dfa: &Dfa) -> Result<NfaFragment, TooLarge> {
        let whole = self.nothing()?;
        let offset = self.moves.len() as u32;
        for state in dfa.states() {
            let own = self.state()?;
            let moved = state.moves.iter().map(|(first, last, to)| (*first, *last, to + offset));
            self.moves[own as usize].extend(moved);
            if state.accepts {
                self.empty[own as usize].push(whole.end);
            }
        }
        if !dfa.states().is_empty() {
            self.empty[whole.start as usize].push(offset);
        }
        Ok(whole)
    }
}
