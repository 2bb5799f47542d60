//! The frames that were applied last, as their writers had them: who reads the change feed and keeps up decodes none.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_catalog::frame::{AppliedFrame, FrameNumber};

/// Frames that are kept.
pub(super) const MAX_FRAMES: usize = 4_096;

/// A bounded number of frames in their order; the first go when there are too many. Numbers may be missing.
#[derive(Debug)]
pub(super) struct RecentFrames {
    frames: VecDeque<(Arc<AppliedFrame>, usize)>,
    bytes: usize,
    max_bytes: usize,
}

impl RecentFrames {
    /// Begins without any; at most `max_bytes` are kept, and no frame that has more by itself.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, max_bytes }
    }

    /// Returns all, and keeps none.
    pub(super) fn clear(&mut self) -> VecDeque<(Arc<AppliedFrame>, usize)> {
        self.bytes = 0;
        std::mem::take(&mut self.frames)
    }

    /// Takes a frame in; returns what goes for it, to be freed without locks.
    pub(super) fn push(&mut self, frame: Arc<AppliedFrame>, bytes: usize) -> Vec<Arc<AppliedFrame>> {
        let mut gone = Vec::new();
        if bytes > self.max_bytes {
            gone.push(frame);
            return gone;
        }
        // Frames are applied almost in the order of their numbers.
        let at =
            self.frames.iter().rposition(|(other, _)| other.number < frame.number).map_or(0, |at| at + 1);
        self.frames.insert(at, (frame, bytes));
        self.bytes += bytes;
        while self.bytes > self.max_bytes || self.frames.len() > MAX_FRAMES {
            let Some((frame, bytes)) = self.frames.pop_front() else { break };
            self.bytes -= bytes;
            gone.push(frame);
        }
        gone
    }

    /// Returns the frames from `next` on that follow one another without a gap, below `end` and at most `most`.
    pub(super) fn from(&self, next: FrameNumber, end: FrameNumber, most: usize) -> Vec<Arc<AppliedFrame>> {
        let start = self.frames.partition_point(|(frame, _)| frame.number < next);
        let following = (next..end).zip(self.frames.iter().skip(start)).take(most);
        following
            .take_while(|(number, (frame, _))| frame.number == *number)
            .map(|(_, (f, _))| Arc::clone(f))
            .collect()
    }

    /// Counts frames and bytes.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.frames.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BYTES: usize = 64 << 10;

    #[test]
    fn frames_and_bytes_are_bounded_and_what_is_missing_ends_a_run() {
        let frame = |number| Arc::new(AppliedFrame { number, ..AppliedFrame::default() });
        let mut recent = RecentFrames::new(MAX_BYTES);
        // Applied in another order than that of their numbers.
        for number in [2, 1, 4, 3, 6] {
            assert!(recent.push(frame(number), 10).is_empty());
        }
        let numbers = |frames: Vec<Arc<AppliedFrame>>| frames.iter().map(|f| f.number).collect::<Vec<_>>();
        assert_eq!(numbers(recent.from(1, 100, 100)), [1, 2, 3, 4]);
        assert_eq!(numbers(recent.from(2, 4, 100)), [2, 3]);
        assert_eq!(numbers(recent.from(3, 100, 1)), [3]);
        assert!(recent.from(5, 100, 100).is_empty() && recent.from(0, 100, 100).is_empty());
        // The first go; one that is too large for all is not kept.
        assert_eq!(numbers(recent.push(frame(7), MAX_BYTES - 15)), [1, 2, 3, 4]);
        assert_eq!(recent.held(), (2, MAX_BYTES - 5));
        assert_eq!(numbers(recent.push(frame(8), MAX_BYTES + 1)), [8]);
        for number in 9..9 + 2 * MAX_FRAMES as u64 {
            recent.push(frame(number), 1);
        }
        assert_eq!(recent.held().0, MAX_FRAMES);
    }
}
