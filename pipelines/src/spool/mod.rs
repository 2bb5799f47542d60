//! `queue.type: persisted`: events whose source cannot be read again, on disk until they are stored.
//!
//! What an input sends without a position ([`Spool::append`]) is written behind the last segment of files ([`segment`]) and
//! synced, and then the input is told that it is durable. [`source::Source`] is an input itself: it reads the files and
//! hands their events on with positions, which are committed in one frame with what became of the events. So
//! events are in indices of this server once from here on, and files below the committed position are deleted.
//!
//! Batches that have positions do not come here: their source is their queue.

mod segment;
pub(crate) mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use millrace_ingest::budget::Reservation;
use millrace_ingest::{Ack, Event};
use millrace_runtime::disk::{Disk as _, SystemDisk};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use segment::{RecordPosition, Segment};

/// Bytes of a segment at which the next one begins.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes of records that are written and synced at once.
const GROUP_BYTES: usize = 8 << 20;
/// Appends that wait for the one under way.
const WAITING: usize = 64;
/// Pause after the first failure to write; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Bytes that wait at most where nothing is said, as in Logstash.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// Usage of a queue on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueUsage {
    pub(crate) bytes: u64,
    pub(crate) max_bytes: u64,
}

/// Events on disk.
pub(crate) struct Spool {
    directory: PathBuf,
    max_bytes: u64,
    state: Mutex<State>,
    /// End of the last synced record. It changes with each append.
    end: watch::Sender<RecordPosition>,
    /// Begin of the first record that is not stored.
    floor: watch::Sender<RecordPosition>,
    appends: mpsc::Sender<Append>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Set once the writer is to end.
    ending: watch::Sender<bool>,
    /// End of the damage that was reported.
    told: Mutex<RecordPosition>,
    note: FaultReporter,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    /// Segments by number, with their bytes.
    segments: Vec<(u64, u64)>,
}

/// Events to be written, and who waits for them.
#[derive(Debug)]
struct Append {
    record: Vec<u8>,
    ack: Ack,
    /// Room of the record.
    _held: Reservation,
}

/// Tells of trouble, for the status.
type FaultReporter = Arc<dyn Fn(String) + Send + Sync>;

impl Spool {
    /// Opens the queue in a directory, which is made if need be. It must be called within a runtime.
    ///
    /// # Errors
    /// The directory cannot be made or read.
    pub(crate) fn open(directory: PathBuf, max_bytes: u64, note: FaultReporter) -> io::Result<Arc<Self>> {
        SystemDisk.create_dir_all(&directory).map_err(io::Error::other)?;
        let segments = segment::list(&directory)?;
        // What a crash cut off behind the last record stays where it is: writing goes on in another file.
        let first = segments.first().map_or(0, |(number, _)| *number);
        let end = segments
            .last()
            .map_or(RecordPosition::default(), |(number, bytes)| RecordPosition::new(*number, *bytes));
        let (appends, incoming) = mpsc::channel(WAITING);
        let spool = Arc::new(Self {
            directory,
            max_bytes,
            state: Mutex::new(State { segments }),
            end: watch::Sender::new(end),
            floor: watch::Sender::new(RecordPosition::new(first, 0)),
            appends,
            writer: Mutex::new(None),
            ending: watch::Sender::new(false),
            told: Mutex::new(RecordPosition::default()),
            note: Arc::clone(&note),
        });
        let writer = tokio::spawn(write_all(Arc::clone(&spool), incoming, note));
        *spool.writer.lock() = Some(writer);
        Ok(spool)
    }

    /// Returns whether a directory holds events of a queue.
    pub(crate) fn is_left(directory: &Path) -> bool {
        segment::files(directory).is_ok_and(|files| {
            files.iter().any(|(_, path)| fs::metadata(path).is_ok_and(|about| about.len() > 0))
        })
    }

