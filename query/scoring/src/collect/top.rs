//! The best rows so far.

use std::collections::BinaryHeap;

use crate::Scorer;
use crate::collect::{Cursor, RowHit};

/// The best rows so far.
#[derive(Debug)]
pub struct Top {
    limit: usize,
    pub(super) by_score: bool,
    cursor: Option<Cursor>,
    /// Threshold that scores must exceed, where they order.
    least: f32,
    heap: BinaryHeap<RowHit>,
}

impl Top {
    /// Keeps `limit` rows: those of the best scores, or the first ones.
    pub fn new(limit: usize, by_score: bool, cursor: Option<Cursor>) -> Self {
        let heap = BinaryHeap::with_capacity(limit.min(10_000) + 1);
        Self { limit, by_score, cursor, least: f32::NEG_INFINITY, heap }
    }

    /// Keeps only rows whose scores exceed `least`, where they order.
    pub fn above(self, least: f32) -> Self {
        Self { least, ..self }
    }

    /// Returns whether a row at or behind the current one, of at most this score, could still enter.
    pub(super) fn open_for(&self, max_score: f32) -> bool {
        if self.by_score && max_score <= self.least {
            return false;
        }
        if self.heap.len() < self.limit {
            return self.limit > 0;
        }
        self.by_score && self.heap.peek().is_some_and(|worst| max_score > worst.score)
    }

    /// The score that a row must exceed to enter.
    fn threshold(&self) -> f32 {
        if !self.by_score || self.limit == 0 {
            return f32::NEG_INFINITY;
        }
        let worst = self.heap.peek().filter(|_| self.heap.len() >= self.limit);
        worst.map_or(self.least, |worst| worst.score)
    }

    /// Tells a scorer the risen threshold: rows that do not exceed `threshold` are not needed any more.
    pub(super) fn raise(&self, threshold: &mut f32, scorer: &mut (dyn Scorer + '_)) {
        let least = self.threshold();
        if least > *threshold {
            *threshold = least;
            scorer.raise_threshold(least);
        }
    }

    /// Keeps a row, if it is one of the best.
    pub(super) fn offer(&mut self, found: RowHit) {
        if self.by_score && found.score <= self.least {
            return;
        }
        if let Some(cursor) = &self.cursor
            && !cursor.passes(found.score, found.address)
        {
            return;
        }
        if self.heap.len() < self.limit {
            self.heap.push(found);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && found < *worst
        {
            *worst = found;
        }
    }

    /// First row of a segment that can enter.
    pub(super) fn start(&self, segment: u32) -> u32 {
        self.cursor.map_or(0, |cursor| cursor.start(segment))
    }

    /// Returns the rows, best first.
    pub fn into_sorted(self) -> Vec<RowHit> {
        self.heap.into_sorted_vec()
    }
}
