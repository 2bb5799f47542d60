//! Sets of texts as automata over characters: Lucene's regular expressions, wildcards, starts of texts.
//!
//! [`Dfa`] is what is run, by tokenizers of [`analysis`](crate::analysis) for the longest match and by the queries'
//! walks over term dictionaries. It is made of a nondeterministic automaton ([`nfa`]), with Lucene's bound on
//! the work.

mod case;
mod dfa;
mod nfa;
mod regexp;
mod wildcard;

#[cfg(test)]
mod tests;

pub use dfa::Dfa;
pub use regexp::Flags;
pub use wildcard::{WildcardItem, pieces};

/// The last character.
const LAST: u32 = 0x10_ffff;

/// The work that Lucene allows where nothing else is said.
pub const DEFAULT_EFFORT: i64 = 10_000;

/// Why an automaton was not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLarge {
    /// More states than this program builds.
    States(usize),
    /// More work than allowed.
    Effort(i64),
}

/// Why an expression has no automaton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not one; in Lucene's words.
    Syntax(String),
    /// A number in it is none that Java can hold.
    Number(String),
    /// Its automaton is too large.
    TooLarge(TooLarge),
}

impl From<TooLarge> for Fault {
    fn from(fault: TooLarge) -> Self {
        Self::TooLarge(fault)
    }
}
