//! Position of alert rules in the log of a restored snapshot.
//!
//! A position of the change feed is a frame of one log. A restore stores it apart from the position in this store's log: in the partition
//! [`RESTORED_PARTITION`] of [`RULES_READER`], with the snapshot that it belongs to. The next start of the rules takes it from there.

use bytes::Bytes;
use millrace_catalog::Position;
use millrace_catalog::frame::FrameNumber;
use uuid::Uuid;

use super::feed::FEED_PIPELINE;

/// Reader of the change feed that evaluates alert rules.
pub const RULES_READER: &str = "rules";
/// Partition with the position of a restored snapshot.
pub const RESTORED_PARTITION: &str = "restored";

/// Bytes of an encoded position.
const ENCODED_BYTES: usize = 40;

/// Position of alert rules as of a snapshot, and the moment of its restore in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredPosition {
    /// Uuid of the snapshot.
    pub snapshot: Uuid,
    /// First frame of the snapshot's log whose alerts were not all written.
    pub next_frame: FrameNumber,
    /// Time of the snapshot, in milliseconds since the epoch.
    pub snapshot_ms: i64,
    /// Last frame of this store's log before the restore.
    pub last_frame: FrameNumber,
}

impl RestoredPosition {
    /// Makes the position that a restore brings into the store.
    pub fn to_position(self) -> Position {
        Position {
            pipeline: FEED_PIPELINE.to_owned(),
            source: RULES_READER.to_owned(),
            partition: RESTORED_PARTITION.to_owned(),
            position: self.encode(),
            owner_epoch: 0,
            frame: 0,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENCODED_BYTES);
        bytes.extend_from_slice(self.snapshot.as_bytes());
        bytes.extend_from_slice(&self.next_frame.to_le_bytes());
        bytes.extend_from_slice(&self.snapshot_ms.to_le_bytes());
        bytes.extend_from_slice(&self.last_frame.to_le_bytes());
        bytes
    }

    /// Decodes a stored position; `None` where it is none.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let bytes: &[u8; ENCODED_BYTES] = bytes.as_ref().try_into().ok()?;
        let number = |at: usize| -> Option<[u8; 8]> { bytes.get(at..at + 8)?.try_into().ok() };
        Some(Self {
            snapshot: Uuid::from_slice(&bytes[..16]).ok()?,
            next_frame: u64::from_le_bytes(number(16)?),
            snapshot_ms: i64::from_le_bytes(number(24)?),
            last_frame: u64::from_le_bytes(number(32)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let position = RestoredPosition {
            snapshot: Uuid::from_u128(7),
            next_frame: 1,
            snapshot_ms: -2,
            last_frame: u64::MAX,
        };
        let stored = Bytes::from(position.to_position().position);
        assert_eq!(RestoredPosition::decode(&stored), Some(position));
        assert_eq!(RestoredPosition::decode(&stored.slice(1..)), None);
    }
}
