//! Positions of a snapshot's global state, as a restore brings them into a store.
//!
//! Positions of pipelines are those of their sources. The position of alert rules is a frame of the snapshot's log, so it becomes a
//! [`RestoredPosition`]. Other readers of the change feed begin with the log of the store.

use millrace_catalog::Position;
use millrace_engine::{FEED_PIPELINE, RULES_READER, RestoredPosition};

use crate::contents::SourcePosition;

/// Decodes the positions of a snapshot; `restored` has the snapshot and the moment of the restore. Without it the rules of the store
/// keep their own position.
///
/// # Errors
/// A position that no store has written.
pub(crate) fn decode_positions(
    positions: &[SourcePosition],
    restored: Option<RestoredPosition>,
) -> Result<Vec<Position>, String> {
    let mut decoded = Vec::with_capacity(positions.len());
    for position in positions {
        if position.pipeline != FEED_PIPELINE {
            decoded.push(position.decode()?);
        } else if let Some(restored) = restored
            && position.source == RULES_READER
            && position.partition.is_empty()
        {
            let bytes = position.decode()?.position;
            let next_frame = match bytes.first_chunk::<8>() {
                Some(bytes) => u64::from_le_bytes(*bytes),
                None if bytes.is_empty() => 0,
                None => return Err(format!("position of reader [{RULES_READER}] is no frame")),
            };
            decoded.push(RestoredPosition { next_frame, ..restored }.to_position());
        }
    }
    Ok(decoded)
}
