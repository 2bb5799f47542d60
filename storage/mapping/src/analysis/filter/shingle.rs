//! The `shingle` filter: neighbouring tokens joined.

use super::{Filter, InSynonyms, Increments, Shingles, Stage, TextEnd, whole};
use crate::analysis::Token;
use crate::analysis::allowance::{Allowance, TOKEN_BYTES};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Shingle {
    pub(crate) min: usize,
    pub(crate) max: usize,
    pub(crate) output_unigrams: bool,
    pub(crate) output_unigrams_if_no_shingles: bool,
    pub(crate) separator: String,
    pub(crate) filler: String,
}

impl Filter for Shingle {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        whole(|tokens, end| self.run(tokens, end), next)
    }

    fn growth(&self) -> usize {
        // A token is in as many shingles of a size as that has tokens, and begins one of them.
        let of_size = |size: usize| size.saturating_mul(1 + self.separator.len()).saturating_add(TOKEN_BYTES);
        (self.min..=self.max).map(of_size).fold(1 + TOKEN_BYTES, usize::saturating_add)
    }

    fn disables_graph(&self) -> bool {
        self.output_unigrams || self.min != self.max
    }

    fn shingles(&self) -> Option<Shingles> {
        Some(Shingles { min: self.min, max: self.max, single: self.output_unigrams })
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Refused
    }
}

impl Shingle {
    fn run(&self, tokens: Vec<Token>, end: TextEnd) -> (Vec<Token>, TextEnd) {
        let input = self.with_fillers(tokens, end);
        let mut allowance = Allowance::default();
        input.iter().for_each(|(token, _)| allowance.take(token.text.len()));
        let alone = self.output_unigrams || (self.output_unigrams_if_no_shingles && input.len() < self.min);
        let mut out: Vec<Token> = Vec::new();
        let mut position = 0;
        'text: for start in 0..input.len() {
            let window = &input[start..input.len().min(start + self.max)];
            let before = out.len();
            let sizes = alone.then_some(1).into_iter().chain(self.min..=self.max);
            for size in sizes.take_while(|&size| size <= window.len()) {
                let parts = &window[..size];
                if parts.iter().all(|(_, filler)| *filler) {
                    continue;
                }
                let joined = parts.iter().map(|(part, _)| part.text.len() + self.separator.len());
                if !allowance.spend(joined.sum()) {
                    break 'text;
                }
                let mut token = window[0].0.clone();
                if window[0].1 {
                    token.kind = "word";
                }
                token.text = parts
                    .iter()
                    .map(|(part, _)| part.text.as_str())
                    .collect::<Vec<_>>()
                    .join(&self.separator);
                token.position = position;
                token.end = parts[size - 1].0.end;
                let length = if alone { size } else { size - self.min + 1 };
                token.position_length = u32::try_from(length).unwrap_or(1);
                if size > 1 {
                    token.kind = "shingle";
                }
                out.push(token);
            }
            position += u32::from(out.len() > before);
        }
        (out, TextEnd { positions: position, cut: end.cut || allowance.is_exhausted(), ..end })
    }

    /// Puts a filler for each position that a filter left empty, as many as a shingle may span.
    fn with_fillers(&self, tokens: Vec<Token>, end: TextEnd) -> Vec<(Token, bool)> {
        let mut input = Vec::with_capacity(tokens.len());
        let mut increments = Increments::default();
        let filler = |at: u32| {
            let token = Token { text: self.filler.clone(), start: at, end: at, ..Token::default() };
            (token, true)
        };
        let fillers = |missing: u32| (missing as usize).min(self.max - 1);
        let mut after = 0;
        for token in tokens {
            let missing = increments.of(&token).saturating_sub(1);
            input.extend((0..fillers(missing)).map(|_| filler(token.start)));
            after = token.position + 1;
            input.push((token, false));
        }
        let missing = fillers(end.positions.saturating_sub(after));
        input.extend((0..missing).map(|_| filler(end.offset)));
        input
    }
}
