//! The change feed: every committed frame, in the log's order, to whoever reads.
//!
//! A reader names the frame at which it starts and reads durable frames from the log. It holds a
//! *lease*: log files from its position on are kept, so that a slow reader falls behind without
//! holding up writers and catches up without loss. Leases are bounded: a reader more than
//! [`MAX_LEASE_LOGS`] times `storage.wal_max_bytes` behind loses its lease and is told of the gap.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{Engine, Inner};
use crate::wal::{Frame, FrameNumber, Wal};
use crate::{Config, Error, Priority, Result};

/// Size of the log, in multiples of its ordinary bound, beyond which leases end.
const MAX_LEASE_LOGS: u64 = 8;
/// Bytes of frames read at a time.
const READ_BYTES: usize = 4 << 20;

/// Positions that readers need the log from.
#[derive(Debug, Default)]
pub(super) struct Leases {
    next: u64,
    positions: HashMap<u64, FrameNumber>,
    /// Frames below this number are gone, or about to be.
    removed_below: FrameNumber,
}

impl Leases {
    /// Least position that still holds the log; ends the leases of readers that are too far behind.
    pub(super) fn least(&mut self, wal: &Wal, config: &Config) -> Option<FrameNumber> {
        let most = config.wal_max_bytes.saturating_mul(MAX_LEASE_LOGS);
        let before = self.positions.len();
        while let Some(least) = self.positions.values().copied().min()
            && wal.bytes_from(least) > most
        {
            self.positions.retain(|_, position| *position > least);
        }
        let ended = before - self.positions.len();
        if ended > 0 {
            tracing::warn!(readers = ended, "change feed readers fell too far behind, their leases end");
        }
        self.positions.values().copied().min()
    }

    /// Gives up the frames below `next`, which are about to be removed, unless a reader needs one of them. A
    /// lease that is granted later begins behind them.
    pub(super) fn give_up_below(&mut self, next: FrameNumber, wal: &Wal, config: &Config) -> bool {
        if self.least(wal, config).is_some_and(|least| least < next) {
            return false;
        }
        self.removed_below = self.removed_below.max(next);
        true
    }
}

/// What a reader of the feed gets.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedItem {
    /// A committed frame.
    Frame(FrameNumber, Frame),
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
    lease: u64,
    next: FrameNumber,
    buffered: VecDeque<(FrameNumber, Frame)>,
}

impl Engine {
    /// Reads committed frames from `from` on; `None` starts with the next one.
    ///
    /// # Errors
    /// The log is not open.
    pub fn read_changes(&self, from: Option<FrameNumber>) -> Result<FeedReader> {
        let next = match from {
            Some(from) => from,
            None => self.inner.wal()?.next_frame(),
        };
        let mut leases = self.inner.leases.lock();
        leases.next += 1;
        let lease = leases.next;
        let held = next.max(leases.removed_below);
        leases.positions.insert(lease, held);
        Ok(FeedReader { inner: Arc::clone(&self.inner), lease, next, buffered: VecDeque::new() })
    }
}

impl FeedReader {
    /// Returns the next frame once it is durable. Cancellation safe: a dropped call loses nothing.
    ///
    /// # Errors
    /// The log has stopped or cannot be read.
    pub async fn next(&mut self) -> Result<FeedItem> {
        while self.buffered.is_empty() {
            let wal = Arc::clone(self.inner.wal()?);
            let first = self.first(&wal);
            if self.next < first {
                let gap = FeedItem::Gap { from: self.next, to: first };
                self.advance(first);
                return Ok(gap);
            }
            wal.synced(self.next).await?;
            let from = self.next;
            let log = Arc::clone(&wal);
            let read =
                self.inner.env().compute.run(Priority::Foreground, move || log.read(from, READ_BYTES)).await;
            match read {
                Ok(frames) if !frames.is_empty() => self.buffered.extend(frames),
                Ok(_) => return Err(Error::Internal(format!("frame {from} is durable but was not read"))),
                // The log was cut after the lease had ended: the next look tells the gap.
                Err(Error::IllegalArgument(_)) if from < self.first(&wal) => {}
                Err(error) => return Err(error),
            }
        }
        match self.buffered.pop_front() {
            Some((number, frame)) if number == self.next => {
                self.advance(number + 1);
                Ok(FeedItem::Frame(number, frame))
            }
            Some((number, _)) => Err(Error::Internal(format!("frame {number} was read for {}", self.next))),
            None => Err(Error::Internal(format!("frame {} is durable but was not read", self.next))),
        }
    }

    /// Number of the frame that comes next.
    pub fn position(&self) -> FrameNumber {
        self.next
    }

    /// Number of the first frame that is there to stay.
    fn first(&self, wal: &Wal) -> FrameNumber {
        wal.first_frame().max(self.inner.leases.lock().removed_below)
    }

    fn advance(&mut self, next: FrameNumber) {
        self.next = next;
        // Also where the lease has ended: a reader that goes on has a new one from here.
        self.inner.leases.lock().positions.insert(self.lease, next);
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        self.inner.leases.lock().positions.remove(&self.lease);
    }
}
