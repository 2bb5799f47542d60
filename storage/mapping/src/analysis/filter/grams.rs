//! The `ngram` and `edge_ngram` filters: runs of characters of each token, at its position.

use super::{Filter, InSynonyms, Stage, TextEnd};
use crate::analysis::Token;
use crate::analysis::allowance::{Allowance, TOKEN_BYTES};

/// Runs of a token that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// All of them.
    None,
    /// Those at its start.
    Front,
    /// Those at its end.
    Back,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Grams {
    pub(crate) min: usize,
    pub(crate) max: usize,
    pub(crate) edge: Edge,
    /// `true` if tokens stay too that are shorter or longer than the runs.
    pub(crate) preserve_original: bool,
}

impl Filter for Grams {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(GramCutter {
            grams: self,
            ends: Vec::new(),
            taken: 0,
            allowance: Allowance::default(),
            next,
        })
    }

    fn growth(&self) -> usize {
        growth(self.min, self.max, self.edge != Edge::None)
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Refused
    }
}

/// Bytes that runs of so many characters may make of a byte of text.
pub(crate) fn growth(min: usize, max: usize, edges_only: bool) -> usize {
    if edges_only {
        // No more runs than characters, and none is longer.
        return max.saturating_add(TOKEN_BYTES);
    }
    // Each character begins one of each length.
    let mean = min.saturating_add(max).div_ceil(2).saturating_add(TOKEN_BYTES);
    (max.saturating_sub(min) + 1).saturating_mul(mean)
}

struct GramCutter<'a> {
    grams: &'a Grams,
    allowance: Allowance,
    /// Byte offsets of the characters of the token, and its end.
    ends: Vec<usize>,
    /// Positions up to the last token that came in.
    taken: u32,
    next: Box<dyn Stage + 'a>,
}

impl Stage for GramCutter<'_> {
    fn token(&mut self, token: &mut Token) {
        let Grams { min, max, edge, preserve_original } = *self.grams;
        self.ends.clear();
        self.ends.extend(token.text.char_indices().map(|(at, _)| at));
        self.ends.push(token.text.len());
        let count = self.ends.len() - 1;
        let whole = std::mem::take(&mut token.text);
        self.allowance.take(whole.len());
        self.taken = token.position + 1;
        if count < min {
            if preserve_original {
                token.text = whole;
                self.next.token(token);
            }
            return;
        }
        let starts = if edge == Edge::None { count - min + 1 } else { 1 };
        let mut gram = token.clone();
        for start in 0..starts {
            for size in min..=max.min(count - start) {
                let (from, to) =
                    if edge == Edge::Back { (count - size, count) } else { (start, start + size) };
                if !self.allowance.spend(self.ends[to] - self.ends[from]) {
                    return;
                }
                // Behind this stage a token may be changed: each gram begins afresh.
                gram.clone_from(token);
                gram.text.push_str(&whole[self.ends[from]..self.ends[to]]);
                self.next.token(&mut gram);
            }
        }
        if preserve_original && count > max {
            token.text = whole;
            self.next.token(token);
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        // As in Lucene holes behind the last token are dropped.
        let cut = end.cut || self.allowance.is_exhausted();
        self.next.end(TextEnd { cut, positions: self.taken, ..end })
    }
}
