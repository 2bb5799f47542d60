//! The `cjk_bigram` filter: neighbouring ideographs, Hiragana, Katakana and Hangul in pairs.

use super::{Filter, InSynonyms, Increments, Stage, TextEnd, whole};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CjkBigram {
    /// Types of tokens that are paired.
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) output_unigrams: bool,
}

impl Filter for CjkBigram {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        whole(|tokens, end| self.run(tokens, end), next)
    }

    fn disables_graph(&self) -> bool {
        self.output_unigrams
    }

    fn in_synonyms(&self) -> InSynonyms {
        if self.output_unigrams { InSynonyms::Refused } else { InSynonyms::Same }
    }
}

impl CjkBigram {
    fn run(&self, tokens: Vec<Token>, end: TextEnd) -> (Vec<Token>, TextEnd) {
        let mut out = Vec::with_capacity(tokens.len());
        let mut increments = Increments::default();
        let mut position = -1i64;
        // Characters of a run with their offsets.
        let mut run: Vec<(char, u32, u32)> = Vec::new();
        let after = tokens.last().map_or(0, |token| token.position + 1);
        for token in tokens {
            let increment = increments.of(&token);
            if !self.kinds.contains(&token.kind) {
                self.flush(&mut run, &mut position, &mut out);
                position += i64::from(increment);
                out.push(Token { position: place(position), ..token });
                continue;
            }
            if run.last().is_some_and(|&(_, _, end)| end != token.start) {
                self.flush(&mut run, &mut position, &mut out);
            }
            let units: usize = token.text.chars().map(char::len_utf16).sum();
            let legal = (token.end - token.start) as usize == units;
            let mut at = token.start;
            for c in token.text.chars() {
                let width = c.len_utf16() as u32;
                run.push(if legal { (c, at, at + width) } else { (c, token.start, token.end) });
                at += width;
            }
        }
        self.flush(&mut run, &mut position, &mut out);
        let trailing = end.positions.saturating_sub(after);
        (out, TextEnd { positions: place(position + 1) + trailing, ..end })
    }

    fn flush(&self, run: &mut Vec<(char, u32, u32)>, position: &mut i64, out: &mut Vec<Token>) {
        for (nth, &(c, start, end)) in run.iter().enumerate() {
            let next = run.get(nth + 1);
            if self.output_unigrams || run.len() == 1 {
                *position += 1;
                out.push(Token {
                    text: c.to_string(),
                    position: place(*position),
                    start,
                    end,
                    kind: "<SINGLE>",
                    ..Token::default()
                });
            }
            if let Some(&(second, _, end)) = next {
                if !self.output_unigrams {
                    *position += 1;
                }
                out.push(Token {
                    text: String::from_iter([c, second]),
                    position: place(*position),
                    position_length: if self.output_unigrams { 2 } else { 1 },
                    start,
                    end,
                    kind: "<DOUBLE>",
                    ..Token::default()
                });
            }
        }
        run.clear();
    }
}

fn place(position: i64) -> u32 {
    u32::try_from(position.max(0)).unwrap_or(u32::MAX)
}
