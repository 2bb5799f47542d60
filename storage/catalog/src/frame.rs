//! Content of a frame.

use bytes::Bytes;
use uuid::Uuid;

use crate::access::Origin;

/// Number of a frame: dense, ascending from 1, never reused.
pub type FrameNumber = u64;

/// Everything that one request or source batch changes, atomically.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Time of its append, in milliseconds since the epoch: no less than that of the frame before. 0 in a frame of a version that
    /// noted none.
    pub time_ms: i64,
    /// Origin of the writes.
    pub origin: Origin,
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
    /// Store that the log belongs to, and the position of its catalog.
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
    /// `true` if the server generated the id (then no older version can exist).
    pub generated: bool,
    /// `true` if no document with the id was alive before. In a frame of a version that noted none: whether the version is 1.
    pub created: bool,
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

/// A frame that is durable and whose effect is in memory, as the change feed hands it on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppliedFrame {
    /// Its number.
    pub number: FrameNumber,
    /// Time of its append; see [`Frame::time_ms`].
    pub time_ms: i64,
    /// Origin of the writes.
    pub origin: Origin,
    /// Its operations, by index and shard. A frame may have none.
    pub parts: Vec<ShardOps>,
}

impl AppliedFrame {
    /// Makes it of a frame of the log.
    pub fn new(number: FrameNumber, frame: Frame) -> Self {
        let Frame { time_ms, origin, entries } = frame;
        let parts = entries.into_iter().filter_map(|entry| match entry {
            Entry::Ops(ops) => Some(ops),
            Entry::Mapping { .. } | Entry::Position(_) | Entry::Store(_) => None,
        });
        Self { number, time_ms, origin, parts: parts.collect() }
    }

    /// Estimates the bytes held.
    pub fn heap_bytes(&self) -> usize {
        let of_op = |op: &Op| {
            let routing = op.routing.as_ref().map_or(0, String::len);
            size_of::<Op>() + op.id.len() + routing + op.source.as_ref().map_or(0, Bytes::len)
        };
        size_of::<Self>() + self.parts.iter().flat_map(|part| &part.ops).map(of_op).sum::<usize>()
    }
}
