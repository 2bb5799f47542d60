//! Finds phrases and spans among the tokens of a text, by the walks of [`millrace_scoring::spans`].

use std::collections::BTreeSet;

use millrace_scoring::spans::walk;

use super::terms::Spans;
use super::tokens::Token;

/// Most matches of one phrase that are looked at.
const MAX_MATCHES: usize = 100_000;

/// Match of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// First position.
    pub first: u32,
    /// Last position.
    pub last: u32,
    /// The tokens.
    pub tokens: Vec<usize>,
}

/// Lists the matches of spans.
pub(super) fn matches(spans: &Spans, tokens: &[Token]) -> Vec<Match> {
    let fitting = |place: usize, position: i64| {
        let from = tokens.partition_point(|token| i64::from(token.position) < position);
        let here = tokens[from..].iter().take_while(move |token| i64::from(token.position) == position);
        let place = &spans.places[place];
        (from..).zip(here).filter(|(_, token)| place.fits(&token.term)).map(|(at, _)| at)
    };
    let positions: Vec<Vec<u32>> = spans
        .places
        .iter()
        .map(|place| {
            let own = tokens.iter().filter(|token| place.fits(&token.term));
            own.map(|token| token.position).collect()
        })
        .collect();
    let mut walk = walk::over(&spans.root);
    let mut matches = Vec::new();
    while matches.len() < MAX_MATCHES {
        let start = walk.next(&positions);
        if start == walk::END {
            break;
        }
        let mut made = BTreeSet::new();
        walk.collect(&mut |place, position| {
            if spans.places[place].marked {
                made.extend(fitting(place, position));
            }
        });
        let position = |at: i64| u32::try_from(at).unwrap_or(u32::MAX);
        matches.push(Match {
            first: position(start),
            last: position(walk.end() - 1),
            tokens: made.into_iter().collect(),
        });
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::super::terms::PositionTerms;
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        let words = text.split(' ').enumerate();
        words
            .map(|(at, term)| Token { term: term.to_owned(), position: at as u32, start: at, end: at + 1 })
            .collect()
    }

    fn found(phrase: &str, slop: u32, text: &str) -> Vec<(u32, u32)> {
        let places = phrase.split(' ').enumerate();
        let places = places
            .map(|(at, term)| {
                (at as u32, PositionTerms { terms: vec![term.to_owned()], pattern: None, marked: true })
            })
            .collect();
        let matches = matches(&Spans::phrase(places, slop), &tokens(text));
        matches.iter().map(|found| (found.first, found.last)).collect()
    }

    #[test]
    fn exact_phrases_match_in_order() {
        assert_eq!(found("a b", 0, "a b a a b b a"), [(0, 1), (3, 4)]);
        assert_eq!(found("a b", 0, "b a"), []);
        assert_eq!(found("a", 0, "b a a"), [(1, 1), (2, 2)]);
    }

    #[test]
    fn sloppy_phrases_match_in_any_order() {
        assert_eq!(found("a b", 1, "a x b"), [(0, 2)]);
        assert_eq!(found("a b", 1, "b a"), [(0, 1)]);
        assert_eq!(found("a b", 1, "a x x b"), []);
    }
}
