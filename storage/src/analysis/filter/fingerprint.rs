//! The `fingerprint` filter: the distinct tokens of a text, sorted, as one token.

use std::collections::BTreeSet;

use super::{Filter, InSynonyms, Stage, whole};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Fingerprint {
    pub(crate) separator: char,
    /// Longest fingerprint in UTF-16 code units; a longer one is left out.
    pub(crate) max_output_size: usize,
}

impl Filter for Fingerprint {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        whole(|tokens, positions| self.run(tokens, positions), next)
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Refused
    }
}

impl Fingerprint {
    fn run(&self, tokens: Vec<Token>, positions: u32) -> (Vec<Token>, u32) {
        let end = tokens.iter().map(|token| token.end).max().unwrap_or(0);
        let Some(last) = tokens.last().cloned() else { return (Vec::new(), positions) };
        // Java sorts by UTF-16 code units.
        let words: BTreeSet<Vec<u16>> =
            tokens.iter().map(|token| token.text.encode_utf16().collect()).collect();
        let mut units: Vec<u16> = Vec::new();
        let mut buffer = [0; 2];
        let single = words.len() == 1;
        for (nth, word) in words.iter().enumerate() {
            if nth > 0 {
                units.extend_from_slice(self.separator.encode_utf16(&mut buffer));
            }
            units.extend_from_slice(word);
            if units.len() > self.max_output_size {
                return (Vec::new(), positions);
            }
        }
        let token = Token {
            text: String::from_utf16_lossy(&units),
            position: 0,
            position_length: 1,
            start: 0,
            end,
            kind: if single { last.kind } else { "fingerprint" },
            ..Token::default()
        };
        (vec![token], positions)
    }
}
