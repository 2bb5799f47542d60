//! The log's one writer thread: group commit, roll, and what happens when the disk is full.

use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::frame::FrameNumber;
use millrace_runtime::disk::{self, Disk, DiskFile};
use millrace_runtime::{Error, Instant, Result};

use super::files::{self, Files};
use super::queue::{EncodedFrame, Queue};
use super::record::{self, FILE_HEADER, Kind, RECORD_HEADER};

/// Bytes of frames that one sync makes durable at most (one frame may be larger).
const GROUP_BYTES: usize = 32 << 20;
/// Frames up to this size are copied together, so that small ones cost one write a group.
const COPIED_BYTES: usize = 256 << 10;
/// Interval between two tries on a full disk.
const FULL_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Writer {
    disk: Arc<dyn Disk>,
    files: Arc<Files>,
    queue: Arc<Queue>,
    roll_bytes: u64,
    /// `None` until the first frame where the disk was full at start.
    current: Option<Current>,
    buffer: Vec<u8>,
}

/// The file that is being written.
struct Current {
    file: Box<dyn DiskFile>,
    id: u64,
    /// Bytes written whole.
    len: u64,
    /// Bytes known to be durable.
    synced: u64,
}

/// Stops the queue however the thread ends, so that nobody waits for a dead writer.
struct StopOnExit(Arc<Queue>);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        self.0.stop("the log's writer ended");
    }
}

impl Writer {
    /// Begins the file whose first frame is `next`, or leaves that to the first frame while the disk
    /// is full: a server must start and serve reads then.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        files: Arc<Files>,
        queue: Arc<Queue>,
        roll_bytes: u64,
        next: FrameNumber,
    ) -> Result<Self> {
        let current = match begin_file(&*disk, &files, next) {
            Err(error) if disk::is_full(&error) => None,
            other => Some(other?),
        };
        Ok(Self { disk, files, queue, roll_bytes, current, buffer: Vec::new() })
    }

    /// Writes groups until the queue is closed or something fails.
    pub(super) fn run(mut self) {
        let queue = StopOnExit(Arc::clone(&self.queue));
        while let Some(group) = queue.0.take_group(GROUP_BYTES) {
            if let Err(error) = self.commit(group) {
                tracing::error!(dir = %self.files.dir().display(), %error, "log stopped");
                queue.0.stop(&error.to_string());
                return;
            }
        }
        match self.finish() {
            Ok(()) => queue.0.stop("the log is closed"),
            Err(error) => queue.0.stop(&error.to_string()),
        }
    }

    fn commit(&mut self, mut group: Vec<EncodedFrame>) -> Result<()> {
        let Some(first) = group.first().map(|frame| frame.number) else { return Ok(()) };
        let next = first + group.len() as u64;
        self.roll(first)?;
        self.retry_while_full(|writer| writer.write(&mut group, first))?;
        let current = current(&mut self.current)?;
        let began = Instant::now();
        current.file.sync()?;
        self.queue.sync_time.record(began.elapsed());
        let bytes: u64 = group.iter().map(|frame| frame.bytes.len() as u64).sum();
        let mut offset = current.len + record::MARK as u64;
        self.files.advance(|file| {
            for frame in &group {
                file.note(frame.number, offset);
                offset += frame.bytes.len() as u64;
            }
            file.len = offset;
        });
        current.len = offset;
        current.synced = offset;
        self.queue.done(next, bytes);
        if self.queue.is_idle() {
            self.mark(next)?;
        }
        Ok(())
    }

    /// Writes a mark and the frames behind [`Current::len`].
    fn write(&mut self, group: &mut [EncodedFrame], first: FrameNumber) -> Result<()> {
        let Current { file, id, synced, .. } = current(&mut self.current)?;
        self.buffer.clear();
        self.buffer.extend_from_slice(&record::mark(first, *synced, *id));
        for frame in group {
            record::fill_header(&mut frame.bytes, Kind::Frame, frame.number, frame.payload_checksum, *id);
            if frame.bytes.len() > COPIED_BYTES || self.buffer.len() > COPIED_BYTES {
                file.append(&self.buffer)?;
                self.buffer.clear();
            }
            if frame.bytes.len() > COPIED_BYTES {
                file.append(&frame.bytes)?;
            } else {
                self.buffer.extend_from_slice(&frame.bytes);
            }
        }
        if !self.buffer.is_empty() {
            file.append(&self.buffer)?;
        }
        Ok(())
    }

    /// Notes behind the last group that it is durable, so that recovery can tell damage to it from
    /// a torn write. Not synced: it only has to outlive this process, not the power.
    fn mark(&mut self, next: FrameNumber) -> Result<()> {
        let Some(Current { file, id, len, synced }) = &mut self.current else { return Ok(()) };
        if *len > *synced || *len == FILE_HEADER as u64 {
            return Ok(());
        }
        match file.append(&record::mark(next, *synced, *id)) {
            Ok(()) => *len += record::MARK as u64,
            Err(error) if disk::is_full(&error) => file.truncate(*len)?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Begins a new file where there is none or the current one is long enough.
    fn roll(&mut self, first: FrameNumber) -> Result<()> {
        match &self.current {
            Some(current) if current.len < self.roll_bytes || current.len == FILE_HEADER as u64 => {
                return Ok(());
            }
            Some(_) => self.sync_whole()?,
            None => {}
        }
        self.retry_while_full(|writer| {
            writer.current = Some(begin_file(&*writer.disk, &writer.files, first)?);
            Ok(())
        })
    }

    /// Makes the current file durable to its last byte: only the last file may end in a torn record.
    fn sync_whole(&mut self) -> Result<()> {
        if let Some(current) = &mut self.current
            && current.len > current.synced
        {
            current.file.sync()?;
            current.synced = current.len;
            let len = current.len;
            self.files.advance(|file| file.len = len);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.mark(self.queue.next_durable())?;
        self.sync_whole()
    }

    /// Repeats `attempt` for as long as the disk is full. Frames that were accepted are already
    /// applied to memtables, so giving up is no choice.
    fn retry_while_full(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let mut waited = false;
        loop {
            match attempt(self) {
                Err(error) if disk::is_full(&error) => {
                    let dir = self.files.dir().display();
                    if !waited {
                        tracing::error!(%dir, "disk full: log writes wait until there is space");
                    }
                    waited = true;
                    self.queue.full(true);
                    if let Some(current) = &mut self.current {
                        current.file.truncate(current.len)?;
                    }
                    self.queue.pause(FULL_PAUSE)?;
                }
                Ok(()) if waited => {
                    self.queue.full(false);
                    tracing::info!(dir = %self.files.dir().display(), "log writes go on");
                    return Ok(());
                }
                other => return other,
            }
        }
    }
}

fn current(current: &mut Option<Current>) -> Result<&mut Current> {
    current.as_mut().ok_or_else(|| Error::Internal("the log has no file to write to".to_owned()))
}

fn begin_file(disk: &dyn Disk, files: &Files, first: FrameNumber) -> Result<Current> {
    let (file, entry) = files::create(disk, files.dir(), first)?;
    let current = Current { file, id: entry.id, len: entry.len, synced: entry.len };
    files.push(entry);
    Ok(current)
}

/// Room for the header in front of a payload.
pub(super) const ROOM: [u8; RECORD_HEADER] = [0; RECORD_HEADER];
