//! Progress of a snapshot that is being made, by index.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millrace_engine::IndexCapture;
use millrace_segment::SegmentFile;

/// A number of files, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Files.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

impl std::ops::AddAssign for FileCounts {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Figures of an index of a snapshot that is being made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexProgressFigures {
    /// Shards of the index.
    pub shards: u32,
    /// Shards whose files the repository has.
    pub done_shards: u32,
    /// Files of all its segments.
    pub total: FileCounts,
    /// Files that the repository has by now.
    pub processed: FileCounts,
    /// Files that the snapshot has written.
    pub written: FileCounts,
}

/// Counts files.
#[derive(Debug, Default)]
struct FileCounter {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl FileCounter {
    fn add(&self, bytes: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn set(&self, counts: FileCounts) {
        self.files.store(counts.files, Ordering::Relaxed);
        self.bytes.store(counts.bytes, Ordering::Relaxed);
    }

    fn read(&self) -> FileCounts {
        let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        FileCounts { files, bytes }
    }
}

/// Progress of an index of a snapshot that is being made.
#[derive(Debug)]
pub struct IndexProgress {
    /// Name of the index.
    pub name: String,
    shards: u32,
    done_shards: AtomicU32,
    total: FileCounter,
    processed: FileCounter,
    written: FileCounter,
}

impl IndexProgress {
    /// Begins with the stored files of a captured index. Rows that are in memory are not known as files yet.
    pub(crate) fn new(index: &IndexCapture) -> Self {
        let progress = Self {
            name: index.meta.name.to_string(),
            shards: index.meta.shards,
            done_shards: AtomicU32::new(0),
            total: FileCounter::default(),
            processed: FileCounter::default(),
            written: FileCounter::default(),
        };
        for segment in index.shards.iter().flatten().flat_map(|shard| &shard.segments) {
            let bytes = SegmentFile::ALL.map(|file| file.bytes(&segment.record));
            bytes.into_iter().filter(|bytes| *bytes > 0).for_each(|bytes| progress.total.add(bytes));
        }
        progress
    }

    /// Takes note of a file that was not among the stored ones.
    pub(crate) fn note_found(&self, bytes: u64) {
        self.total.add(bytes);
    }

    /// Takes note of a file that the repository has; `is_written` if the snapshot brought it.
    pub(crate) fn note_file(&self, bytes: u64, is_written: bool) {
        self.processed.add(bytes);
        if is_written {
            self.written.add(bytes);
        }
    }

    /// Takes note of a shard whose files the repository has.
    pub(crate) fn note_shard(&self) {
        self.done_shards.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note that the repository has all files of the index.
    pub(crate) fn note_whole(&self) {
        self.processed.set(self.total.read());
        self.done_shards.store(self.shards, Ordering::Relaxed);
    }

    /// Reads the figures of now.
    pub fn figures(&self) -> IndexProgressFigures {
        IndexProgressFigures {
            shards: self.shards,
            done_shards: self.done_shards.load(Ordering::Relaxed),
            total: self.total.read(),
            processed: self.processed.read(),
            written: self.written.read(),
        }
    }
}
