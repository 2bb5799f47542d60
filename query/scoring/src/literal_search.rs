//! Search of texts for a literal in any case of its ASCII letters.
//!
//! The first bytes of the literal are looked for in all of their cases at once, many bytes of a text at a time where the processor can.
//! The rest is compared where they are found.

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, Span};

/// Bytes that are looked for first: at most eight texts in their cases.
const START_BYTES: usize = 3;

/// Searches texts for a literal.
#[derive(Debug)]
pub(crate) enum LiteralSearch {
    /// Looks for the first bytes in all of their cases, and compares the literal there.
    Start(Searcher, Box<[u8]>),
    /// Looks for the literal byte by byte.
    Whole(AhoCorasick),
}

impl LiteralSearch {
    /// Makes the search for a literal, which is not empty; `None` if it is too long.
    pub(crate) fn new(literal: &str) -> Option<Self> {
        let start = literal.as_bytes().get(..literal.len().min(START_BYTES))?;
        match Searcher::new(cases(start)) {
            Some(searcher) => Some(Self::Start(searcher, literal.as_bytes().into())),
            None => {
                let whole = AhoCorasick::builder().ascii_case_insensitive(true).build([literal]);
                whole.ok().map(Self::Whole)
            }
        }
    }

    /// Returns whether a text has the literal.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        let (searcher, literal) = match self {
            Self::Start(searcher, literal) => (searcher, literal),
            Self::Whole(whole) => return whole.is_match(text),
        };
        let bytes = text.as_bytes();
        let mut from = 0;
        while let Some(found) = searcher.find_in(bytes, Span::from(from..bytes.len())) {
            let candidate = bytes.get(found.start()..).and_then(|rest| rest.get(..literal.len()));
            if candidate.is_some_and(|candidate| candidate.eq_ignore_ascii_case(literal)) {
                return true;
            }
            from = found.start() + 1;
        }
        false
    }
}

/// Lists bytes with their ASCII letters in each combination of cases.
fn cases(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut cases = vec![Vec::new()];
    for byte in bytes {
        let (lower, upper) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
        let mut longer = Vec::with_capacity(cases.len() * 2);
        for case in cases {
            longer.push([case.as_slice(), &[lower]].concat());
            if upper != lower {
                longer.push([case.as_slice(), &[upper]].concat());
            }
        }
        cases = longer;
    }
    cases
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn literals_are_found_as_in_lowered_texts() {
        let mut rng = StdRng::seed_from_u64(3);
        let letters = ['a', 'A', 'b', 'B', '.', 'é', 'É', '1'];
        let mut text = |most: usize| {
            let length = rng.random_range(0..most);
            (0..length).map(|_| letters[rng.random_range(0..letters.len())]).collect::<String>()
        };
        let mut found = 0;
        for _ in 0..20_000 {
            let (literal, text) = (text(6), text(90));
            if literal.is_empty() {
                continue;
            }
            let expected = text.to_ascii_lowercase().contains(&literal.to_ascii_lowercase());
            found += usize::from(expected);
            assert_eq!(LiteralSearch::new(&literal).unwrap().is_in(&text), expected, "{literal} in {text}");
        }
        assert!(found > 1_000);
    }
}
