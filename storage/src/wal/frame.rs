//! What a frame holds.

use bytes::Bytes;
use uuid::Uuid;

/// Number of a frame: dense, ascending from 1, never reused.
pub type FrameNumber = u64;

/// Everything that one request or source batch changes, atomically.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Its parts in order.
    pub entries: Vec<Entry>,
}

/// A part of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The mapping of an index from here on (`Mapping::encode`).
    Mapping {
        /// Uuid of the index.
        index: Uuid,
        /// Encoded mapping.
        mapping: Bytes,
    },
    /// Operations of one shard, numbered from `first_seq_no` without gaps.
    Ops(ShardOps),
    /// The position delta of the frame's source, applied by compare-and-set.
    Position(PositionDelta),
    /// Which store the log belongs to, and how far its catalog was.
    Store(StoreStamp),
}

/// Says which store something belongs to, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStamp {
    /// Id of the store.
    pub store: Uuid,
    /// A generation that the store's catalog had reached then.
    pub generation: u64,
}

/// Operations of one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardOps {
    /// Uuid of the index.
    pub index: Uuid,
    /// Shard number.
    pub shard: u32,
    /// Primary term.
    pub primary_term: u64,
    /// Sequence number of the first operation.
    pub first_seq_no: u64,
    /// The operations.
    pub ops: Vec<Op>,
}

/// A logged operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// Document id.
    pub id: Bytes,
    /// Whether the server generated the id (then no older version can exist).
    pub generated: bool,
    /// Version after the operation.
    pub version: u64,
    /// Routing value.
    pub routing: Option<String>,
    /// The source of an index operation; `None` for a delete.
    pub source: Option<Bytes>,
}

/// A move of a source's position.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionDelta {
    /// Pipeline that the source belongs to.
    pub pipeline: String,
    /// Natural identity of the source within it.
    pub source: String,
    /// Part of the source that has a position of its own.
    pub partition: String,
    /// Position that the batch was read from, `None` for the first.
    pub previous: Option<Bytes>,
    /// Position after the batch.
    pub new: Bytes,
    /// Epoch of the partition's owner; a late batch of an earlier owner is refused.
    pub owner_epoch: u64,
}
