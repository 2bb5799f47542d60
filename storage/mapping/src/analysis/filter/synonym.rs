//! The `synonym` and `synonym_graph` filters.
//!
//! Rules map sequences of terms to sequences of terms. The longest rule that fits at a token wins and
//! the search goes on behind it. `synonym_graph` makes of each result a path of its own beside the
//! tokens, whose lengths in positions say where it ends; `synonym` lays the terms of a result over the
//! positions of the tokens one by one, as an index can hold them.

use hashbrown::HashMap;

use super::lowercase::lower;
use super::{Filter, InSynonyms, Increments, Stage, TextEnd, whole};
use crate::analysis::Token;
use crate::analysis::allowance::{Allowance, TOKEN_BYTES};
use crate::analysis::synonyms::{Entry, Rules};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Synonyms {
    pub(crate) rules: Rules,
    pub(crate) ignore_case: bool,
    pub(crate) graph: bool,
}

const KIND: &str = "SYNONYM";

/// A term that lies over a token ahead: text, end if it is its own, length in positions.
type PendingTerm<'a> = (&'a str, Option<u32>, u32);

impl Filter for Synonyms {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        whole(
            |mut tokens, end| {
                let kept = self.affordable(&tokens);
                let cut = end.cut || kept < tokens.len();
                tokens.truncate(kept);
                let (tokens, shift) =
                    if self.graph { self.as_graph(tokens) } else { self.as_overlay(tokens) };
                let positions = i64::from(end.positions) + shift;
                let after = tokens.last().map_or(0, |token| token.position + 1);
                let positions = u32::try_from(positions).unwrap_or(0).max(after);
                (tokens, TextEnd { positions, cut, ..end })
            },
            next,
        )
    }

    fn growth(&self) -> usize {
        self.rules.largest().saturating_add(1 + TOKEN_BYTES)
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Nothing
    }
}

