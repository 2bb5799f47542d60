//! The `fingerprint` filter: the distinct tokens of a text, sorted, as one token.

use std::collections::BTreeSet;

use super::{Filter, InSynonyms, Stage, TextEnd, whole};
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
        whole(|tokens, end| self.run(tokens, end), next)
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Refused
    }
}

impl Fingerprint {
    fn run(&self, tokens: Vec<Token>, end: TextEnd) -> (Vec<Token>, TextEnd) {
        // In Lucene, the text ends one position behind whatever comes of it.
        let empty = TextEnd { positions: 1, ..end };
        if tokens.is_empty() {
            return (Vec::new(), empty);
        }
        // Java sorts by UTF-16 code units.
        let words: BTreeSet<Vec<u16>> =
            tokens.iter().map(|token| token.text.encode_utf16().collect()).collect();
        let mut units: Vec<u16> = Vec::new();
        let mut buffer = [0; 2];
        for word in &words {
            if !units.is_empty() {
                units.extend_from_slice(self.separator.encode_utf16(&mut buffer));
            }
            units.extend_from_slice(word);
            if units.len() > self.max_output_size {
                return (Vec::new(), empty);
            }
        }
        let token = Token {
            text: String::from_utf16_lossy(&units),
            position: 0,
            position_length: 1,
            start: 0,
            end: end.offset,
            kind: "fingerprint",
            ..Token::default()
        };
        (vec![token], TextEnd { positions: 2, ..end })
    }
}
