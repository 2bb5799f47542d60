//! Rows of a range over pages, one by one.

use std::sync::Arc;

use millrace_storage::segment::{PagedRange, WINDOW_ROWS, WindowBits};

use super::bits::{first_from, up_to};
use super::function_score::Failure;
use super::{END, Scorer};

/// The rows of a range; windows of them are evaluated as they are come to.
pub(crate) struct RangeScorer {
    range: Arc<PagedRange>,
    rows: u32,
    score: f32,
    doc: u32,
    window: Option<(u32, WindowBits)>,
    failure: Failure,
}

impl RangeScorer {
    /// Starts at the first row.
    pub(crate) fn new(range: Arc<PagedRange>, rows: u32, score: f32, failure: Failure) -> Self {
        let mut scorer = Self { range, rows, score, doc: 0, window: None, failure };
        scorer.seek_match(0);
        scorer
    }

    fn seek_match(&mut self, mut target: u32) -> u32 {
        self.doc = loop {
            let Some(next) = self.range.next(target).filter(|next| *next < self.rows) else { break END };
            let first = next - next % WINDOW_ROWS;
            let bits = match &self.window {
                Some((at, bits)) if *at == first => bits,
                _ => {
                    let mut bits = up_to(self.rows - first);
                    if let Err(error) = self.range.keep(first, &mut bits) {
                        self.failure.put(error.into());
                        break END;
                    }
                    &self.window.insert((first, bits)).1
                }
            };
            if let Some(found) = first_from(bits, next - first) {
                break first + found;
            }
            target = first.saturating_add(WINDOW_ROWS);
        };
        self.doc
    }
}

impl Scorer for RangeScorer {
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
        self.score
    }
    fn cost(&self) -> u64 {
        self.range.most_rows()
    }
}
