//! [`Wal`]: the log as the engine sees it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{AppliedFrame, Frame, FrameNumber, ShardOps};
use millrace_runtime::disk::{self, Disk, Space};
use millrace_runtime::sync::{self, Thread};
use millrace_runtime::{Error, HistogramSnapshot, Result};
use parking_lot::Mutex;

use super::encoding::{self, TIME_BYTES};
use super::files::{Files, LogFile, corrupt};
use super::progress::ReplayProgress;
use super::queue::Queue;
use super::record::{self, Fault, Kind, RECORD_HEADER};
use super::recovery;
use super::writer::{ROOM, Writer};
use crate::Config;

/// Bytes of applied frames that are kept for readers of the change feed, at most.
const MAX_RECENT_BYTES: usize = 32 << 20;
/// Greatest payload of one frame.
const FRAME_BYTES: usize = 1 << 30;
/// Least size at which a file is long enough; the unit tests' is one frame's, so that there are many files.
const LEAST_FILE_BYTES: u64 = if cfg!(test) { 1 } else { 1 << 16 };
/// Bytes that [`Wal::read`] asks of the disk at once, beyond what its caller wants.
/// The unit tests' is so short that reads end within records.
const READ_AHEAD: usize = if cfg!(test) { 300 } else { 512 << 10 };

/// Shape of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes after which a new file is begun.
    pub file_bytes: u64,
    /// Bytes of applied frames that are kept for readers of the change feed.
    pub recent_bytes: usize,
}

impl Options {
    /// Derives them from the store's configuration: files of 64 MB and 32 MB for readers, less where the whole
    /// log is to be small.
    pub fn from_config(config: &Config) -> Self {
        let file_bytes = (config.wal_max_bytes / 8).clamp(LEAST_FILE_BYTES, 64 << 20);
        // Who keeps up is never so far behind that the log is large.
        let recent_bytes =
            usize::try_from(config.wal_max_bytes / 8).unwrap_or(usize::MAX).min(MAX_RECENT_BYTES);
        Self { file_bytes, recent_bytes }
    }
}

/// A frame as the log keeps it, but for its number and time.
#[derive(Debug)]
pub struct EncodedFrame {
    time_ms: i64,
    origin: Origin,
    bytes: Vec<u8>,
    /// Of the payload before the time.
    payload_checksum: u32,
}

/// A frame that is in the log and whose effect is not in memory yet. The log is not cut at it or behind it until
/// [`UnappliedFrame::applied`]; one that is dropped before holds it for ever, as what is not in memory is in the log alone.
#[must_use = "the log is not cut until the frame is applied"]
pub struct UnappliedFrame {
    number: FrameNumber,
    time_ms: i64,
    origin: Origin,
    queue: Arc<Queue>,
}

impl fmt::Debug for UnappliedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unapplied").field(&self.number).finish()
    }
}

impl UnappliedFrame {
    /// Number of the frame.
    pub fn number(&self) -> FrameNumber {
        self.number
    }

    /// Time of the frame.
    pub fn time_ms(&self) -> i64 {
        self.time_ms
    }

    /// Returns true if somebody reads the change feed, so that [`UnappliedFrame::hand_over`] is worth its while.
    pub fn is_followed(&self) -> bool {
        self.queue.is_followed()
    }

    /// Takes note that the frame's effect is in memory, and returns its number.
    pub fn applied(self) -> FrameNumber {
        self.queue.applied(self.number, None);
        self.number
    }

    /// Does what [`UnappliedFrame::applied`] does, and hands the frame's operations, all of them, to the readers of the change
    /// feed, which get them once the frame is durable. Their buffers have `slack` bytes beyond what the operations are, which
    /// who keeps these keeps as well.
    pub fn hand_over(self, parts: Vec<ShardOps>, slack: usize) -> FrameNumber {
        let Self { number, time_ms, origin, queue } = self;
        queue.applied(number, Some((AppliedFrame { number, time_ms, origin, parts }, slack)));
        number
    }
}

/// The log. All calls but [`Wal::synced`] are synchronous; those that touch files say so.
pub struct Wal {
    disk: Arc<dyn Disk>,
    files: Arc<Files>,
    queue: Arc<Queue>,
    options: Options,
    writer: Mutex<Option<Thread>>,
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal")
            .field("files", &self.files)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Wal {
    /// Opens the log in `dir`, handing every intact frame in order to `replay`. A torn tail is cut
    /// with a log line. What was replayed is durable once this returns. All frames below `known` are
    /// known to have been durable: a log that ends before is not the one that belongs here. `progress` tells others how
    /// far it is. Blocks.
    ///
    /// # Errors
    /// Damage is [`Error::Corrupt`] with file and offset; then nothing was changed. Errors of
    /// `replay` and of the disk end the opening.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: &Config,
        known: FrameNumber,
        progress: &ReplayProgress,
        replay: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
    ) -> Result<Self> {
        Self::open_from(disk, dir, Options::from_config(config), known, progress, replay)
    }

