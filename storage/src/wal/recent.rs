//! The frames that were applied last, as their writers had them: who reads the change feed and keeps up decodes none.

use std::collections::VecDeque;
use std::sync::Arc;

use super::frame::{AppliedFrame, FrameNumber};

/// Frames that are kept.
pub(super) const MAX_FRAMES: usize = 4_096;
/// Bytes of frames that are kept; one frame that has more is not.
pub(super) const MAX_BYTES: usize = if cfg!(test) { 64 << 10 } else { 32 << 20 };

/// A bounded number of frames in their order; the first go when there are too many. Numbers may be missing.
#[derive(Debug, Default)]
pub(super) struct Recent {
    frames: VecDeque<(Arc<AppliedFrame>, usize)>,
    bytes: usize,
}

impl Recent {
    /// Takes a frame in; returns what goes for it, to be freed without locks.
    pub(super) fn push(&mut self, frame: Arc<AppliedFrame>, bytes: usize) -> Vec<Arc<AppliedFrame>> {
        let mut gone = Vec::new();
        if bytes > MAX_BYTES {
            gone.push(frame);
            return gone;
        }
        // Frames are applied almost in the order of their numbers.
        let at =
            self.frames.iter().rposition(|(other, _)| other.number < frame.number).map_or(0, |at| at + 1);
        self.frames.insert(at, (frame, bytes));
        self.bytes += bytes;
        while self.bytes > MAX_BYTES || self.frames.len() > MAX_FRAMES {
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
