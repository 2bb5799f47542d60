//! The change feed: every committed frame, in the log's order, to whoever reads.
//!
//! A reader names the frame at which it starts, and gets frames once they are durable and applied. Writers hand over what
//! they have applied while somebody reads ([`crate::wal::UnappliedFrame::hand_over`]); a bounded number of these frames is kept, so
//! a reader that keeps up decodes nothing. One that is further behind reads the log: a stretch at a time, which is decoded
//! once for all readers that come by ([`DecodedFrameCache`]). Beside that it holds a lease ([`super::leases`]), so that it falls behind
//! without holding up writers, and catches up without loss, within bounds: beyond them it is told of the gap.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_catalog::frame::{AppliedFrame, FrameNumber};
use millrace_runtime::{Error, Priority, Result};
use parking_lot::Mutex;

use super::{Engine, Inner};
use crate::wal::Wal;

/// Name of the pipeline under which readers of the feed keep their positions in the frames that they write: the source is the
/// name of the reader. No pipeline may move them.
pub const FEED_PIPELINE: &str = ".feed";

/// Bytes of frames that are decoded at a time.
const READ_BYTES: usize = 4 << 20;
/// Bytes of decoded stretches of the log that are kept for other readers.
const MAX_DECODED_BYTES: usize = 4 * READ_BYTES;
/// Frames that a reader takes at a time from those that writers have handed over.
const TAKEN: usize = 64;

/// Frames in order, without a gap.
type FrameRun = Arc<Vec<Arc<AppliedFrame>>>;

/// Stretches of the log that were decoded last, for all readers that are not past them. At the bound in bytes the oldest
/// go; one that has more by itself is not kept.
#[derive(Debug, Default)]
pub(super) struct DecodedFrameCache {
    /// Held while one is decoded: who waits for it mostly finds what it needs.
    decoding: tokio::sync::Mutex<()>,
    stretches: Mutex<FrameRuns>,
}

#[derive(Debug, Default)]
struct FrameRuns {
    kept: VecDeque<(FrameRun, usize)>,
    bytes: usize,
}

impl DecodedFrameCache {
    /// Finds the frames from `next` on.
    fn find(&self, next: FrameNumber) -> Option<Vec<Arc<AppliedFrame>>> {
        self.stretches.lock().kept.iter().find_map(|(stretch, _)| {
            let at = stretch.partition_point(|frame| frame.number < next);
            let frames = stretch.get(at..)?;
            frames.first().is_some_and(|frame| frame.number == next).then(|| frames.to_vec())
        })
    }

    fn keep(&self, stretch: FrameRun) {
        let bytes: usize = stretch.iter().map(|frame| frame.heap_bytes()).sum();
        if bytes > MAX_DECODED_BYTES {
            return;
        }
        let mut stretches = self.stretches.lock();
        stretches.kept.push_back((stretch, bytes));
        stretches.bytes += bytes;
        while stretches.bytes > MAX_DECODED_BYTES
            && let Some((_, bytes)) = stretches.kept.pop_front()
        {
            stretches.bytes -= bytes;
        }
    }

    fn is_empty(&self) -> bool {
        self.stretches.lock().kept.is_empty()
    }

    /// Lets stretches go that no reader will come by: all are at `least` or behind it. Without readers, all go.
    fn let_go(&self, least: Option<FrameNumber>) {
        let mut stretches = self.stretches.lock();
        let wanted =
            |stretch: &FrameRun| least.zip(stretch.last()).is_some_and(|(least, last)| last.number >= least);
        stretches.kept.retain(|(stretch, _)| wanted(stretch));
        stretches.bytes = stretches.kept.iter().map(|(_, bytes)| bytes).sum();
    }
}

/// Item of the feed.
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
    /// Returns the number that the next frame will have.
    ///
    /// # Errors
    /// The log is not open.
    pub fn next_frame(&self) -> Result<FrameNumber> {
        Ok(self.inner.wal()?.next_frame())
    }

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

    /// Returns the number below which every frame is durable and its effect in memory: those that readers of the feed can have.
    ///
    /// # Errors
    /// The log is not open.
    pub fn feed_end(&self) -> Result<FrameNumber> {
        Ok(self.inner.wal()?.applied_below())
    }

    /// Returns the time of a frame that is kept in memory for readers of the change feed.
    pub fn feed_time_ms(&self, frame: FrameNumber) -> Option<i64> {
        let kept = self.inner.wal().ok()?.recent(frame, 1);
        kept.first().map(|frame| frame.time_ms)
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
            self.let_go();
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

    /// Lets decoded frames go that all readers are past.
    fn let_go(&self) {
        let decoded = &self.inner.decoded;
        if !decoded.is_empty() {
            let least = self.inner.leases.lock().least_reader();
            decoded.let_go(least);
        }
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
        self.wal.unfollow();
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millrace_catalog::frame::{Op, ShardOps};

    use super::*;

    fn stretch(number: FrameNumber, bytes: usize) -> FrameRun {
        let op = Op {
            id: Bytes::new(),
            generated: false,
            created: true,
            version: 1,
            routing: None,
            source: Some(vec![0; bytes].into()),
        };
        let index = uuid::Uuid::nil();
        let part = ShardOps { index, shard: 0, primary_term: 1, first_seq_no: 0, ops: vec![op] };
        Arc::new(vec![Arc::new(AppliedFrame { number, parts: vec![part], ..AppliedFrame::default() })])
    }

    #[test]
    fn decoded_stretches_are_bounded_by_their_bytes_and_go_once_all_readers_are_past_them() {
        let decoded = DecodedFrameCache::default();
        let kept = || (1..9).filter(|number| decoded.find(*number).is_some()).collect::<Vec<_>>();
        for number in 1..=3 {
            decoded.keep(stretch(number, MAX_DECODED_BYTES / 3));
        }
        assert_eq!(kept(), [2, 3], "with what is beside the documents, three are too many");
        decoded.keep(stretch(4, MAX_DECODED_BYTES));
        assert_eq!(kept(), [2, 3], "one that is too large by itself is not kept");
        for number in 4..8 {
            decoded.keep(stretch(number, 100));
        }
        decoded.let_go(Some(4));
        assert_eq!(kept(), [4, 5, 6, 7]);
        assert!(decoded.stretches.lock().bytes < MAX_DECODED_BYTES / 3);
        decoded.let_go(None);
        assert!(kept().is_empty() && decoded.is_empty());
    }
}
