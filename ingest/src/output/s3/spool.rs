//! Files on disk that become objects: texts of events, until an object of them is written.
//!
//! Each output has a directory of its own for as long as it runs, and a lock on it. What a crash or a stop left in an unlocked one is
//! taken by the next output with the same bucket.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use millrace_runtime::Instant;
use millrace_runtime::disk::{Disk as _, SystemDisk};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::ObjectNames;
use super::records::{EventReader, ObjectHeader, damage, measure, write_record};

/// Longest record, unless a single event is longer.
const MAX_RECORD: usize = 4 << 20;
/// Files that get further events, and their bytes. Beyond, the oldest ones become objects.
const MAX_OPEN: usize = 1_024;
const MAX_OPEN_BYTES: u64 = 1 << 30;
/// Bytes that a file counts for at least: a disk has no room for any number of files, nor has memory.
const MIN_FILE_BYTES: u64 = 64 << 10;
const EXTENSION: &str = "events";
/// Failed attempts after which a file of another run is left to others.
const MAX_FAILURES_OF_LEFT: u32 = 3;

/// Bounds of a file that gets further events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    /// Bytes of its events.
    pub(super) max_bytes: u64,
    /// Time since its first event.
    pub(super) max_age: Option<Duration>,
}

/// Texts of events one after another.
#[derive(Debug, Default)]
pub(super) struct EncodedEvents {
    pub(super) text: Vec<u8>,
    /// End of each event.
    pub(super) ends: Vec<usize>,
}

/// A directory of files, locked for as long as this exists. It is removed at the end, if it is empty.
#[derive(Debug)]
pub(super) struct LockedDirectory {
    path: PathBuf,
    _lock: File,
}

