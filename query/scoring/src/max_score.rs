//! Any of several parts, without visiting rows that cannot score enough.
//!
//! Rows are taken window by window, in which each part's scores have one bound. Once there is a threshold,
//! the parts that even together cannot pass it need not be looked at for themselves: candidates come
//! from the others alone, and are dropped as soon as what is still missing cannot lift them over the
//! threshold. This is the MaxScore algorithm with the bounds of blocks.

use crate::{BoxScorer, END, Scorer, bound_of, may_exceed};

/// Most parts that are ranked by how much each can add.
pub(super) const MAX_RANKED: usize = 24;

/// Least number of rows for which it is worth to leave a part out.
const LEAST_GAP: u32 = 4_096;

/// The rows that any part matches; the scores of those that do add up.
pub(crate) struct MaxScore<'a> {
    parts: Vec<ScoredClause<'a>>,
    /// Parts from here on bring candidates; they are sorted by their bounds in the window.
    first: usize,
    /// Last row of the window; none is open where absent.
    window: Option<u32>,
    threshold: f32,
    doc: u32,
    score: f32,
}

struct ScoredClause<'a> {
    scorer: BoxScorer<'a>,
    /// Bound of its scores in the window.
    bound: f64,
    /// Bound of the scores of it and all before it.
    sum: f64,
    /// Original position of the part, so that scores always add up in one order.
    place: usize,
    /// Its score of the current row; 0 where it does not match.
    score: f32,
}

impl<'a> MaxScore<'a> {
    /// Starts at the first row.
    pub(crate) fn new(scorers: Vec<BoxScorer<'a>>) -> Self {
        let part = |(place, scorer)| ScoredClause { scorer, bound: 0.0, sum: 0.0, place, score: 0.0 };
        let parts: Vec<ScoredClause<'a>> = scorers.into_iter().enumerate().map(part).collect();
        let mut whole =
            Self { parts, first: 0, window: None, threshold: f32::NEG_INFINITY, doc: END, score: 0.0 };
        whole.seek_match(0);
        whole
    }

    /// Opens the window that begins at `target`; returns whether any of its rows can pass the threshold.
    fn open_window(&mut self, target: u32) -> bool {
        let mut last = END;
        for part in &mut self.parts {
            let (bound, end) = match part.scorer.doc() {
                END => (0.0, END),
                // Until it comes to its next row a part adds nothing. Small windows are not worth it.
                ahead if ahead > target.saturating_add(LEAST_GAP) => (0.0, ahead - 1),
                _ => part.scorer.bound(target),
            };
            part.bound = f64::from(bound);
            last = last.min(end);
        }
        self.window = Some(last);
        self.parts.sort_by(|a, b| a.bound.total_cmp(&b.bound));
        let mut sum = 0.0;
        for part in &mut self.parts {
            sum += part.bound;
            part.sum = sum;
        }
        let threshold = self.threshold;
        self.first = self.parts.iter().take_while(|part| !may_exceed(part.sum, threshold)).count();
        self.first < self.parts.len()
    }

    fn seek_match(&mut self, mut target: u32) -> u32 {
        loop {
            if target == END {
                self.doc = END;
                return END;
            }
            if self.threshold > 0.0
                && self.window.is_none_or(|last| target > last)
                && !self.open_window(target)
            {
                target = self.behind_window();
                continue;
            }
            let mut doc = END;
            for part in &mut self.parts[self.first..] {
                doc = doc.min(part.scorer.seek(target));
            }
            if self.window.is_some_and(|last| doc > last) {
                target = self.behind_window();
                continue;
            }
            if doc == END {
                self.doc = END;
                return END;
            }
            if self.collect(doc) {
                self.doc = doc;
                return doc;
            }
            target = doc + 1;
        }
    }

    fn behind_window(&self) -> u32 {
        match self.window {
            Some(last) if last < END => last + 1,
            _ => END,
        }
    }

    /// Scores a candidate; tells whether it passes the threshold.
    fn collect(&mut self, doc: u32) -> bool {
        let mut sum = 0.0;
        let (optional, essential) = self.parts.split_at_mut(self.first);
        for part in essential {
            let here = part.scorer.doc() == doc;
            part.score = if here { part.scorer.score() } else { 0.0 };
            sum += f64::from(part.score);
        }
        optional.iter_mut().for_each(|part| part.score = 0.0);
        for part in optional.iter_mut().rev() {
            if !may_exceed(sum + part.sum, self.threshold) {
                return false;
            }
            if part.scorer.seek(doc) == doc {
                part.score = part.scorer.score();
                sum += f64::from(part.score);
            }
        }
        self.parts_in_order();
        self.score > self.threshold
    }

    /// Adds up the scores in the order in which the parts came.
    fn parts_in_order(&mut self) {
        let mut scores = [0.0f32; MAX_RANKED];
        for part in &self.parts {
            if let Some(score) = scores.get_mut(part.place) {
                *score = part.score;
            }
        }
        self.score = scores.iter().take(self.parts.len()).map(|score| f64::from(*score)).sum::<f64>() as f32;
    }
}

impl Scorer for MaxScore<'_> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target { self.doc } else { self.seek_match(target) }
    }
    fn score(&mut self) -> f32 {
        self.score
    }
    fn max_score(&self) -> f32 {
        self.parts.iter().map(|part| f64::from(part.scorer.max_score())).sum::<f64>() as f32
    }
    fn bound(&mut self, target: u32) -> (f32, u32) {
        let (mut sum, mut last) = (0.0, END);
        for part in &mut self.parts {
            let (bound, end) = part.scorer.bound(target.max(part.scorer.doc()));
            sum += f64::from(bound);
            last = last.min(end);
        }
        (bound_of(sum), last)
    }
    fn raise_threshold(&mut self, threshold: f32) {
        if threshold > self.threshold {
            self.threshold = threshold;
            // The next step opens a window of its own.
            self.window = None;
        }
    }
    fn cost(&self) -> u64 {
        self.parts.iter().map(|part| part.scorer.cost()).sum()
    }
}
