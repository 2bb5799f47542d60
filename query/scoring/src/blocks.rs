//! Bounds of a term's scores over runs of rows.

use std::collections::HashMap;

use millrace_segment::bundle::{Impact, TextIndex};

use crate::END;
use crate::bm25::Bm25;
use crate::reader::TextReader;

/// Pairs of a frequency and a length whose exact bounds are worth computing.
const MAX_EXACT: usize = 64;

/// Lists the lengths that rows may have, as norms tell them.
fn lengths() -> Vec<u32> {
    (0..=u8::MAX).map(TextIndex::decode_norm).collect()
}

/// The runs of a term with the bounds of its scores.
#[derive(Debug)]
pub(crate) struct Blocks {
    lasts: Vec<u32>,
    bounds: Vec<f32>,
    at: usize,
}

impl Blocks {
    /// Reads the runs of a term; `None` where they are not known.
    pub(crate) fn open(text: &dyn TextReader, term: &str, function: &Bm25) -> Option<Self> {
        // Without bounds all rows are visited: what cannot be read is found there.
        let impacts = text.impacts(term).ok().flatten()?;
        let average = text.impact_average();
        // The two are the same but for rounding, or of different rows.
        let own = function.average_length();
        let exact = ((average - own).abs() <= own * 1e-6).then(lengths);
        let mut known: HashMap<(u32, u32), f32> = HashMap::new();
        let mut bound = |impact: &Impact| match &exact {
            // Many rows score alike, so that much is left out only where bounds are exact.
            Some(lengths) if known.len() < MAX_EXACT || known.contains_key(&(impact.freq, impact.length)) => {
                *known
                    .entry((impact.freq, impact.length))
                    .or_insert_with(|| function.exact_bound(impact.freq, impact.length, lengths))
            }
            _ => function.bound(impact.freq, impact.length, average),
        };
        Some(Self {
            lasts: impacts.iter().map(|impact| impact.last.min(END)).collect(),
            bounds: impacts.iter().map(&mut bound).collect(),
            at: 0,
        })
    }

    /// Bounds the scores from `target` to a row, which is returned too. Targets never descend.
    pub(crate) fn bound(&mut self, target: u32) -> (f32, u32) {
        if self.lasts.get(self.at).is_some_and(|last| *last < target) {
            self.at += 1;
            if self.lasts.get(self.at).is_some_and(|last| *last < target) {
                self.at += self.lasts[self.at..].partition_point(|last| *last < target);
            }
        }
        match (self.bounds.get(self.at), self.lasts.get(self.at)) {
            (Some(bound), Some(last)) => (*bound, *last),
            _ => (0.0, END),
        }
    }

    /// Returns the first row at or behind `target` in a run whose bound exceeds `threshold`.
    pub(crate) fn next_above(&mut self, target: u32, threshold: f32) -> u32 {
        let (bound, _) = self.bound(target);
        if bound > threshold {
            return target;
        }
        while self.bounds.get(self.at).is_some_and(|bound| *bound <= threshold) {
            self.at += 1;
        }
        match self.at.checked_sub(1).and_then(|before| self.lasts.get(before)) {
            Some(last) if self.at < self.bounds.len() => last.saturating_add(1),
            _ => END,
        }
    }
}
