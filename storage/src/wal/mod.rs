//! The write-ahead log: one a node, of frames, with group commit.
// CONTRACT STUB (owner: durability)
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::Disk;
use crate::{Config, Result};

/// Number of a frame: dense, ascending, never reused.
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
        index: uuid::Uuid,
        /// Encoded mapping.
        mapping: Bytes,
    },
    /// Operations of one shard, numbered from `first_seq_no` without gaps.
    Ops(ShardOps),
    /// The position delta of the frame's source, applied by compare-and-set.
    Position(PositionDelta),
}

/// Operations of one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardOps {
    /// Uuid of the index.
    pub index: uuid::Uuid,
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
#[allow(missing_docs)]
pub struct PositionDelta {
    pub pipeline: String,
    pub source: String,
    pub partition: String,
    pub previous: Option<Bytes>,
    pub new: Bytes,
    pub owner_epoch: u64,
}

/// The log.
#[derive(Debug)]
pub struct Wal {}

impl Wal {
    /// Opens the log in `dir`, handing every intact frame in order to `replay`. A torn tail is cut
    /// with a log line; damage elsewhere is [`crate::Error::Corrupt`] with file and offset.
    pub fn open(
        _disk: Arc<dyn Disk>,
        _dir: &Path,
        _config: &Config,
        _replay: &mut dyn FnMut(FrameNumber, Frame) -> Result<()>,
    ) -> Result<Self> {
        todo!()
    }
    /// Appends a frame. Cheap and synchronous, meant to be called under shard locks: the order of
    /// calls is the order of the log. It is durable once [`Wal::synced`] returns.
    pub fn append(&self, _frame: &Frame) -> Result<FrameNumber> {
        todo!()
    }
    /// Waits until the frame and all before it are fsynced. A failed fsync stops the log for good.
    pub async fn synced(&self, _frame: FrameNumber) -> Result<()> {
        todo!()
    }
    /// Removes log files all of whose frames are below `frame`.
    pub fn remove_below(&self, _frame: FrameNumber) -> Result<()> {
        todo!()
    }
    /// Number that the next frame will have.
    pub fn next_frame(&self) -> FrameNumber {
        todo!()
    }
    /// Greatest frame number that is durable, if any.
    pub fn durable_frame(&self) -> Option<FrameNumber> {
        todo!()
    }
    /// Bytes of all log files.
    pub fn bytes(&self) -> u64 {
        todo!()
    }
    /// Reads durable frames from `from` on, at most about `max_bytes`, for readers that fell behind.
    /// Frames that were removed already are [`crate::Error::IllegalArgument`]… the first kept number is
    /// [`Wal::first_frame`].
    pub fn read(&self, _from: FrameNumber, _max_bytes: usize) -> Result<Vec<(FrameNumber, Frame)>> {
        todo!()
    }
    /// Number of the oldest frame still in the log.
    pub fn first_frame(&self) -> FrameNumber {
        todo!()
    }
    /// Syncs and closes.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
}