    /// Takes events, after `prepare`; `ack` is told when they are on disk. While the queue is full, this and what comes
    /// behind wait.
    ///
    /// # Errors
    /// The events are handed back, prepared: they are too many or too deep to be read back.
    pub(crate) async fn append(
        &self,
        mut events: Vec<Event>,
        ack: Ack,
        mut held: Reservation,
        prepare: impl FnOnce(&mut [Event]) + Send + 'static,
    ) -> Result<(), (Vec<Event>, Ack, Reservation)> {
        let job = move || {
            prepare(&mut events);
            (segment::encode(&events), events)
        };
        // If that panics, or the writer is gone, the drop of the acknowledgement tells it.
        let Ok((record, events)) = tokio::task::spawn_blocking(job).await else { return Ok(()) };
        let Some(record) = record else { return Err((events, ack, held)) };
        drop(events);
        held.set(record.capacity() as u64);
        let _ = self.appends.send(Append { record, ack, _held: held }).await;
        Ok(())
    }

    /// Returns the usage of the queue.
    pub(crate) fn fill(&self) -> QueueUsage {
        let floor = *self.floor.borrow();
        let state = self.state.lock();
        let waiting = state.segments.iter().filter(|(number, _)| *number >= floor.segment);
        let bytes: u64 = waiting.map(|(_, bytes)| *bytes).sum();
        let read =
            if state.segments.iter().any(|(number, _)| *number == floor.segment) { floor.offset } else { 0 };
        QueueUsage { bytes: bytes.saturating_sub(read), max_bytes: self.max_bytes }
    }

    /// Ends the writer, behind its present write: sources of the rest get that it was not stored. Who waits no longer leaves it
    /// to end by itself.
    pub(crate) async fn close(&self) {
        self.ending.send_replace(true);
        let writer = self.writer.lock().take();
        if let Some(writer) = writer
            && let Err(error) = writer.await
        {
            tracing::error!(directory = %self.directory.display(), %error, "writing a queue has failed");
        }
    }

    /// The segment that follows a place, with its bytes, if there is one.
    fn segment_from(&self, number: u64) -> Option<(u64, u64)> {
        self.state.lock().segments.iter().find(|(other, _)| *other >= number).copied()
    }

    /// Everything before a place is stored: its files go, but for the one that is written to.
    fn stored(&self, place: RecordPosition) {
        self.floor.send_replace(place);
        let mut state = self.state.lock();
        let last = state.segments.last().map(|(number, _)| *number);
        let gone = |number: u64| number < place.segment && Some(number) != last;
        for (number, _) in state.segments.iter().filter(|(number, _)| gone(*number)) {
            let path = segment::path(&self.directory, *number);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a file of the queue that is not needed any more cannot be deleted");
            }
        }
        state.segments.retain(|(number, _)| !gone(*number));
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.lock().take() {
            writer.abort();
        }
    }
}

/// Writes appended batches until the queue ends; sources of the rest get that it was not stored.
async fn write_all(spool: Arc<Spool>, mut incoming: mpsc::Receiver<Append>, note: FaultReporter) {
    write_until_end(spool, &mut incoming, note).await;
    // What is on its way here is waited for: it would stay in the channel, and its source never be told.
    incoming.close();
    while incoming.recv().await.is_some() {}
}