    /// Opens the log with a shape of its own; see [`Wal::open`].
    ///
    /// # Errors
    /// As for [`Wal::open`].
    pub fn open_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
        replay: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
    ) -> Result<Self> {
        Self::open_from(disk, dir, options, 0, &ReplayProgress::default(), replay)
    }

    fn open_from(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
        known: FrameNumber,
        progress: &ReplayProgress,
        replay: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
    ) -> Result<Self> {
        disk.create_dir_all(dir)?;
        let recovered = recovery::recover(&*disk, dir, progress, replay)?;
        if recovered.next < known {
            let reason = format!(
                "the log ends before frame {}, the catalog knows of frames up to {}: log files are missing",
                recovered.next,
                known - 1
            );
            let newest = recovered.files.last();
            let (file, offset) = newest.map_or((dir, 0), |file| (file.path.as_path(), file.len));
            return Err(corrupt(file, offset, reason));
        }
        let files = Arc::new(Files::new(dir, recovered.files));
        let queue = Arc::new(Queue::new(recovered.next, recovered.last_ms, options.recent_bytes));
        let writer = Writer::new(
            Arc::clone(&disk),
            Arc::clone(&files),
            Arc::clone(&queue),
            options.file_bytes,
            recovered.next,
        )?;
        let thread = sync::spawn_thread("wal-writer".to_owned(), None, move || writer.run())
            .map_err(|error| Error::io("start the writer of", dir, error))?;
        Ok(Self { disk, files, queue, options, writer: Mutex::new(Some(thread)) })
    }

    /// Returns the durations of syncs.
    pub(crate) fn sync_time(&self) -> HistogramSnapshot {
        self.queue.sync_time.snapshot()
    }

    /// Says whether the disk has room for `bytes` of frames. To be asked before shard locks are
    /// taken and documents are applied: [`Wal::append`] itself never refuses for want of room. Costs
    /// one `statvfs`.
    ///
    /// # Errors
    /// [`Error::Rejected`] while the disk is full (a reserve is kept for flushes and for frames
    /// accepted already), which passes by itself.
    /// [`Error::Stopped`] after a failed fsync or [`Wal::close`].
    pub fn admit(&self, bytes: u64) -> Result<()> {
        let pending = self.queue.pending_bytes()?;
        let space = self.disk.space(self.files.dir())?;
        let needed = reserve(space).saturating_add(pending).saturating_add(bytes);
        if space.free < needed {
            return Err(Error::Rejected(format!(
                "disk full: [{}] has {} bytes free and needs {needed}; writing resumes when there is space",
                self.files.dir().display(),
                space.free,
            )));
        }
        Ok(())
    }

    /// Appends a frame; its time becomes that of the frame before where that is later, by five minutes at most. Cheap and synchronous, meant to be called under shard locks: the order of
    /// calls is the order of the log. It is durable once [`Wal::synced`] returns. Frames are held
    /// in memory until then: the bound on unflushed documents, which callers keep, bounds them too.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a frame over 1 GiB, [`Error::Stopped`] when the log has stopped. Then
    /// the frame has no number and will not be in the log.
    pub fn append(&self, frame: &Frame) -> Result<UnappliedFrame> {
        self.append_encoded(self.encode(frame)?)
    }

    /// Encodes a frame for [`Wal::append_encoded`], outside of the locks that order it.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a frame over 1 GiB.
    pub fn encode(&self, frame: &Frame) -> Result<EncodedFrame> {
        let length = encoding::encoded_len(frame);
        if length > FRAME_BYTES {
            return Err(Error::TooLarge(format!(
                "a write of {length} bytes exceeds the log's {FRAME_BYTES}"
            )));
        }
        let mut bytes = Vec::with_capacity(RECORD_HEADER + length);
        bytes.extend_from_slice(&ROOM);
        encoding::encode(frame, &mut bytes);
        let payload_checksum = crc32c::crc32c(&bytes[RECORD_HEADER..bytes.len() - TIME_BYTES]);
        Ok(EncodedFrame { time_ms: frame.time_ms, origin: frame.origin, bytes, payload_checksum })
    }

    /// Appends a frame that was encoded before; see [`Wal::append`].
    ///
    /// # Errors
    /// [`Error::Stopped`] when the log has stopped.
    pub fn append_encoded(&self, frame: EncodedFrame) -> Result<UnappliedFrame> {
        let EncodedFrame { time_ms, origin, bytes, payload_checksum } = frame;
        let (number, time_ms) = self.queue.push(bytes, payload_checksum, time_ms)?;
        Ok(UnappliedFrame { number, time_ms, origin, queue: Arc::clone(&self.queue) })
    }

    /// Waits until the frame and all before it are fsynced; also for a frame that is yet to be
    /// appended. Cancellation safe.
    ///
    /// # Errors
    /// [`Error::Stopped`] names the cause: a failed write or fsync stops the log for good.
    pub async fn synced(&self, frame: FrameNumber) -> Result<()> {
        let mut progress = self.queue.progress();
        let decided = progress.wait_for(|now| now.next > frame || now.stopped.is_some()).await;
        let stopped = |cause: &str| Err(Error::Stopped(cause.to_owned()));
        match decided {
            Ok(now) if now.next > frame => Ok(()),
            Ok(now) => stopped(now.stopped.as_deref().unwrap_or("the log is closed")),
            Err(_) => stopped("the log is closed"),
        }
    }

    /// Tells why the log has stopped, if it has: then nothing is written until the server starts again.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.queue.progress().borrow().stopped.as_deref().map(str::to_owned)
    }

    /// Waits as [`Wal::synced`] does, but not for room on the disk: false while the log's writer waits for that.
    /// Cancellation safe.
    ///
    /// # Errors
    /// As [`Wal::synced`].
    pub async fn synced_unless_full(&self, frame: FrameNumber) -> Result<bool> {
        let mut progress = self.queue.progress();
        let full = progress
            .wait_for(|now| now.next > frame || now.full || now.stopped.is_some())
            .await
            .is_ok_and(|now| now.next <= frame && now.stopped.is_none());
        if full {
            return Ok(false);
        }
        self.synced(frame).await.map(|()| true)
    }

    /// Waits until the frame and all before it are fsynced and their effect is in memory. Cancellation safe.
    ///
    /// # Errors
    /// As [`Wal::synced`].
    pub async fn applied(&self, frame: FrameNumber) -> Result<()> {
        self.synced(frame).await?;
        let mut applications = self.queue.applications();
        while self.applied_below() <= frame {
            // The sender is the queue's, so it cannot be gone.
            let _ = applications.changed().await;
        }
        Ok(())
    }

    /// Takes note of a reader of the change feed: from now on writers hand over what they apply.
    pub(crate) fn follow(&self) {
        self.queue.follow();
    }

    /// Takes note that a reader has gone.
    pub(crate) fn unfollow(&self) {
        self.queue.unfollow();
    }

    /// Returns frames from `from` on that are durable and applied, at most `most`, without decoding any; empty where the
    /// first is not among those that are kept.
    pub(crate) fn recent(&self, from: FrameNumber, most: usize) -> Vec<Arc<AppliedFrame>> {
        self.queue.recent(from, most)
    }

    /// Counts the frames that are kept for readers of the change feed, and their bytes.
    pub(crate) fn recent_held(&self) -> (usize, usize) {
        self.queue.recent_held()
    }

    /// Removes the oldest file if all its frames are below `frame` and it is not the newest one. The removal is
    /// durable when it returns, so that a crash never leaves a gap. Blocks.
    ///
    /// # Errors
    /// The disk's; then the file may be there or not.
    pub fn remove_oldest(&self, frame: FrameNumber) -> Result<()> {
        self.files.remove_oldest(&*self.disk, frame)
    }

    /// Number of the first frame behind the oldest file, where [`Wal::remove_oldest`] would remove that.
    pub fn oldest_removable(&self, frame: FrameNumber) -> Option<FrameNumber> {
        self.files.oldest_removable(frame).map(|(_, next)| next)
    }

    /// Number of the first frame that is left when [`Wal::remove_oldest`] has removed all that it would; `None`
    /// where that is nothing.
    pub fn first_kept(&self, frame: FrameNumber) -> Option<FrameNumber> {
        self.files.first_kept(frame)
    }

    /// Number that the next frame will have.
    pub fn next_frame(&self) -> FrameNumber {
        self.queue.next()
    }

    /// Number below which every frame is durable and its effect in memory; what is appended from now on has no
    /// smaller one.
    pub fn applied_below(&self) -> FrameNumber {
        self.queue.applied_below()
    }

    /// Number below which every frame is durable.
    pub fn durable_below(&self) -> FrameNumber {
        self.queue.next_durable()
    }

    /// Greatest frame number that is durable, if any.
    pub fn durable_frame(&self) -> Option<FrameNumber> {
        self.queue.next_durable().checked_sub(1).filter(|frame| *frame > 0)
    }

    /// Bytes of all log files.
    pub fn bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// Bytes of the log files with frames from `frame` on.
    pub fn bytes_from(&self, frame: FrameNumber) -> u64 {
        self.files.bytes_from(frame)
    }

    /// Number of the oldest frame still in the log; the next frame's where there is none.
    pub fn first_frame(&self) -> FrameNumber {
        self.files.first_frame()
    }

    /// Number of the first frame of the file that is being written.
    pub fn newest_file(&self) -> FrameNumber {
        self.files.newest()
    }

    /// Reads durable frames from `from` on, at most about `max_bytes` but at least one, for readers
    /// that fell behind. Empty where nothing from `from` on is durable yet. Blocks.
    ///
    /// # Errors
    /// [`Error::IllegalArgument`] where the frame was removed already (the first kept one is
    /// [`Wal::first_frame`]); [`Error::Corrupt`] for damage.
    pub fn read(&self, from: FrameNumber, max_bytes: usize) -> Result<Vec<(FrameNumber, Frame)>> {
        let mut frames = Vec::new();
        let (mut next, mut left) = (from, max_bytes);
        while next < self.queue.next_durable() {
            let Some(file) = self.files.holding(next) else { break };
            let read = self.read_file(&file, next, left, &mut frames);
            match read {
                Err(error) if disk::is_not_found(&error) => break,
                Err(error) => return Err(error),
                Ok(bytes) => left = left.saturating_sub(bytes),
            }
            next = frames.last().map_or(next, |(last, _)| last + 1);
            if left == 0 || next < file.next {
                break;
            }
        }
        if frames.is_empty() && from < self.queue.next_durable() {
            let first = self.first_frame();
            return Err(Error::IllegalArgument(format!(
                "frame [{from}] is no longer in the log, its first frame is [{first}]"
            )));
        }
        Ok(frames)
    }

    /// Reads frames of one file from `from` on and returns their bytes.
    fn read_file(
        &self,
        file: &LogFile,
        from: FrameNumber,
        max_bytes: usize,
        frames: &mut Vec<(FrameNumber, Frame)>,
    ) -> Result<usize> {
        let mut offset = file.offset_before(from);
        let mut taken = 0;
        let mut wanted = max_bytes.saturating_add(READ_AHEAD);
        while offset < file.len && taken < max_bytes.max(1) {
            let len = (file.len - offset).min(wanted as u64) as usize;
            let chunk = self.disk.read_range(&file.path, offset, len)?;
            let ends = offset + chunk.len() as u64 == file.len;
            let mut at = 0;
            while at < chunk.len() && taken < max_bytes.max(1) {
                if !ends && at > 0 && chunk.len() - at < RECORD_HEADER {
                    // So short a beginning of a record may look like anything.
                    break;
                }
                let record = match record::read_record(&chunk[at..], file.id) {
                    Ok(record) => record,
                    Err(Fault::Incomplete(needed)) if offset + (at + needed) as u64 <= file.len => {
                        wanted = needed.max(READ_AHEAD);
                        break;
                    }
                    Err(fault) => return Err(corrupt(&file.path, offset + at as u64, fault.reason())),
                };
                if record.kind == Kind::Frame && record.number >= from {
                    let payload = Bytes::copy_from_slice(record.payload);
                    let frame = encoding::decode(&payload)
                        .map_err(|reason| corrupt(&file.path, offset + at as u64, reason))?;
                    frames.push((record.number, frame));
                    taken += record.len;
                }
                at += record.len;
            }
            offset += at as u64;
        }
        Ok(taken)
    }

    /// Writes and syncs what is queued, and closes. Idempotent. Blocks.
    ///
    /// # Errors
    /// [`Error::Stopped`] where the log had stopped before everything was durable.
    pub fn close(&self) -> Result<()> {
        self.queue.close();
        if let Some(thread) = self.writer.lock().take() {
            // A panic of the writer has stopped the queue; its frames are seen missing below.
            thread.join();
        }
        let next = self.queue.next();
        let progress = self.queue.progress();
        let now = progress.borrow();
        if now.next < next {
            let cause = now.stopped.as_deref().unwrap_or("the log is closed");
            return Err(Error::Stopped(cause.to_owned()));
        }
        Ok(())
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "log closed with frames that are not durable");
        }
    }
}

/// Bytes that new writes leave free, so that accepted frames, flushes and the catalog have room: a
/// sixteenth of the file system, at most 128 MB.
fn reserve(space: Space) -> u64 {
    (space.total / 16).min(128 << 20)
}
