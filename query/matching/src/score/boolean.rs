//! Scorers that combine others: all of, at least so many of, without, with optional ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{BoxScorer, END, Scorer, bound_of};

/// Rows that every part matches; the part with the fewest rows leads, the others seek.
pub(crate) struct Conjunction<'a> {
    parts: Vec<BoxScorer<'a>>,
    doc: u32,
    /// What scores must exceed, and the last row for which that was found possible.
    threshold: f32,
    window: Option<u32>,
}

impl<'a> Conjunction<'a> {
    /// Starts at the first common row. There is at least one part.
    pub(crate) fn new(mut parts: Vec<BoxScorer<'a>>) -> Self {
        parts.sort_by_key(|part| part.cost());
        let mut conjunction = Self { parts, doc: END, threshold: f32::NEG_INFINITY, window: None };
        let first = conjunction.parts.first().map_or(END, |lead| lead.doc());
        conjunction.seek_match(first);
        conjunction
    }

    fn seek_match(&mut self, mut candidate: u32) -> u32 {
        'candidate: while candidate != END {
            if self.threshold > 0.0 && self.window.is_none_or(|last| candidate > last) {
                let (bound, last) = self.bound(candidate);
                self.window = Some(last);
                if bound <= self.threshold {
                    candidate = if last == END { END } else { self.parts[0].seek(last + 1) };
                    continue;
                }
            }
            for at in 0..self.parts.len() {
                let doc = self.parts[at].seek(candidate);
                if doc != candidate {
                    candidate = if at == 0 || doc == END { doc } else { self.parts[0].seek(doc) };
                    continue 'candidate;
                }
            }
            break;
        }
        self.doc = candidate;
        candidate
    }
}

impl Scorer for Conjunction<'_> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn advance(&mut self) -> u32 {
        if self.doc == END {
            return END;
        }
        let next = self.parts[0].advance();
        self.seek_match(next)
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target {
            return self.doc;
        }
        let next = self.parts[0].seek(target);
        self.seek_match(next)
    }
    fn score(&mut self) -> f32 {
        self.parts.iter_mut().map(|part| f64::from(part.score())).sum::<f64>() as f32
    }
    fn max_score(&self) -> f32 {
        self.parts.iter().map(|part| f64::from(part.max_score())).sum::<f64>() as f32
    }
    fn bound(&mut self, target: u32) -> (f32, u32) {
        let (mut sum, mut last) = (0.0, END);
        for part in &mut self.parts {
            let (bound, end) = part.bound(target);
            sum += f64::from(bound);
            last = last.min(end);
        }
        (bound_of(sum), last)
    }
    fn raise_threshold(&mut self, threshold: f32) {
        if threshold > self.threshold {
            self.threshold = threshold;
            self.window = None;
            // A part must bring what the others cannot.
            let total: f64 = self.parts.iter().map(|part| f64::from(part.max_score())).sum();
            for part in &mut self.parts {
                let own = f64::from(threshold) - (total - f64::from(part.max_score()));
                if own > 0.0 {
                    part.raise_threshold((own * 0.999_99) as f32);
                }
            }
        }
    }
    fn cost(&self) -> u64 {
        self.parts.first().map_or(0, |lead| lead.cost())
    }
}

/// Rows that at least so many parts match, whatever their scores make together.
pub(crate) struct Union<'a> {
    parts: Vec<BoxScorer<'a>>,
    required: usize,
    /// Parts that are ahead of the current row, least row first.
    ahead: BinaryHeap<Reverse<(u32, usize)>>,
    /// Parts that stand on the current row.
    here: Vec<usize>,
    doc: u32,
}

impl<'a> Union<'a> {
    /// Starts at the first row; `required` is at least 1.
    pub(crate) fn new(parts: Vec<BoxScorer<'a>>, required: usize) -> Self {
        let ahead = parts
            .iter()
            .enumerate()
            .filter(|(_, part)| part.doc() != END)
            .map(|(at, part)| Reverse((part.doc(), at)))
            .collect();
        let required = required.max(1);
        let mut union = Self { here: Vec::with_capacity(parts.len()), parts, required, ahead, doc: END };
        union.seek_match();
        union
    }

    /// Returns the current row.
    pub(crate) fn doc(&self) -> u32 {
        self.doc
    }

    /// Goes to the next row.
    pub(crate) fn advance(&mut self) -> u32 {
        if self.doc == END {
            return END;
        }
        self.leave(self.doc + 1);
        self.seek_match()
    }

    /// Goes to the first row at or behind `target`.
    pub(crate) fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target {
            return self.doc;
        }
        self.leave(target);
        while let Some(Reverse((doc, at))) = self.ahead.peek().copied()
            && doc < target
        {
            self.ahead.pop();
            let doc = self.parts[at].seek(target);
            if doc != END {
                self.ahead.push(Reverse((doc, at)));
            }
        }
        self.seek_match()
    }

    /// Calls `visit` with the parts that stand on the current row, in order.
    pub(crate) fn for_each_here(&mut self, mut visit: impl FnMut(&mut BoxScorer<'a>)) {
        self.here.sort_unstable();
        for at in &self.here {
            visit(&mut self.parts[*at]);
        }
    }

    /// Returns all parts.
    pub(crate) fn parts(&self) -> &[BoxScorer<'a>] {
        &self.parts
    }

    /// Takes the parts at the next row that enough of them share.
    fn seek_match(&mut self) -> u32 {
        loop {
            let Some(Reverse((doc, _))) = self.ahead.peek() else {
                self.doc = END;
                return END;
            };
            let doc = *doc;
            while let Some(Reverse((at_doc, at))) = self.ahead.peek().copied()
                && at_doc == doc
            {
                self.ahead.pop();
                self.here.push(at);
            }
            if self.here.len() >= self.required {
                self.doc = doc;
                return doc;
            }
            self.leave(doc + 1);
        }
    }

    /// Moves the parts of the current row to `target` or behind it.
    fn leave(&mut self, target: u32) {
        for at in self.here.drain(..) {
            let doc = self.parts[at].seek(target);
            if doc != END {
                self.ahead.push(Reverse((doc, at)));
            }
        }
    }
}

