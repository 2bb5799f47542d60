//! The analyzers of the parts of a `search_as_you_type` field: its own analyzer with filters behind it
//! that make shingles, and starts of shingles, of the tokens.

use std::sync::{Arc, OnceLock};

use super::filter::{Edge, FixedShingle, Grams};
use super::{Analyzer, Token};

/// Longest start of a shingle that is indexed, in characters.
pub(crate) const MAX_PREFIX: usize = 20;
/// Shingle sizes that there are.
const SIZES: std::ops::RangeInclusive<u8> = 2..=4;
/// Kinds of parts of each size.
const KINDS: usize = 2;
/// Between the name of an analyzer and that of a part: no analyzer is called so.
const SEPARATOR: char = '\u{1f}';

/// A way in which tokens are joined; the number is that of the tokens of a shingle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsYouTypeSubfield {
    /// Whole shingles.
    Shingles(u8),
    /// Starts of shingles, of those too that the text ends in.
    Prefixes(u8),
}

impl AsYouTypeSubfield {
    /// Names the analyzer that has the filters of this part behind those of another.
    pub fn of(self, analyzer: &str) -> String {
        let (kind, size) = match self {
            Self::Shingles(size) => ("gram", size),
            Self::Prefixes(size) => ("prefix", size),
        };
        format!("{analyzer}{SEPARATOR}{size}{kind}")
    }

    /// Takes apart what [`AsYouTypeSubfield::of`] made.
    pub(super) fn split(name: &str) -> Option<(&str, Self)> {
        let (analyzer, part) = name.rsplit_once(SEPARATOR)?;
        let size = part.get(..1)?.parse().ok().filter(|size| SIZES.contains(size))?;
        match part.get(1..)? {
            "gram" => Some((analyzer, Self::Shingles(size))),
            "prefix" => Some((analyzer, Self::Prefixes(size))),
            _ => None,
        }
    }

    fn place(self) -> usize {
        match self {
            Self::Shingles(size) => usize::from(size) * KINDS,
            Self::Prefixes(size) => usize::from(size) * KINDS + 1,
        }
    }
}

/// An analyzer with those of its parts, each built when it is first asked for.
#[derive(Debug)]
pub(super) struct Family {
    own: Analyzer,
    parts: Box<[OnceLock<Analyzer>]>,
}

impl Family {
    pub(super) fn new(own: Analyzer) -> Self {
        let places = (usize::from(*SIZES.end()) + 1) * KINDS;
        Self { own, parts: (0..places).map(|_| OnceLock::new()).collect() }
    }

    pub(super) fn own(&self) -> &Analyzer {
        &self.own
    }

    pub(super) fn part(&self, part: AsYouTypeSubfield) -> &Analyzer {
        let Some(place) = self.parts.get(part.place()) else { return &self.own };
        place.get_or_init(|| match part {
            AsYouTypeSubfield::Shingles(size) => {
                self.own.followed_by(vec![Arc::new(FixedShingle { size: size.into(), trailing: false })])
            }
            AsYouTypeSubfield::Prefixes(size) => self.own.followed_by(vec![
                Arc::new(FixedShingle { size: size.into(), trailing: true }),
                Arc::new(Grams { min: 1, max: MAX_PREFIX, edge: Edge::Front, preserve_original: true }),
            ]),
        })
    }
}

/// Joins tokens to shingles of one size.
pub fn shingles(tokens: &[Token], size: u8) -> Vec<Token> {
    FixedShingle { size: size.into(), trailing: false }.join(tokens, 0).0
}

#[cfg(test)]
mod tests {
    use super::super::Analyzers;
    use super::*;

    fn terms(analyzers: &Analyzers, name: &str, text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        analyzers.get(name).unwrap().analyze(text, &mut |token| terms.push(token.text.clone()));
        terms
    }

    #[test]
    fn parts_join_tokens() {
        let analyzers = Analyzers::new(&serde_json::Map::new()).unwrap();
        let grams = AsYouTypeSubfield::Shingles(2).of("standard");
        assert_eq!(terms(&analyzers, &grams, "The quick Fox"), ["the quick", "quick fox"]);
        assert_eq!(terms(&analyzers, &grams, "one"), [""; 0]);
        let prefixes = AsYouTypeSubfield::Prefixes(3).of("standard");
        assert_eq!(
            terms(&analyzers, &prefixes, "ab c"),
            ["a", "ab", "ab ", "ab c", "ab c ", "c", "c ", "c  "]
        );
        let stopped = AsYouTypeSubfield::Shingles(3).of("stop");
        assert_eq!(terms(&analyzers, &stopped, "fox of the dog ran"), ["fox  "]);
    }
}
