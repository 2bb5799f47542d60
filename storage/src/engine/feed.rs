//! The change feed: every committed frame, in the log's order, to whoever reads.
//!
//! A reader names the frame at which it starts, and gets frames once they are durable and applied. Writers hand over what
//! they have applied while somebody reads ([`crate::wal::Unapplied::hand_over`]); a bounded number of these frames is kept, so
//! a reader that keeps up decodes nothing. One that is further behind reads the log: a stretch at a time, which is decoded
//! once for all readers that come by ([`Decoded`]). Beside that it holds a lease ([`super::leases`]), so that it falls behind
//! without holding up writers, and catches up without loss, within bounds: beyond them it is told of the gap.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Engine, Inner};
use crate::wal::{AppliedFrame, FrameNumber, Wal};
use crate::{Error, Priority, Result};

/// Name of the pipeline under which readers of the feed keep their positions in the frames that they write: the source is the
/// name of the reader. No pipeline may move them.
pub const FEED_PIPELINE: &str = ".feed";

/// Bytes of frames that are decoded at a time.
const READ_BYTES: usize = 4 << 20;
/// Decoded stretches of the log that are kept for other readers.
const MAX_STRETCHES: usize = 4;
/// Frames that a reader takes at a time from those that writers have handed over.
const TAKEN: usize = 64;

/// Frames in order, without a gap.
type Stretch = Arc<Vec<Arc<AppliedFrame>>>;

/// Stretches of the log that were decoded last, for all readers.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// Held while one is decoded: who waits for it mostly finds what it needs.
    decoding: tokio::sync::Mutex<()>,
    stretches: Mutex<VecDeque<Stretch>>,
}

impl Decoded {
    /// Finds the frames from `next` on.
    fn find(&self, next: FrameNumber) -> Option<Vec<Arc<AppliedFrame>>> {
        self.stretches.lock().iter().find_map(|stretch| {
            let at = stretch.partition_point(|frame| frame.number < next);
            let frames = stretch.get(at..)?;
            frames.first().is_some_and(|frame| frame.number == next).then(|| frames.to_vec())
        })
    }

    fn keep(&self, stretch: Stretch) {
        let mut stretches = self.stretches.lock();
        stretches.push_back(stretch);
        if stretches.len() > MAX_STRETCHES {
            stretches.pop_front();
        }
    }
}

/// What a reader of the feed gets.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedItem {
    /// A committed frame.
    Frame(Arc<AppliedFrame>),
    /// Frames that are gone: the reader fell behind beyond its lease.
    Gap {
        /// First lost frame.
        from: FrameNumber,
        /// First frame that is there again.
        to: FrameNumber,
    },
}

/// A position in the change feed.
#[derive(Debug)]
pub struct FeedReader {
    inner: Arc<Inner>,
    wal: Arc<Wal>,
    lease: u64,
    next: FrameNumber,
    buffered: VecDeque<Arc<AppliedFrame>>,
}

impl Engine {
    /// Reads committed frames from `from` on; `None` starts with the next one.
    ///
    /// # Errors
    /// The log is not open.
    pub fn follow(&self, from: Option<FrameNumber>) -> Result<FeedReader> {
        let wal = Arc::clone(self.inner.wal()?);
        // First: the next frame is handed over already.
        wal.follow();
        let next = from.unwrap_or_else(|| wal.next_frame());
        let lease = self.inner.leases.lock().grant(next);
        let (inner, buffered) = (Arc::clone(&self.inner), VecDeque::new());
        Ok(FeedReader { inner, wal, lease, next, buffered })
    }

    /// Counts the frames that are kept in memory for readers of the change feed, and their bytes.
    pub fn feed_held(&self) -> (usize, usize) {
        self.inner.wal().map_or((0, 0), |wal| wal.recent_held())
    }
}

impl FeedReader {
    /// Returns the next frame once it is durable and its effect is in memory. Cancellation safe: a dropped call loses nothing.
    ///
    /// # Errors
    /// The log has stopped or cannot be read.
    pub async fn next(&mut self) -> Result<FeedItem> {
        loop {
            if let Some(frame) = self.buffered.pop_front() {
                if frame.number != self.next {
                    let (number, next) = (frame.number, self.next);
                    return Err(Error::Internal(format!("frame {number} was read for {next}")));
                }
                self.advance(self.next + 1);
                return Ok(FeedItem::Frame(frame));
            }
            self.buffered.extend(self.wal.recent(self.next, TAKEN));
            if !self.buffered.is_empty() {
                continue;
            }
            let first = self.first();
            if self.next < first {
                let gap = FeedItem::Gap { from: self.next, to: first };
                self.advance(first);
                return Ok(gap);
            }
            if self.wal.applied_below() <= self.next {
                self.wal.applied(self.next).await?;
                continue;
            }
            match self.decode().await {
                Ok(frames) => self.buffered.extend(frames),
                // The log was cut after the lease had lapsed: the next look tells the gap.
                Err(Error::IllegalArgument(_)) if self.next < self.first() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Number of the frame that comes next.
    pub fn position(&self) -> FrameNumber {
        self.next
    }

    /// Takes frames from the log, which has them.
    async fn decode(&self) -> Result<Vec<Arc<AppliedFrame>>> {
        let (decoded, next) = (&self.inner.decoded, self.next);
        let _one = decoded.decoding.lock().await;
        if let Some(frames) = decoded.find(next) {
            return Ok(frames);
        }
        let wal = Arc::clone(&self.wal);
        let end = wal.applied_below();
        let read = move || {
            let frames = wal.read(next, READ_BYTES)?.into_iter().take_while(|(number, _)| *number < end);
            Ok(frames.map(|(number, frame)| Arc::new(AppliedFrame::new(number, frame))).collect::<Vec<_>>())
        };
        let frames = self.inner.env().compute.run(Priority::Foreground, read).await?;
        if frames.is_empty() {
            return Err(Error::Internal(format!("frame {next} is durable but was not read")));
        }
        decoded.keep(Arc::new(frames.clone()));
        Ok(frames)
    }

    /// Number of the first frame that is there to stay.
    fn first(&self) -> FrameNumber {
        self.wal.first_frame().max(self.inner.leases.lock().removed_below())
    }

    fn advance(&mut self, next: FrameNumber) {
        self.next = next;
        self.inner.leases.lock().advance(self.lease, next);
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        self.inner.leases.lock().end(self.lease);
        if self.wal.unfollow() {
            self.inner.decoded.stretches.lock().clear();
        }
    }
}
