//! State that appenders, waiters and the writer thread share: frames on their way, and their progress.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_catalog::frame::{AppliedFrame, FrameNumber};
use millrace_runtime::sync::{Condvar, Mutex, Rank};
use millrace_runtime::{DurationHistogram, Error, Result};
use tokio::sync::watch;

use super::encoding::TIME_BYTES;
use super::recent::RecentFrames;
use super::record::RECORD_HEADER;

/// Time by which frames may be ahead of the clock, so that their times never go back: that of a clock that is set right.
/// What is further ahead comes of a clock that was wrong.
const MAX_AHEAD_MS: i64 = 5 * 60 * 1000;

/// A frame as bytes: room for the record's header, then the payload.
pub(super) struct EncodedFrame {
    pub(super) number: FrameNumber,
    pub(super) bytes: Vec<u8>,
    pub(super) payload_checksum: u32,
}

/// Frames in order between [`Queue::push`] and their fsync.
///
/// The queue itself has no bound: a push happens under shard locks, after documents were applied,
/// and must neither wait nor fail. What bounds it is the memory that writers reserve before they
/// take locks and give back when their frame is durable.
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    progress: watch::Sender<Progress>,
    /// Sent to whoever waits for frames to be applied.
    applications: watch::Sender<()>,
    /// Readers of the change feed.
    followers: AtomicUsize,
    /// Durations of syncs.
    pub(super) sync_time: DurationHistogram,
}

struct State {
    frames: VecDeque<EncodedFrame>,
    /// Bytes pushed and not yet durable.
    bytes: u64,
    next: FrameNumber,
    /// Frames that were pushed and whose effect is not in memory yet: one a writer.
    unapplied: BTreeSet<FrameNumber>,
    /// Time of the last frame.
    last_ms: i64,
    /// Frames that were applied last, while somebody follows.
    recent: RecentFrames,
    closing: bool,
    stopped: Option<Arc<str>>,
}

/// Progress of the log.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// All frames below this number are durable.
    pub(super) next: FrameNumber,
    /// `true` if the writer waits for room on the disk.
    pub(super) full: bool,
    /// Why nothing more will become durable.
    pub(super) stopped: Option<Arc<str>>,
}

impl Queue {
    /// Begins with the frame `next`, before which there is one of `last_ms`; keeps so many bytes of applied frames.
    pub(super) fn new(next: FrameNumber, last_ms: i64, recent_bytes: usize) -> Self {
        let state = State {
            frames: VecDeque::new(),
            bytes: 0,
            next,
            unapplied: BTreeSet::new(),
            last_ms,
            recent: RecentFrames::new(recent_bytes),
            closing: false,
            stopped: None,
        };
        Self {
            state: Mutex::new(Rank::LogQueue, state),
            wake: Condvar::default(),
            progress: watch::Sender::new(Progress { next, full: false, stopped: None }),
            applications: watch::Sender::new(()),
            followers: AtomicUsize::new(0),
            sync_time: DurationHistogram::default(),
        }
    }

    /// Numbers a frame, gives it its time and queues it. `payload_checksum` is that of the payload before the time, with
    /// which it ends; the time is `now_ms`, or that of the frame before where that is later, by five minutes at most: one
    /// append by a clock that is far ahead is not to give all that follow its time. It counts as unapplied until
    /// [`Queue::applied`]. Returns number and time.
    pub(super) fn push(
        &self,
        mut bytes: Vec<u8>,
        payload_checksum: u32,
        now_ms: i64,
    ) -> Result<(FrameNumber, i64)> {
        debug_assert!(bytes.len() >= RECORD_HEADER + TIME_BYTES, "room for header and time");
        let mut state = self.state.lock();
        state.check()?;
        let number = state.next;
        state.next += 1;
        state.bytes += bytes.len() as u64;
        state.unapplied.insert(number);
        let before_ms = state.last_ms;
        let is_ahead = before_ms.saturating_sub(now_ms) > MAX_AHEAD_MS;
        state.last_ms = if is_ahead { now_ms } else { before_ms.max(now_ms) };
        let time_ms = state.last_ms;
        let time = time_ms.to_le_bytes();
        let at = bytes.len() - TIME_BYTES;
        bytes[at..].copy_from_slice(&time);
        let payload_checksum = crc32c::crc32c_append(payload_checksum, &time);
        state.frames.push_back(EncodedFrame { number, bytes, payload_checksum });
        drop(state);
        self.wake.notify_one();
        if is_ahead {
            tracing::error!(
                frame = number,
                time_ms,
                before_ms,
                "the frame before is more than five minutes ahead of the clock: the time of frames goes back"
            );
        }
        Ok((number, time_ms))
    }

    /// Takes note that the effect of a frame is in memory, and what it was, for those who follow, with the bytes that it holds
    /// beside its own.
    pub(super) fn applied(&self, number: FrameNumber, frame: Option<(AppliedFrame, usize)>) {
        let frame = frame.map(|(frame, slack)| (frame.heap_bytes() + slack, Arc::new(frame)));
        let gone = {
            let mut state = self.state.lock();
            state.unapplied.remove(&number);
            match frame {
                // Asked under the lock: who was the last to follow has emptied it under the same.
                Some((bytes, frame)) if self.is_followed() => state.recent.push(frame, bytes),
                _ => Vec::new(),
            }
        };
        drop(gone);
        // Who subscribes looks at the state afterwards.
        if self.applications.receiver_count() > 0 {
            self.applications.send_replace(());
        }
    }

    /// Subscribes to the news that frames were applied.
    pub(super) fn applications(&self) -> watch::Receiver<()> {
        self.applications.subscribe()
    }