/// Rows that at least so many parts match; the scores of those that do add up.
pub(crate) struct Disjunction<'a> {
    union: Union<'a>,
}

impl<'a> Disjunction<'a> {
    /// Starts at the first row; `required` is at least 1.
    pub(crate) fn new(parts: Vec<BoxScorer<'a>>, required: usize) -> Self {
        Self { union: Union::new(parts, required) }
    }
}

impl Scorer for Disjunction<'_> {
    fn doc(&self) -> u32 {
        self.union.doc()
    }
    fn advance(&mut self) -> u32 {
        self.union.advance()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.union.seek(target)
    }
    fn score(&mut self) -> f32 {
        let mut sum = 0.0;
        self.union.for_each_here(|part| sum += f64::from(part.score()));
        sum as f32
    }
    fn max_score(&self) -> f32 {
        self.union.parts().iter().map(|part| f64::from(part.max_score())).sum::<f64>() as f32
    }
    fn cost(&self) -> u64 {
        self.union.parts().iter().map(|part| part.cost()).sum()
    }
}

/// Rows of one scorer that another does not match.
pub(crate) struct Exclusion<'a> {
    base: BoxScorer<'a>,
    excluded: BoxScorer<'a>,
}

impl<'a> Exclusion<'a> {
    /// Starts at the first row that is left.
    pub(crate) fn new(base: BoxScorer<'a>, excluded: BoxScorer<'a>) -> Self {
        let mut exclusion = Self { base, excluded };
        exclusion.seek_match();
        exclusion
    }

    fn seek_match(&mut self) -> u32 {
        let mut doc = self.base.doc();
        while doc != END && self.excluded.seek(doc) == doc {
            doc = self.base.advance();
        }
        doc
    }
}

impl Scorer for Exclusion<'_> {
    fn doc(&self) -> u32 {
        self.base.doc()
    }
    fn advance(&mut self) -> u32 {
        self.base.advance();
        self.seek_match()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.base.seek(target);
        self.seek_match()
    }
    fn score(&mut self) -> f32 {
        self.base.score()
    }
    fn max_score(&self) -> f32 {
        self.base.max_score()
    }
    fn bound(&mut self, target: u32) -> (f32, u32) {
        self.base.bound(target)
    }
    fn raise_threshold(&mut self, threshold: f32) {
        self.base.raise_threshold(threshold);
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}

/// Rows of one scorer; another adds to the score where it matches too.
pub(crate) struct Optional<'a> {
    base: BoxScorer<'a>,
    extra: BoxScorer<'a>,
}

impl<'a> Optional<'a> {
    /// Starts at the first row of `base`.
    pub(crate) fn new(base: BoxScorer<'a>, extra: BoxScorer<'a>) -> Self {
        Self { base, extra }
    }
}

impl Scorer for Optional<'_> {
    fn doc(&self) -> u32 {
        self.base.doc()
    }
    fn advance(&mut self) -> u32 {
        self.base.advance()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.base.seek(target)
    }
    fn score(&mut self) -> f32 {
        let score = self.base.score();
        let doc = self.base.doc();
        if self.extra.seek(doc) == doc { score + self.extra.score() } else { score }
    }
    fn max_score(&self) -> f32 {
        self.base.max_score() + self.extra.max_score()
    }
    fn raise_threshold(&mut self, threshold: f32) {
        let own = threshold - self.extra.max_score();
        if own > 0.0 {
            self.base.raise_threshold(own * 0.999_99);
        }
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}

/// Rows of a scorer with one score.
pub(crate) struct Flat<'a> {
    base: BoxScorer<'a>,
    score: f32,
}

impl<'a> Flat<'a> {
    /// Replaces the scores of `base`.
    pub(crate) fn new(base: BoxScorer<'a>, score: f32) -> Self {
        Self { base, score }
    }
}

impl Scorer for Flat<'_> {
    fn doc(&self) -> u32 {
        self.base.doc()
    }
    fn advance(&mut self) -> u32 {
        self.base.advance()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.base.seek(target)
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.score
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}

/// Rows of a scorer whose scores, times a factor, reach a least score.
pub(crate) struct Scaled<'a> {
    base: BoxScorer<'a>,
    factor: f32,
    least: Option<f32>,
}

impl<'a> Scaled<'a> {
    /// Starts at the first row of `base` that reaches `least`.
    pub(crate) fn new(base: BoxScorer<'a>, factor: f32, least: Option<f32>) -> Self {
        let mut scaled = Self { base, factor, least };
        scaled.seek_match();
        scaled
    }

    fn seek_match(&mut self) -> u32 {
        let mut doc = self.base.doc();
        if let Some(least) = self.least {
            while doc != END && self.base.score() * self.factor < least {
                doc = self.base.advance();
            }
        }
        doc
    }
}

impl Scorer for Scaled<'_> {
    fn doc(&self) -> u32 {
        self.base.doc()
    }
    fn advance(&mut self) -> u32 {
        self.base.advance();
        self.seek_match()
    }
    fn seek(&mut self, target: u32) -> u32 {
        self.base.seek(target);
        self.seek_match()
    }
    fn score(&mut self) -> f32 {
        self.base.score() * self.factor
    }
    fn max_score(&self) -> f32 {
        self.base.max_score() * self.factor
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}