impl LockedDirectory {
    /// Locks a directory; `None` where another output has it.
    fn lock(path: PathBuf) -> io::Result<Option<Self>> {
        let lock = File::open(&path)?;
        match lock.try_lock() {
            // The output before may have removed it.
            Ok(()) => Ok(path.exists().then_some(Self { path, _lock: lock })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for LockedDirectory {
    fn drop(&mut self) {
        // What is in it stays for the next output.
        let _ = fs::remove_dir(&self.path);
    }
}

/// A file that gets no further events.
#[derive(Debug)]
pub(super) struct FinishedFile {
    pub(super) path: PathBuf,
    pub(super) header: ObjectHeader,
    /// Bytes of its whole records.
    length: u64,
    /// `true` if there are records behind a damaged one: it stays for people to look at.
    is_damaged: bool,
    /// Attempts to write its object that have failed.
    pub(super) failures: u32,
    directory: Arc<LockedDirectory>,
}

impl FinishedFile {
    /// Makes a reader of its events.
    pub(super) fn events(&self) -> EventReader {
        EventReader::new(self.path.clone(), self.length)
    }
}

/// A file that gets further events.
#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    header: ObjectHeader,
    length: u64,
    event_bytes: u64,
    opened: Instant,
}

/// A file that a write has changed.
struct ChangedFile {
    prefix: String,
    file: OpenFile,
    /// Length and bytes of events before; `None` where the write made the file.
    before: Option<(u64, u64)>,
}

#[derive(Debug)]
struct State {
    open: BTreeMap<String, OpenFile>,
    /// Number of the next file.
    next: u64,
    /// Way to those who upload; `None` once the output has ended.
    finished: Option<UnboundedSender<FinishedFile>>,
}

/// Files of an output.
#[derive(Debug)]
pub(super) struct ObjectSpool {
    root: PathBuf,
    /// Begin of the names of all directories of the output's bucket.
    bucket: String,
    directory: Arc<LockedDirectory>,
    rotation: Rotation,
    names: ObjectNames,
    state: Mutex<State>,
    /// Bytes of all files that are no objects yet.
    bytes: watch::Sender<u64>,
    /// Notified when a file was made: it has a time at which it is finished.
    opened: Notify,
}

impl ObjectSpool {
    /// Makes the directory of a run of an output, and returns what it will finish with it. `bucket` tells its directories from those of
    /// others.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(super) fn open(
        root: &Path,
        bucket: &str,
        names: ObjectNames,
        rotation: Rotation,
    ) -> io::Result<(Self, UnboundedReceiver<FinishedFile>)> {
        let path = root.join(format!("{bucket}-{}", names.run));
        SystemDisk.create_dir_all(&path).map_err(io::Error::other)?;
        let directory = LockedDirectory::lock(path)?.ok_or(io::ErrorKind::ResourceBusy)?;
        let (finished, receiver) = unbounded();
        let spool = Self {
            root: root.to_owned(),
            bucket: format!("{bucket}-"),
            directory: Arc::new(directory),
            rotation,
            names,
            state: Mutex::new(State { open: BTreeMap::new(), next: 0, finished: Some(finished) }),
            bytes: watch::Sender::new(0),
            opened: Notify::new(),
        };
        Ok((spool, receiver))
    }

    /// Bytes of files that are no objects yet.
    pub(super) fn bytes(&self) -> watch::Receiver<u64> {
        self.bytes.subscribe()
    }

    /// Waits until a file was made.
    pub(super) async fn opened(&self) {
        self.opened.notified().await;
    }

    /// Writes events to the files of their prefixes, and returns once they are synced.
    ///
    /// # Errors
    /// A file cannot be written; none of the events stays. The output has ended.
    pub(super) fn append(&self, texts: &BTreeMap<String, EncodedEvents>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.finished.is_none() {
            return Err(io::Error::other("the output has ended"));
        }
        let mut changed = Vec::new();
        let written = texts
            .iter()
            .try_for_each(|(prefix, events)| self.write(&mut state, prefix, events, &mut changed))
            .and_then(|()| match changed.iter().any(|file| file.before.is_none()) {
                true => File::open(&self.directory.path)?.sync_all(),
                false => Ok(()),
            });
        if let Err(error) = written {
            changed.into_iter().for_each(|file| self.undo(&mut state, file));
            return Err(error);
        }
        for ChangedFile { prefix, file, before } in changed {
            let known = before.map_or(0, |(length, _)| weight(length));
            self.bytes.send_modify(|bytes| *bytes += weight(file.length) - known);
            if before.is_none() {
                self.opened.notify_one();
            }
            // Of several files of a prefix, the last one gets further events.
            if let Some(full) = state.open.insert(prefix, file) {
                self.finish(&mut state, full);
            }
        }
        let full = state.open.extract_if(.., |_, file| file.event_bytes >= self.rotation.max_bytes);
        let mut full: Vec<OpenFile> = full.map(|(_, file)| file).collect();
        let mut oldest: Vec<(Instant, String)> = Vec::new();
        let mut open_bytes: u64 = state.open.values().map(|file| weight(file.length)).sum();
        if state.open.len() > MAX_OPEN || open_bytes > MAX_OPEN_BYTES {
            oldest.extend(state.open.iter().map(|(prefix, file)| (file.opened, prefix.clone())));
            oldest.sort_unstable();
        }
        for (_, prefix) in oldest {
            if state.open.len() <= MAX_OPEN && open_bytes <= MAX_OPEN_BYTES {
                break;
            }
            let file = state.open.remove(&prefix);
            open_bytes -= file.as_ref().map_or(0, |file| weight(file.length));
            full.extend(file);
        }
        full.into_iter().for_each(|file| self.finish(&mut state, file));
        Ok(())
    }

    /// Writes events of one prefix, to as many files as they need, and syncs these. An event that exceeds the bound of a file begins the
    /// next one.
    fn write(
        &self,
        state: &mut State,
        prefix: &str,
        events: &EncodedEvents,
        changed: &mut Vec<ChangedFile>,
    ) -> io::Result<()> {
        let mut at = 0;
        let mut next = state.open.remove(prefix).map(|file| {
            let before = Some((file.length, file.event_bytes));
            ChangedFile { prefix: prefix.to_owned(), file, before }
        });
        while at < events.text.len() {
            let place = changed.len();
            changed.push(match next.take() {
                Some(file) => file,
                None => {
                    let file = self.new_file(state, prefix);
                    ChangedFile { prefix: prefix.to_owned(), file, before: None }
                }
            });
            let ChangedFile { file, before, .. } = &mut changed[place];
            let handle = match before {
                Some(_) => OpenOptions::new().write(true).open(&file.path)?,
                None => OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file.path)?,
            };
            if file.length == 0 {
                file.length += write_record(&handle, 0, &serde_json::to_vec(&file.header)?)?;
            }
            while at < events.text.len() {
                let room = self.rotation.max_bytes.saturating_sub(file.event_bytes);
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                let fitting = events.ends.partition_point(|end| *end - at.min(*end) <= room.min(MAX_RECORD));
                let mut end = fitting.checked_sub(1).map_or(at, |last| events.ends[last]);
                if end <= at {
                    // An event may be longer than a record, and a single one longer than a file.
                    end = events.ends.get(fitting).copied().unwrap_or(events.text.len());
                    if end - at > room && file.event_bytes > 0 {
                        break;
                    }
                }
                file.length += write_record(&handle, file.length, &events.text[at..end])?;
                file.event_bytes += (end - at) as u64;
                at = end;
            }
            handle.sync_data()?;
        }
        if let Some(ChangedFile { prefix, file, .. }) = next {
            state.open.insert(prefix, file);
        }
        Ok(())
    }

    fn new_file(&self, state: &mut State, prefix: &str) -> OpenFile {
        let number = state.next;
        state.next += 1;
        OpenFile {
            path: self.directory.path.join(format!("{number:020}.{EXTENSION}")),
            header: self.names.header(prefix, number),
            length: 0,
            event_bytes: 0,
            opened: Instant::now(),
        }
    }

    /// Takes a write back.
    fn undo(&self, state: &mut State, ChangedFile { prefix, mut file, before }: ChangedFile) {
        let Some((length, event_bytes)) = before else {
            let _ = fs::remove_file(&file.path);
            return;
        };
        (file.length, file.event_bytes) = (length, event_bytes);
        let cut = OpenOptions::new().write(true).open(&file.path).and_then(|handle| handle.set_len(length));
        match cut {
            Ok(()) => drop(state.open.insert(prefix, file)),
            // What is behind its length is not read.
            Err(_) => self.finish(state, file),
        }
    }

    fn finish(&self, state: &mut State, file: OpenFile) {
        let OpenFile { path, header, length, .. } = file;
        if let Some(finished) = &state.finished {
            let directory = Arc::clone(&self.directory);
            let file = FinishedFile { path, header, length, is_damaged: false, failures: 0, directory };
            let _ = finished.unbounded_send(file);
        }
    }

    /// Finishes files that have reached their age; returns the time at which the next one does.
    pub(super) fn finish_old(&self) -> Option<Instant> {
        let max_age = self.rotation.max_age?;
        let mut state = self.state.lock();
        let now = Instant::now();
        let old: Vec<_> = state.open.extract_if(.., |_, file| file.opened + max_age <= now).collect();
        old.into_iter().for_each(|(_, file)| self.finish(&mut state, file));
        state.open.values().map(|file| file.opened + max_age).min()
    }

    /// Finishes all files. There is nothing behind them.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.open);
        all.into_values().for_each(|file| self.finish(&mut state, file));
        state.finished = None;
    }