/// Writes what is appended, in groups with one sync each.
async fn write_until_end(spool: Arc<Spool>, incoming: &mut mpsc::Receiver<Append>, note: FaultReporter) {
    let mut ending = spool.ending.subscribe();
    // The task must not keep alive what ends it.
    let spool = {
        let weak = Arc::downgrade(&spool);
        drop(spool);
        weak
    };
    let mut tail = Tail::default();
    loop {
        let first = tokio::select! {
            biased;
            _ = ending.wait_for(|ending| *ending) => return,
            first = incoming.recv() => first,
        };
        let Some(first) = first else { return };
        let mut group = Group::new(first);
        while group.bytes() < GROUP_BYTES {
            let Ok(next) = incoming.try_recv() else { break };
            group.waiting.push(next);
        }
        let mut pause = FIRST_PAUSE;
        loop {
            // Who waits for room may have given up meanwhile.
            group.waiting.retain(|append| !append.ack.is_withdrawn());
            if group.waiting.is_empty() {
                break;
            }
            let Some(spool) = spool.upgrade() else { return };
            let mut floor = spool.floor.subscribe();
            let fill = spool.fill();
            if fill.bytes > 0 && fill.bytes + group.bytes() as u64 > fill.max_bytes {
                drop(spool);
                tokio::select! {
                    _ = ending.wait_for(|ending| *ending) => return,
                    _ = floor.changed() => continue,
                }
            }
            let records = group.accept();
            if records.is_empty() {
                break;
            }
            let directory = spool.directory.clone();
            let after = spool.state.lock().segments.last().map_or(0, |(number, _)| *number);
            let job = move || {
                let written = tail.write(&directory, after, &records);
                (written, tail, records)
            };
            let done = tokio::task::spawn_blocking(job).await;
            let Ok((written, kept, unwritten)) = done else { return };
            (tail, group.records) = (kept, unwritten);
            match written {
                Ok(()) => {
                    tail.open.iter().for_each(|segment| spool.wrote(segment));
                    break;
                }
                Err(error) => {
                    let directory = spool.directory.display();
                    note(format!("the queue in {directory} cannot be written: {error}"));
                    tracing::warn!(%directory, %error, pause_ms = pause.as_millis() as u64, "the queue cannot be written for now");
                    drop(spool);
                    tokio::select! {
                        _ = ending.wait_for(|ending| *ending) => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        group.waiting.into_iter().for_each(|append| append.ack.tell(Ok(())));
    }
}

/// Appends that are written and synced together.
struct Group {
    waiting: Vec<Append>,
    /// Their records one behind the other, once they are accepted.
    records: Vec<u8>,
}

impl Group {
    fn new(first: Append) -> Self {
        Self { waiting: vec![first], records: Vec::new() }
    }

    fn bytes(&self) -> usize {
        self.records.len() + self.waiting.iter().map(|append| append.record.len()).sum::<usize>()
    }

    /// Accepts all that were not withdrawn, and hands out their records.
    fn accept(&mut self) -> Vec<u8> {
        self.waiting.retain(|append| append.ack.accept());
        for append in &mut self.waiting {
            self.records.append(&mut append.record);
        }
        std::mem::take(&mut self.records)
    }
}

impl Spool {
    /// Takes note of what was written and synced.
    fn wrote(&self, segment: &Segment) {
        let mut state = self.state.lock();
        match state.segments.iter_mut().find(|(number, _)| *number == segment.number) {
            Some((_, bytes)) => *bytes = segment.bytes,
            None => state.segments.push((segment.number, segment.bytes)),
        }
        drop(state);
        self.end.send_replace(RecordPosition::new(segment.number, segment.bytes));
    }
}

/// The segment that is written to.
#[derive(Debug, Default)]
struct Tail {
    open: Option<Segment>,
    /// One that a failed write may have left more in than counts: it is cut before anything else is written.
    torn: Option<Segment>,
}

impl Tail {
    /// Appends records and syncs. After an error nothing of them counts, and the next segment is begun.
    fn write(&mut self, directory: &Path, after: u64, records: &[u8]) -> io::Result<()> {
        if let Some(torn) = &self.torn {
            torn.cut()?;
            self.torn = None;
        }
        let mut segment = match self.open.take().filter(|segment| segment.bytes < SEGMENT_BYTES) {
            Some(segment) => segment,
            None => {
                // Numbers follow the clock, so that a queue whose files were deleted does not use one again.
                let now = u64::try_from(Utc::now().timestamp_millis()).unwrap_or_default();
                let segment = Segment::create(directory, now.max(after + 1))?;
                File::open(directory)?.sync_all()?;
                segment
            }
        };
        match segment.append(records) {
            Ok(()) => {
                self.open = Some(segment);
                Ok(())
            }
            Err(error) => {
                self.torn = Some(segment);
                Err(error)
            }
        }
    }
}
