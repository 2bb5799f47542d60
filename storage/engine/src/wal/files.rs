//! The files of the log: their names, extents, and where in them frames begin.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use millrace_catalog::frame::FrameNumber;
use millrace_runtime::disk::{Disk, DiskFile};
use millrace_runtime::{Error, Result};
use parking_lot::Mutex;

use super::record::{FILE_HEADER, FileHeader};

/// Bytes between two entries of a file's frame index.
const INDEX_STEP: u64 = 256 << 10;
const SUFFIX: &str = ".log";
const UNFINISHED: &str = ".log.new";

/// A log file, up to what is durable of it.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    /// Identity from its header.
    pub(super) id: u64,
    /// Number of its first frame.
    pub(super) first: FrameNumber,
    /// Number after its last frame.
    pub(super) next: FrameNumber,
    /// Bytes.
    pub(super) len: u64,
    /// Offsets of some frames, ascending.
    index: Vec<(FrameNumber, u64)>,
}

impl LogFile {
    pub(super) fn new(path: PathBuf, header: FileHeader) -> Self {
        let FileHeader { id, first } = header;
        Self { path, id, first, next: first, len: FILE_HEADER as u64, index: Vec::new() }
    }

    /// Adds the next frame, which begins at `offset`.
    pub(super) fn note(&mut self, number: FrameNumber, offset: u64) {
        self.next = number + 1;
        if self.index.last().is_none_or(|(_, last)| offset - last >= INDEX_STEP) {
            self.index.push((number, offset));
        }
    }

    /// Finds an offset at which a record begins, not far before the frame.
    pub(super) fn offset_before(&self, number: FrameNumber) -> u64 {
        let after = self.index.partition_point(|(indexed, _)| *indexed <= number);
        after.checked_sub(1).map_or(FILE_HEADER as u64, |last| self.index[last].1)
    }
}

/// All files of the log in order; the last one is being written.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    list: Mutex<VecDeque<LogFile>>,
}

impl Files {
    pub(super) fn new(dir: &Path, list: Vec<LogFile>) -> Self {
        Self { dir: dir.to_owned(), list: Mutex::new(list.into()) }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn bytes(&self) -> u64 {
        self.list.lock().iter().map(|file| file.len).sum()
    }

    /// Bytes of the files with frames from `number` on, and of the one that is being written.
    pub(super) fn bytes_from(&self, number: FrameNumber) -> u64 {
        let list = self.list.lock();
        let after = list.partition_point(|file| file.next <= number).min(list.len().saturating_sub(1));
        list.iter().skip(after).map(|file| file.len).sum()
    }

    /// Number of the oldest frame, or of the next one where there is none.
    pub(super) fn first_frame(&self) -> FrameNumber {
        self.list.lock().front().map_or(1, |file| file.first)
    }

    /// Number of the first frame of the newest file, or of the next one where there is none.
    pub(super) fn newest(&self) -> FrameNumber {
        self.list.lock().back().map_or(1, |file| file.first)
    }

    pub(super) fn push(&self, file: LogFile) {
        let mut list = self.list.lock();
        // A file without frames is replaced by one of the same name.
        if list.back().is_some_and(|last| last.first == file.first) {
            list.pop_back();
        }
        list.push_back(file);
    }

    /// Changes the file that is being written.
    pub(super) fn advance(&self, change: impl FnOnce(&mut LogFile)) {
        if let Some(file) = self.list.lock().back_mut() {
            change(file);
        }
    }

    /// Finds the file that holds a frame.
    pub(super) fn holding(&self, number: FrameNumber) -> Option<LogFile> {
        let list = self.list.lock();
        let after = list.partition_point(|file| file.first <= number);
        let file = list.get(after.checked_sub(1)?)?;
        (number < file.next).then(|| file.clone())
    }

    /// Path of the oldest file and the number of the first frame behind it, if all its frames are below
    /// `number` and it is not the last one: that always stays, its name keeps the numbering.
    pub(super) fn oldest_removable(&self, number: FrameNumber) -> Option<(PathBuf, FrameNumber)> {
        let list = self.list.lock();
        list.front()
            .filter(|oldest| list.len() > 1 && oldest.next <= number)
            .map(|oldest| (oldest.path.clone(), oldest.next))
    }

    /// Number of the first frame behind all files that [`Files::oldest_removable`] gives one after the other.
    pub(super) fn first_kept(&self, number: FrameNumber) -> Option<FrameNumber> {
        let list = self.list.lock();
        let removable = list.iter().take(list.len().saturating_sub(1)).take_while(|file| file.next <= number);
        removable.last().map(|file| file.next)
    }

    /// Removes the oldest file if it may be; durable when it returns.
    pub(super) fn remove_oldest(&self, disk: &dyn Disk, number: FrameNumber) -> Result<()> {
        let Some((path, _)) = self.oldest_removable(number) else { return Ok(()) };
        disk.remove(&path)?;
        disk.sync_dir(&self.dir)?;
        let mut list = self.list.lock();
        if list.front().is_some_and(|oldest| oldest.path == path) {
            list.pop_front();
        }
        Ok(())
    }
}

/// Path of the file that begins with frame `first`.
pub(super) fn path(dir: &Path, first: FrameNumber) -> PathBuf {
    dir.join(format!("{first:020}{SUFFIX}"))
}

/// Lists the log files of a directory in order, and removes what an interrupted creation left.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for name in disk.list(dir)? {
        let text = name.to_string_lossy();
        if text.ends_with(UNFINISHED) {
            disk.remove(&dir.join(&name))?;
        } else if text
            .strip_suffix(SUFFIX)
            .is_some_and(|stem| stem.len() == 20 && stem.parse::<u64>().is_ok())
        {
            paths.push(dir.join(&name));
        } else {
            let (dir, name) = (dir.display(), name.display());
            tracing::warn!(%dir, %name, "file in the log directory is not part of the log, left alone");
        }
    }
    Ok(paths)
}

/// Creates the file that begins with frame `first`. Its header is durable before it has its name.
pub(super) fn create(
    disk: &dyn Disk,
    dir: &Path,
    first: FrameNumber,
) -> Result<(Box<dyn DiskFile>, LogFile)> {
    let header = FileHeader { id: rand::random(), first };
    let unfinished = dir.join(format!("{first:020}{UNFINISHED}"));
    let path = path(dir, first);
    disk.remove(&unfinished)?;
    let mut file = disk.create(&unfinished)?;
    file.append(&header.encode())?;
    file.sync()?;
    disk.rename(&unfinished, &path)?;
    disk.sync_dir(dir)?;
    Ok((file, LogFile::new(path, header)))
}

/// Makes the error for damage in a log file.
pub(super) fn corrupt(path: &Path, offset: u64, reason: impl Into<String>) -> Error {
    Error::Corrupt { file: path.display().to_string(), offset, reason: reason.into() }
}
