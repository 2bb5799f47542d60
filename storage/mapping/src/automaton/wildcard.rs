//! Patterns of `*` and `?`.

use super::dfa::Dfa;
use super::nfa::Nfa;
use super::{TooLarge, case};

/// Component of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WildcardItem {
    /// Any characters.
    Any,
    /// One character.
    One,
    /// This character.
    Character(char),
}

/// Takes a pattern apart; `\` takes the next character as it is.
pub fn pieces(pattern: &str) -> Vec<WildcardItem> {
    let mut pieces = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let piece = match character {
            '*' => WildcardItem::Any,
            '?' => WildcardItem::One,
            // At the end it stands for itself.
            '\\' => WildcardItem::Character(characters.next().unwrap_or('\\')),
            other => WildcardItem::Character(other),
        };
        if piece != WildcardItem::Any || pieces.last() != Some(&WildcardItem::Any) {
            pieces.push(piece);
        }
    }
    pieces
}

impl Dfa {
    /// Makes the automaton of a pattern. `folded` takes ASCII letters in either case.
    ///
    /// # Errors
    /// [`TooLarge`] where making it takes more than `limit` allows.
    pub fn wildcard(pieces: &[WildcardItem], folded: bool, limit: i64) -> Result<Self, TooLarge> {
        let mut nfa = Nfa::default();
        let mut whole = nfa.empty_string()?;
        for piece in pieces {
            let part = match piece {
                WildcardItem::Any => nfa.any_string()?,
                WildcardItem::One => nfa.any_character()?,
                WildcardItem::Character(character) => nfa.characters(&case::ranges(*character, folded))?,
            };
            whole = nfa.concatenate(whole, part);
        }
        Self::new(&nfa, whole, limit)
    }

    /// Makes the automaton of what starts with any of some texts.
    ///
    /// # Errors
    /// [`TooLarge`] where making it takes more than `limit` allows.
    pub fn any_start(texts: &[String], limit: i64) -> Result<Self, TooLarge> {
        let mut nfa = Nfa::default();
        let mut starts = Vec::with_capacity(texts.len());
        for text in texts {
            let mut whole = nfa.empty_string()?;
            for character in text.chars() {
                let part = nfa.characters(&case::ranges(character, false))?;
                whole = nfa.concatenate(whole, part);
            }
            starts.push(whole);
        }
        let any = nfa.union(&starts)?;
        let rest = nfa.any_string()?;
        let whole = nfa.concatenate(any, rest);
        Self::new(&nfa, whole, limit)
    }
}
