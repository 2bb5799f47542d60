//! Start of reading a partition: decided from the stored position, the group's offset in the broker and the extent of the
//! partition.
//!
//! Positions live with the data. The group's offset is only an export of them, for tools that show how far a
//! group is; it bears a mark, so that one that an operator has set (or another consumer, before the group
//! was ours) is told from ours, and wins. An offset that won is exported again at once, with the epoch of
//! the partition's owner in its mark, and every position from then on names that epoch: a reset counts until a
//! position behind it is stored, and not once more.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The mark of exported offsets.
const MARK: &str = "millrace";

/// The stored position of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Offset of the next record.
    pub(super) offset: i64,
    /// Epoch of the owner that took over the last reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) adopted: Option<u64>,
    /// Id of the topic that has the offset, where the broker tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) topic: Option<String>,
}

impl Position {
    pub(super) fn encode(self) -> Bytes {
        // Numbers and a text can always be written.
        Bytes::from(serde_json::to_vec(&self).unwrap_or_default())
    }

    /// Reads a stored position.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("the stored position cannot be read: {error}"))
    }
}

/// The group's offset in the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommittedOffset {
    pub(super) offset: i64,
    pub(super) mark: String,
}

/// The mark of an offset that is exported.
pub(super) fn mark(adopted: Option<u64>) -> String {
    adopted.map_or_else(|| MARK.to_owned(), |epoch| format!("{MARK} adopted {epoch}"))
}

/// Start where there is neither position nor offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    Earliest,
    Latest,
    /// Nothing: it is an error.
    None,
}

/// Start offset, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartOffset {
    /// At the stored position.
    Stored(i64),
    /// At an offset that somebody else has set, which is to be exported at once.
    Adopted(i64),
    /// At an offset that won before, but behind which nothing was stored yet.
    Again(i64, u64),
    /// Nothing says where.
    Unknown,
    /// The partition no longer has what the position tells: it was made again, or its records were deleted.
    Lost,
}

/// Decides where to begin. `topic` is the id of the topic as it is now, `ends` are the first offset that the
/// partition has, and the one behind its last.
pub(super) fn start(
    stored: Option<&Position>,
    committed: Option<&CommittedOffset>,
    topic: Option<&str>,
    ends: (i64, i64),
) -> StartOffset {
    let (low, high) = ends;
    let of_topic = stored.and_then(|stored| stored.topic.as_deref());
    let made_again = of_topic.is_some() && topic.is_some() && of_topic != topic;
    let known = committed.filter(|committed| committed.offset >= 0).and_then(|committed| {
        if committed.mark == MARK {
            // Ours: where nothing is stored, the data was lost, or this pipeline is new to the group.
            return stored.is_none().then_some(StartOffset::Stored(committed.offset));
        }
        let adopted = committed.mark.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(" adopted "));
        match adopted.and_then(|epoch| epoch.parse().ok()) {
            Some(epoch) if stored.is_some_and(|stored| stored.adopted == Some(epoch)) => None,
            Some(epoch) => Some(StartOffset::Again(committed.offset, epoch)),
            None => Some(StartOffset::Adopted(committed.offset)),
        }
    });
    let start =
        known.or(stored.map(|stored| StartOffset::Stored(stored.offset))).unwrap_or(StartOffset::Unknown);
    match start {
        // Our exports are as old as the position; what others have set is not.
        StartOffset::Stored(_) if made_again => StartOffset::Lost,
        StartOffset::Stored(offset) | StartOffset::Adopted(offset) | StartOffset::Again(offset, _)
            if offset < low || offset > high =>
        {
            StartOffset::Lost
        }
        start => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(offset: i64, adopted: Option<u64>) -> Position {
        Position { offset, adopted, topic: Some("a".to_owned()) }
    }

    fn committed(offset: i64, mark: &str) -> CommittedOffset {
        CommittedOffset { offset, mark: mark.to_owned() }
    }

    #[test]
    fn positions_win_over_our_exports_and_operators_over_positions() {
        let ends = (0, 100);
        let at = stored(50, None);
        assert_eq!(start(None, None, Some("a"), ends), StartOffset::Unknown);
        assert_eq!(start(None, Some(&committed(7, "")), Some("a"), ends), StartOffset::Adopted(7));
        assert_eq!(start(None, Some(&committed(7, &mark(None))), Some("a"), ends), StartOffset::Stored(7));
        assert_eq!(start(Some(&at), None, Some("a"), ends), StartOffset::Stored(50));
        assert_eq!(
            start(Some(&at), Some(&committed(40, &mark(None))), Some("a"), ends),
            StartOffset::Stored(50)
        );
        assert_eq!(start(Some(&at), Some(&committed(40, "")), Some("a"), ends), StartOffset::Adopted(40));
        assert_eq!(start(Some(&at), Some(&committed(-1001, "")), Some("a"), ends), StartOffset::Stored(50));
    }

    #[test]
    fn a_reset_counts_until_something_behind_it_is_stored() {
        let ends = (0, 100);
        let reset = committed(10, &mark(Some(3)));
        assert_eq!(start(Some(&stored(50, None)), Some(&reset), Some("a"), ends), StartOffset::Again(10, 3));
        assert_eq!(
            start(Some(&stored(50, Some(2))), Some(&reset), Some("a"), ends),
            StartOffset::Again(10, 3)
        );
        assert_eq!(start(Some(&stored(12, Some(3))), Some(&reset), Some("a"), ends), StartOffset::Stored(12));
        // The same offset set once more.
        assert_eq!(
            start(Some(&stored(12, Some(3))), Some(&committed(10, "")), Some("a"), ends),
            StartOffset::Adopted(10)
        );
    }

    #[test]
    fn what_the_partition_does_not_have_is_lost() {
        assert_eq!(start(Some(&stored(50, None)), None, Some("a"), (0, 20)), StartOffset::Lost);
        assert_eq!(start(Some(&stored(5, None)), None, None, (10, 20)), StartOffset::Lost);
        assert_eq!(start(Some(&stored(20, None)), None, None, (10, 20)), StartOffset::Stored(20));
    }

    #[test]
    fn a_topic_made_again_is_told_by_its_id() {
        let at = stored(5, None);
        let ends = (0, 100);
        assert_eq!(start(Some(&at), None, Some("b"), ends), StartOffset::Lost);
        assert_eq!(start(Some(&at), Some(&committed(5, &mark(None))), Some("b"), ends), StartOffset::Lost);
        assert_eq!(start(Some(&at), Some(&committed(7, "")), Some("b"), ends), StartOffset::Adopted(7));
        assert_eq!(start(Some(&at), None, None, ends), StartOffset::Stored(5));
    }

    #[test]
    fn positions_are_read_as_written() {
        for position in [stored(7, None), stored(0, Some(9))] {
            assert_eq!(Position::decode(&position.clone().encode()), Ok(position));
        }
        assert!(Position::decode(b"7").is_err());
    }
}
