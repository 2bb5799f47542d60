//! Figures of indices, shards and segments.

use crate::shard::ContextFigures;

/// Counters of an index.
#[derive(Clone, Debug, Default)]
pub struct IndexFigures {
    /// A line a shard.
    pub shards: Vec<ShardFigures>,
}

/// Fault of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardFault {
    /// Its files are damaged: it answers nothing and takes nothing.
    Damaged,
    /// This version does not accept the settings or the mapping of its index: it answers nothing and takes nothing.
    Unsupported,
    /// A file of one of its segments is damaged: what needs that file fails, the rest is served.
    Unreadable,
    /// It serves, but its last refresh, flush or compaction failed, and the next is to mend it; or another process has taken
    /// the object store over, and it takes no writes.
    Failing,
}

impl ShardFault {
    /// Returns whether the shard answers nothing and takes nothing.
    pub fn is_out_of_use(self) -> bool {
        matches!(self, Self::Damaged | Self::Unsupported)
    }
}

/// Counters of a shard.
#[derive(Clone, Debug, Default)]
pub struct ShardFigures {
    /// Live documents as of the last refresh.
    pub docs: u64,
    /// Rows of deleted documents that compaction has not dropped yet.
    pub deleted: u64,
    /// Bytes of the shard's segment files.
    pub store_bytes: u64,
    /// Segments, in memory and stored.
    pub segments: u64,
    /// Bytes held in memory for unflushed documents and open readers.
    pub memory_bytes: u64,
    /// Greatest sequence number assigned, -1 before the first.
    pub max_seq_no: i64,
    /// Greatest sequence number below which all are durable, -1 before the first.
    pub local_checkpoint: i64,
    /// Index and create operations since start.
    pub index_total: u64,
    /// Delete operations since start.
    pub delete_total: u64,
    /// Gets since start.
    pub get_total: u64,
    /// Refreshes since start.
    pub refresh_total: u64,
    /// Flushes since start.
    pub flush_total: u64,
    /// Flushes that nobody asked for, among those.
    pub periodic_flushes: u64,
    /// Operations in the log that are in no stored segment yet.
    pub log_operations: u64,
    /// Bytes of their documents.
    pub log_bytes: u64,
    /// Time at which the oldest of them arrived, in milliseconds.
    pub log_since_ms: Option<i64>,
    /// Compactions since start.
    pub merge_total: u64,
    /// Snapshots handed to searches since start.
    pub query_total: u64,
    /// Scrolls over the shard.
    pub scrolls: ContextFigures,
    /// Points in time over the shard.
    pub points_in_time: ContextFigures,
    /// Cursors of statements over the shard.
    pub cursors: ContextFigures,
}

impl ShardFigures {
    /// Returns the bytes of the shard, stored and in memory.
    pub fn bytes(&self) -> u64 {
        self.store_bytes + self.memory_bytes
    }
}

/// Sizes of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFigures {
    /// Number of the segment in its shard; never used again for another.
    pub number: u64,
    /// Live documents.
    pub docs: u64,
    /// Rows of deleted documents.
    pub deleted: u64,
    /// Bytes of its files, 0 in memory.
    pub store_bytes: u64,
    /// Number of its files, 0 in memory.
    pub files: u64,
    /// Bytes held in memory.
    pub memory_bytes: u64,
    /// `true` if it is stored.
    pub committed: bool,
}