    /// Returns whether somebody reads the change feed.
    pub(super) fn is_followed(&self) -> bool {
        self.followers.load(Ordering::Acquire) > 0
    }

    /// Takes note of a reader.
    pub(super) fn follow(&self) {
        self.followers.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes note that a reader has gone.
    pub(super) fn unfollow(&self) {
        let mut state = self.state.lock();
        let last = self.followers.fetch_sub(1, Ordering::AcqRel) == 1;
        let gone = last.then(|| state.recent.clear());
        drop(state);
        drop(gone);
    }

    /// Returns frames from `next` on as their writers applied them, as far as they are durable.
    pub(super) fn recent(&self, next: FrameNumber, most: usize) -> Vec<Arc<AppliedFrame>> {
        let durable = self.next_durable();
        let state = self.state.lock();
        let end = state.unapplied.first().map_or(durable, |first| durable.min(*first));
        state.recent.from(next, end, most)
    }

    /// Counts the frames that are kept for readers, and their bytes.
    pub(super) fn recent_held(&self) -> (usize, usize) {
        self.state.lock().recent.held()
    }

    /// Number below which every frame is durable and its effect in memory.
    pub(super) fn applied_below(&self) -> FrameNumber {
        let durable = self.next_durable();
        #[cfg(test)]
        if millrace_runtime::sync::model::is(millrace_runtime::sync::model::Mutant::DurableIsApplied) {
            return durable;
        }
        self.state.lock().unapplied.first().map_or(durable, |first| durable.min(*first))
    }

    /// Number that the next frame will have.
    pub(super) fn next(&self) -> FrameNumber {
        self.state.lock().next
    }

    /// Bytes pushed and not yet durable, unless the log has stopped.
    pub(super) fn pending_bytes(&self) -> Result<u64> {
        let state = self.state.lock();
        state.check()?;
        Ok(state.bytes)
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Number of the first frame that is not durable.
    pub(super) fn next_durable(&self) -> FrameNumber {
        self.progress.borrow().next
    }

    /// Waits for frames and takes what there is, in order, up to about `max_bytes`. `None` once the
    /// log is closing and everything was taken.
    pub(super) fn take_group(&self, max_bytes: usize) -> Option<Vec<EncodedFrame>> {
        let mut state = self.state.lock();
        while state.frames.is_empty() {
            if state.closing {
                return None;
            }
            self.wake.wait(&mut state);
        }
        let mut bytes = 0;
        let fits = |frame: &&EncodedFrame| {
            let first = bytes == 0;
            bytes += frame.bytes.len();
            first || bytes <= max_bytes
        };
        let count = state.frames.iter().take_while(fits).count();
        Some(state.frames.drain(..count).collect())
    }

    /// Returns whether the writer has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.state.lock().frames.is_empty()
    }

    /// Records that all frames below `next`, `bytes` since the last call, are durable.
    pub(super) fn done(&self, next: FrameNumber, bytes: u64) {
        self.state.lock().bytes -= bytes;
        self.progress.send_modify(|progress| progress.next = next);
    }

    /// Notes whether the writer waits for room on the disk.
    pub(super) fn full(&self, full: bool) {
        self.progress.send_if_modified(|progress| full != std::mem::replace(&mut progress.full, full));
    }

    /// Waits a while for somebody to free space.
    ///
    /// # Errors
    /// The log is being closed: there is no more time to wait.
    pub(super) fn pause(&self, time: Duration) -> Result<()> {
        let mut state = self.state.lock();
        if !state.closing {
            self.wake.wait_for(&mut state, time);
        }
        if state.closing {
            return Err(Error::Stopped("the log was closed while the disk was full".to_owned()));
        }
        Ok(())
    }

    /// Lets the writer end once it has written everything.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.wake.notify_all();
    }

    /// Ends the log for good; the first cause given is the one that everybody is told.
    pub(super) fn stop(&self, cause: &str) {
        let mut state = self.state.lock();
        if state.stopped.is_some() {
            return;
        }
        let cause: Arc<str> = Arc::from(cause);
        state.stopped = Some(Arc::clone(&cause));
        state.frames.clear();
        drop(state);
        self.progress.send_modify(|progress| progress.stopped = Some(cause));
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.stopped {
            Some(cause) => Err(Error::Stopped(cause.to_string())),
            None if self.closing => Err(Error::Stopped("the log is closed".to_owned())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_for_a_clock_that_is_set_back_a_little_and_goes_back_with_one_that_was_wrong() {
        let bytes = || vec![0; RECORD_HEADER + TIME_BYTES];
        let start = 1_700_000_000_000;
        // The log ends with a frame of a clock that was a year ahead.
        let queue = Queue::new(5, start + 365 * 86_400_000, 1 << 10);
        let push = |now_ms| queue.push(bytes(), 0, now_ms).unwrap();
        assert_eq!(push(start), (5, start));
        assert_eq!(push(start - MAX_AHEAD_MS), (6, start));
        assert_eq!(push(i64::MAX), (7, i64::MAX));
        assert_eq!(push(start + 1), (8, start + 1));
        assert_eq!(push(start), (9, start + 1));
        let frames = queue.take_group(1 << 20).unwrap();
        let times = frames.iter().map(|frame| frame.bytes[RECORD_HEADER..].try_into().unwrap());
        let times: Vec<i64> = times.map(i64::from_le_bytes).collect();
        assert_eq!(times, [start, start, i64::MAX, start + 1, start + 1]);
        // Nothing is before the first frame of all.
        assert_eq!(Queue::new(1, i64::MIN, 0).push(bytes(), 0, start).unwrap(), (1, start));
    }
}