impl Synonyms {
    /// Finds the longest rule that begins with the first of `tokens`.
    fn longest<'s>(&'s self, tokens: &[Token]) -> Option<(usize, &'s Entry)> {
        let mut key = String::new();
        let mut found = None;
        for (nth, token) in tokens.iter().take(self.rules.longest()).enumerate() {
            if nth > 0 {
                key.push('\0');
            }
            if self.ignore_case {
                key.extend(token.text.chars().map(lower));
            } else {
                key.push_str(&token.text);
            }
            match self.rules.get(&key) {
                Some(entry) => found = Some((nth + 1, entry)),
                None if !self.rules.is_prefix(&key) => break,
                None => {}
            }
        }
        found
    }

    /// Counts the tokens of a text whose synonyms do not come to too much.
    fn affordable(&self, tokens: &[Token]) -> usize {
        let mut allowance = Allowance::default();
        tokens.iter().for_each(|token| allowance.take(token.text.len()));
        let mut at = 0;
        while at < tokens.len() {
            let (length, outputs) =
                self.longest(&tokens[at..]).map_or((1, 0), |(length, entry)| (length, entry.bytes()));
            if outputs > 0 && !allowance.spend(outputs) {
                break;
            }
            at += length;
        }
        at
    }

    fn as_graph(&self, tokens: Vec<Token>) -> (Vec<Token>, i64) {
        let mut out = Vec::with_capacity(tokens.len());
        let mut increments = Increments::default();
        let increments: Vec<u32> = tokens.iter().map(|token| increments.of(token)).collect();
        // The node of the last token that was put out, and the node that its end makes.
        let (mut last, mut next) = (-1i64, 0i64);
        let mut at = 0;
        while at < tokens.len() {
            let Some((length, entry)) = self.longest(&tokens[at..]) else {
                last += i64::from(increments[at]);
                next = last + i64::from(tokens[at].position_length);
                out.push(Token { position: node(last), ..tokens[at].clone() });
                at += 1;
                continue;
            };
            let matched = &tokens[at..at + length];
            let start = next;
            let inner: usize = entry.outputs.iter().map(|path| path.len() - 1).sum::<usize>()
                + if entry.keep_original { length - 1 } else { 0 };
            let end = start + inner as i64 + 1;
            let synonym = |text: &str, from: i64, to: i64| Token {
                text: text.to_owned(),
                position: node(from),
                position_length: node(to - from),
                start: matched[0].start,
                end: matched[length - 1].end,
                kind: KIND,
                ..Token::default()
            };
            let original = |token: &Token, from: i64, to: i64| Token {
                position: node(from),
                position_length: node(to - from),
                ..token.clone()
            };
            // First what leaves the start, each path with the node that its first term ends in.
            let mut free = start + 1;
            let mut ends = Vec::with_capacity(entry.outputs.len() + 1);
            for path in &entry.outputs {
                let to = if path.len() == 1 { end } else { free };
                if path.len() > 1 {
                    free += path.len() as i64 - 1;
                }
                out.push(synonym(&path[0], start, to));
                ends.push(to);
            }
            let mut first_end = end;
            if entry.keep_original {
                first_end = if length == 1 { end } else { free };
                out.push(original(&matched[0], start, first_end));
            }
            // Then the rest of each path.
            for (path, mut from) in entry.outputs.iter().zip(ends) {
                for (nth, term) in path.iter().enumerate().skip(1) {
                    let to = if nth + 1 == path.len() { end } else { from + 1 };
                    out.push(synonym(term, from, to));
                    from = to;
                }
            }
            if entry.keep_original {
                let mut from = first_end;
                for (nth, token) in matched.iter().enumerate().skip(1) {
                    let to = if nth + 1 == length { end } else { from + 1 };
                    out.push(original(token, from, to));
                    from = to;
                }
            }
            last = out.last().map_or(last, |token| i64::from(token.position));
            next = end;
            at += length;
        }
        let shift = match tokens.last() {
            Some(token) => last - i64::from(token.position),
            None => 0,
        };
        (out, shift)
    }

    fn as_overlay(&self, tokens: Vec<Token>) -> (Vec<Token>, i64) {
        let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
        let mut increments = Increments::default();
        let increments: Vec<u32> = tokens.iter().map(|token| increments.of(token)).collect();
        let mut ahead: HashMap<usize, Vec<PendingTerm<'_>>> = HashMap::new();
        let mut position = -1i64;
        let mut at = 0;
        while at < tokens.len() {
            let found = self.longest(&tokens[at..]);
            let (length, keep) = match found {
                None => (1, true),
                Some((length, entry)) => {
                    let end = tokens[at + length - 1].end;
                    for path in &entry.outputs {
                        for (nth, term) in path.iter().enumerate() {
                            let single = path.len() == 1;
                            let spans = if single && entry.keep_original { length as u32 } else { 1 };
                            ahead.entry(at + nth).or_default().push((term, single.then_some(end), spans));
                        }
                    }
                    (length, entry.keep_original)
                }
            };
            for (nth, token) in tokens.iter().enumerate().skip(at).take(length) {
                let mut increment = 1;
                if keep {
                    position += i64::from(increments[nth]);
                    out.push(Token { position: node(position), ..token.clone() });
                    increment = 0;
                }
                for (text, end, spans) in ahead.remove(&nth).unwrap_or_default() {
                    position += increment;
                    increment = 0;
                    out.push(Token {
                        text: text.to_owned(),
                        position: node(position),
                        position_length: spans,
                        start: token.start,
                        end: end.unwrap_or(token.end),
                        kind: KIND,
                        ..Token::default()
                    });
                }
            }
            at += length;
        }
        // Results longer than the text end behind it.
        let shift = tokens.last().map_or(0, |token| position - i64::from(token.position));
        let (start, end) = tokens.last().map_or((0, 0), |token| (token.start, token.end));
        let mut nth = tokens.len();
        while let Some(terms) = ahead.remove(&nth) {
            position += 1;
            for (text, _, _) in terms {
                out.push(Token {
                    text: text.to_owned(),
                    position: node(position),
                    start,
                    end,
                    kind: KIND,
                    ..Token::default()
                });
            }
            nth += 1;
        }
        (out, shift)
    }
}

fn node(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}
