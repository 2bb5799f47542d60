//! The search for a text in strings, in either case of its ASCII letters.

use aho_corasick::AhoCorasick;
use memchr::memchr2_iter;

/// Longest text that is compared wherever its rarest byte is; longer ones take an automaton, whose time does not grow with them.
const LONGEST_COMPARED: usize = 32;
/// Bytes that strings of words, paths and logs have often, the most frequent first.
const FREQUENT: &[u8] = b"etaoinsrhl/dcumfpgw.-_y:01 2bv3456789kxjqz";

/// Finds a text in strings.
#[derive(Debug)]
pub(super) enum LiteralSearch {
    /// By its rarest byte.
    RarestByte {
        text: Box<[u8]>,
        at: usize,
    },
    Automaton(AhoCorasick),
}

impl LiteralSearch {
    /// Makes a search; `None` for an empty text, which is everywhere.
    pub(super) fn new(text: &str) -> Option<Self> {
        if text.len() > LONGEST_COMPARED {
            let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build([text]);
            return automaton.ok().map(Self::Automaton);
        }
        let text = text.as_bytes().to_ascii_lowercase();
        let rarity = |byte: u8| FREQUENT.iter().position(|known| *known == byte).unwrap_or(FREQUENT.len());
        let at = (0..text.len()).max_by_key(|at| rarity(text[*at]))?;
        Some(Self::RarestByte { text: text.into(), at })
    }

    /// Returns whether a string has the text.
    pub(super) fn is_in(&self, string: &str) -> bool {
        match self {
            Self::Automaton(automaton) => automaton.is_match(string),
            Self::RarestByte { text, at } => {
                let string = string.as_bytes();
                let behind = text.len() - at - 1;
                let Some(places) = string.len().checked_sub(behind).and_then(|end| string.get(*at..end))
                else {
                    return false;
                };
                let byte = text[*at];
                memchr2_iter(byte, byte.to_ascii_uppercase(), places)
                    .any(|start| string[start..start + text.len()].eq_ignore_ascii_case(text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn texts_are_found_in_either_case_wherever_they_are() {
        let mut random = StdRng::seed_from_u64(7);
        let mut word = |longest: usize| -> String {
            let length = random.random_range(0..=longest);
            (0..length)
                .map(|_| ["a", "A", "b", "B", "z", "é", "É", "/", "K"][random.random_range(0..9)])
                .collect()
        };
        let mut found = 0;
        for _ in 0..20_000 {
            let (text, string) = (word(4), word(40));
            let expected = string.to_ascii_lowercase().contains(&text.to_ascii_lowercase());
            let own = LiteralSearch::new(&text).is_none_or(|search| search.is_in(&string));
            assert_eq!(own, expected, "{text:?} in {string:?}");
            found += usize::from(own);
        }
        assert!((1_000..19_000).contains(&found), "{found}");
    }

    #[test]
    fn long_texts_are_found_too() {
        let long = "Ab/".repeat(20);
        let search = LiteralSearch::new(&long).unwrap();
        assert!(matches!(search, LiteralSearch::Automaton(_)));
        assert!(search.is_in(&format!("x{}y", long.to_uppercase())));
        assert!(!search.is_in(&long[1..]));
    }
}
