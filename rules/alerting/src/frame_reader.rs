//! Frames read back from what is stored, in steps that rules are asked of at once.
//!
//! A large frame comes in pieces, which rules take until the last of them is there: of the last frame of a step it is not known
//! whether more of it follows before the next one is read, so a step is always one frame ahead.

use std::ops::Range;
use std::sync::Arc;

use millrace_catalog::frame::AppliedFrame;
use millrace_engine::ReadBack;
use millrace_runtime::Result;

/// Documents of a step, about, and their bytes.
const STEP_ROWS: usize = 10_000;
const STEP_BYTES: usize = 8 << 20;

/// Frames on their way.
pub(crate) struct FrameReader {
    reading: ReadBack,
    times: Range<i64>,
    /// The first of the next step.
    ahead: Option<Arc<AppliedFrame>>,
}

/// Frames that follow one another.
pub(crate) struct Step {
    pub(crate) frames: Vec<Arc<AppliedFrame>>,
    /// The frame that follows on them.
    pub(crate) follows: Option<u64>,
    /// Number of documents that they have.
    pub(crate) rows: usize,
}

impl Step {
    /// Whole frames, as they come while they are written.
    pub(crate) fn new(frames: Vec<Arc<AppliedFrame>>) -> Self {
        let rows = frames.iter().map(|frame| rows_of(frame)).sum();
        Self { frames, follows: None, rows }
    }

    /// Returns the last of them.
    pub(crate) fn last(mut self, count: usize) -> Self {
        let frames = self.frames.split_off(self.frames.len().saturating_sub(count));
        Self { follows: self.follows, ..Self::new(frames) }
    }

    /// Returns whether no piece follows on the frame or piece at a place.
    pub(crate) fn completes(&self, at: usize) -> bool {
        let next = self.frames.get(at + 1).map(|frame| frame.number).or(self.follows);
        self.frames.get(at).is_none_or(|frame| next != Some(frame.number))
    }
}

/// Counts the operations of a frame.
pub(crate) fn rows_of(frame: &AppliedFrame) -> usize {
    frame.parts.iter().map(|part| part.ops.len()).sum()
}

/// Counts the bytes of their ids and sources.
pub(crate) fn bytes_of(frame: &AppliedFrame) -> usize {
    let ops = frame.parts.iter().flat_map(|part| &part.ops);
    ops.map(|op| op.id.len() + op.source.as_ref().map_or(0, bytes::Bytes::len)).sum()
}

impl FrameReader {
    /// Begins with what a reading has of some times.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn begin(reading: ReadBack, times: Range<i64>) -> Result<Self> {
        let mut begun = Self { reading, times, ahead: None };
        begun.ahead = begun.next_frame().await?;
        Ok(begun)
    }

    /// Time of the first frame that was not returned yet.
    pub(crate) fn first(&self) -> Option<i64> {
        self.ahead.as_ref().map(|frame| frame.time_ms)
    }

    /// Number of the first frame that is not among those that are read.
    pub(crate) fn end(&self) -> u64 {
        self.reading.end()
    }

    /// Counts operations that have no row; 0 before everything was read, and where rows are chosen.
    pub(crate) fn missing(&self) -> u64 {
        self.reading.missing().unwrap_or_default().iter().map(|missing| missing.count).sum()
    }

    /// Returns the next step; `None` at the end.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn next(&mut self) -> Result<Option<Step>> {
        let Some(first) = self.ahead.take() else { return Ok(None) };
        let (mut frames, mut rows, mut bytes) = (Vec::new(), 0, 0);
        let mut next = Some(first);
        while let Some(frame) = next {
            rows += rows_of(&frame);
            bytes += bytes_of(&frame);
            frames.push(frame);
            next = self.next_frame().await?;
            if rows >= STEP_ROWS || bytes >= STEP_BYTES {
                break;
            }
        }
        self.ahead = next;
        Ok(Some(Step { follows: self.ahead.as_ref().map(|frame| frame.number), frames, rows }))
    }

    async fn next_frame(&mut self) -> Result<Option<Arc<AppliedFrame>>> {
        loop {
            match self.reading.next().await? {
                Some(frame) if !self.times.contains(&frame.time_ms) => {}
                next => return Ok(next),
            }
        }
    }
}
