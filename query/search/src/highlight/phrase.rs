//! Finds phrases among the tokens of a text, as Lucene's near spans do.

use super::terms::Phrase;
use super::tokens::Token;

/// Most matches of one phrase that are looked at.
const MAX_MATCHES: usize = 100_000;

/// Where a phrase matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// First position.
    pub first: u32,
    /// Last position.
    pub last: u32,
    /// The tokens, one a place.
    pub tokens: Vec<usize>,
}

/// Lists the matches of a phrase.
pub(super) fn matches(phrase: &Phrase, tokens: &[Token]) -> Vec<Match> {
    let mut places: Vec<Vec<usize>> = Vec::with_capacity(phrase.places.len());
    for place in &phrase.places {
        let fitting: Vec<usize> = tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| place.fits(&token.term))
            .map(|(at, _)| at)
            .collect();
        if fitting.is_empty() {
            return Vec::new();
        }
        places.push(fitting);
    }
    match places.as_slice() {
        [] => Vec::new(),
        [single] => single
            .iter()
            .take(MAX_MATCHES)
            .map(|at| Match { first: tokens[*at].position, last: tokens[*at].position, tokens: vec![*at] })
            .collect(),
        _ if phrase.ordered => ordered(&places, tokens, phrase.slop),
        _ => unordered(&places, tokens, phrase.slop),
    }
}

fn ordered(places: &[Vec<usize>], tokens: &[Token], slop: u32) -> Vec<Match> {
    let position = |at: usize| tokens[at].position;
    let mut matches = Vec::new();
    let mut next = vec![0; places.len()];
    for first in &places[0] {
        let mut found = vec![*first];
        let mut end = position(*first) + 1;
        let mut width = 0;
        for (place, next) in places.iter().zip(&mut next).skip(1) {
            while place.get(*next).is_some_and(|at| position(*at) < end) {
                *next += 1;
            }
            let Some(at) = place.get(*next) else { return matches };
            width += position(*at) - end;
            end = position(*at) + 1;
            found.push(*at);
        }
        if width <= slop && matches.len() < MAX_MATCHES {
            matches.push(Match { first: position(*first), last: end - 1, tokens: found });
        }
    }
    matches
}

fn unordered(places: &[Vec<usize>], tokens: &[Token], slop: u32) -> Vec<Match> {
    let position = |place: usize, next: &[usize]| tokens[places[place][next[place]]].position;
    let mut matches = Vec::new();
    let mut next = vec![0; places.len()];
    let mut last = (0..places.len()).map(|place| position(place, &next)).max().unwrap_or(0);
    while let Some(least) = (0..places.len()).min_by_key(|place| position(*place, &next)) {
        let first = position(least, &next);
        if i64::from(last + 1 - first) - places.len() as i64 <= i64::from(slop) {
            let tokens = (0..places.len()).map(|place| places[place][next[place]]).collect();
            matches.push(Match { first, last, tokens });
        }
        next[least] += 1;
        if next[least] == places[least].len() || matches.len() == MAX_MATCHES {
            break;
        }
        last = last.max(position(least, &next));
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::super::terms::Place;
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
            .map(|(at, term)| (at as u32, Place { terms: vec![term.to_owned()], pattern: None }))
            .collect();
        let matches = matches(&Phrase::new(places, slop), &tokens(text));
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