    /// Finishes what outputs with this bucket left that run no more.
    ///
    /// # Errors
    /// A directory cannot be read. Files that cannot be read stay, and the log has the reason.
    pub(super) fn take_left(&self) -> io::Result<()> {
        let Some(finished) = self.state.lock().finished.clone() else { return Ok(()) };
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(&self.bucket));
            if !is_ours || entry.path() == self.directory.path {
                continue;
            }
            let directory = match LockedDirectory::lock(entry.path()) {
                Ok(Some(directory)) => Arc::new(directory),
                Ok(None) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut left: Vec<PathBuf> = fs::read_dir(&directory.path)?
                .map(|file| file.map(|file| file.path()))
                .filter(|path| path.as_ref().is_ok_and(|path| path.extension() == Some(EXTENSION.as_ref())))
                .collect::<io::Result<_>>()?;
            left.sort_unstable();
            left.into_iter().for_each(|path| self.take_file(&finished, path, &directory));
        }
        Ok(())
    }

    fn take_file(
        &self,
        finished: &UnboundedSender<FinishedFile>,
        path: PathBuf,
        directory: &Arc<LockedDirectory>,
    ) {
        match measure(&path) {
            Ok(Some((header, length, is_damaged))) => {
                self.bytes.send_modify(|bytes| *bytes += weight(length));
                let directory = Arc::clone(directory);
                let file = FinishedFile { path, header, length, is_damaged, failures: 0, directory };
                let _ = finished.unbounded_send(file);
            }
            // A crash was faster than its first event.
            Ok(None) => drop(fs::remove_file(&path)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => set_aside(&path, &error),
            // The next look may find it readable.
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "a file of the output s3 cannot be read for now");
            }
        }
    }

    /// Puts a file at the end of those whose objects are to be written, unless the output has ended. Then it stays for the next one, as does
    /// one of another run whose attempts fail: it may be another output's.
    pub(super) fn put_back(&self, file: FinishedFile) {
        let Some(finished) = self.state.lock().finished.clone() else { return };
        let is_left = !Arc::ptr_eq(&file.directory, &self.directory);
        if is_left && file.failures >= MAX_FAILURES_OF_LEFT {
            self.release(&file);
        } else {
            let _ = finished.unbounded_send(file);
        }
    }

    /// Returns whether the objects of all files are written.
    pub(super) fn is_empty(&self) -> bool {
        *self.bytes.borrow() == 0
    }

    /// Tells of files whose bucket no running output has.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub(super) fn warn_of_foreign(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            let is_ours =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&self.bucket));
            // An empty one is removed by this.
            let is_free = !is_ours && matches!(LockedDirectory::lock(path.clone()), Ok(Some(_)));
            if is_free && path.exists() {
                tracing::warn!(path = %path.display(), "files there wait for an output s3 with their bucket and endpoint, which does not run in this pipeline");
            }
        }
        Ok(())
    }

    /// Removes a file whose object is written.
    pub(super) fn remove(&self, file: &FinishedFile) {
        if file.is_damaged {
            return self.give_up(file, &damage("there are events behind a damaged record"));
        }
        if let Err(error) = fs::remove_file(&file.path) {
            tracing::warn!(%error, path = %file.path.display(), "a file of the output s3 is an object, and cannot be removed");
        }
        self.release(file);
    }

    /// Gives a file up that cannot be read.
    pub(super) fn give_up(&self, file: &FinishedFile, error: &io::Error) {
        set_aside(&file.path, error);
        self.release(file);
    }

    /// Makes room for as many bytes as a file counts for.
    fn release(&self, file: &FinishedFile) {
        self.bytes.send_modify(|bytes| *bytes = bytes.saturating_sub(weight(file.length)));
    }
}

/// Bytes that a file counts for.
fn weight(length: u64) -> u64 {
    length.max(MIN_FILE_BYTES)
}

/// Renames a file that is damaged, so that nobody reads it again.
fn set_aside(path: &Path, error: &io::Error) {
    let kept = path.with_extension("damaged");
    let renamed = fs::rename(path, &kept);
    tracing::error!(%error, ?renamed, path = %kept.display(), "a file of the output s3 cannot be read as a whole, and stays");
}
