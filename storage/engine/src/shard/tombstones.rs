//! Tombstones as the catalog keeps them: the versions of deleted documents over a restart.
//!
//! A flush stores those of the deletions since the checkpoint before, in the transaction that moves the checkpoint; the
//! ones behind it come back from the log. What a flush stores is a *group*, known by the first sequence number that it
//! may have, in parts of at most 4 MiB. A group goes with the first flush that finds all of its tombstones to be
//! forgotten: too old, or of ids that came back. Small groups at the end are written once more together with what comes, so
//! that there are few of them however often a shard is flushed: a tombstone is written some twenty times at most.
//!
//! A group may know of ids that live again since, or that it has in another state than a later one. The greater sequence
//! number holds: of two tombstones when they are loaded, of a tombstone and a document when the id is asked for
//! ([`State::is_doubtful`](super::state::State::is_doubtful)).
//!
//! The bytes of a part are a count, then of each tombstone its version, sequence number, term, time of deletion (u64, i64
//! for the time), length of the id (u32) and the id, then a checksum (CRC-32C) of all that; numbers are little-endian.

use std::ops::Range;

use bytes::Bytes;
use millrace_catalog::{TombstoneChange, TombstoneChunk};
use millrace_runtime::{Error, Result};
use uuid::Uuid;

use super::Shard;
use super::versions::VersionEntry;

/// Bytes of a tombstone without its id.
const FIXED: usize = 36;
/// Bytes of a part, but for its last tombstone.
const PART_BYTES: usize = 4 << 20;
/// Bytes of groups that are written once more, at most.
const MERGED_BYTES: usize = PART_BYTES;

/// Encodes tombstones in parts.
#[derive(Debug, Default)]
struct TombstoneEncoder {
    done: Vec<Bytes>,
    bytes: Vec<u8>,
    count: u64,
}

impl TombstoneEncoder {
    fn push(&mut self, id: &str, entry: &VersionEntry) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[0; 8]);
        }
        self.count += 1;
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(&entry.version.to_le_bytes());
        bytes.extend_from_slice(&entry.seq_no.to_le_bytes());
        bytes.extend_from_slice(&entry.primary_term.to_le_bytes());
        bytes.extend_from_slice(&entry.deleted_at_ms.to_le_bytes());
        bytes.extend_from_slice(&(id.len() as u32).to_le_bytes());
        bytes.extend_from_slice(id.as_bytes());
        if bytes.len() >= PART_BYTES {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        if self.count == 0 {
            return;
        }
        let (mut bytes, count) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.count));
        bytes[..8].copy_from_slice(&count.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        self.done.push(bytes.into());
    }

    fn finish(mut self) -> Vec<Bytes> {
        self.end_part();
        self.done
    }
}

/// A group in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    first_seq_no: u64,
    bytes: usize,
}

/// The groups of a shard that the catalog has, ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups(Vec<Group>);

impl Groups {
    /// Takes up a part of a group; groups come in their order.
    fn load(&mut self, first_seq_no: u64, bytes: usize) {
        match self.0.last_mut() {
            Some(last) if last.first_seq_no == first_seq_no => last.bytes += bytes,
            _ => self.0.push(Group { first_seq_no, bytes }),
        }
    }

    /// Returns the number of the first groups that nobody needs: all of their tombstones come before the first that is kept.
    fn forgotten(&self, committed_below: u64, first_remembered: Option<u64>) -> usize {
        let ends = self.0.iter().skip(1).map(|group| group.first_seq_no).chain([committed_below]);
        ends.take_while(|end| first_remembered.is_none_or(|first| *end <= first)).count().min(self.0.len())
    }

    /// Returns the first of the last groups that are to be written once more with so many bytes: those that are not larger than
    /// the bytes behind them. So each time a tombstone is written, its group has doubled.
    fn merged(&self, bytes: usize) -> usize {
        let (mut from, mut total) = (self.0.len(), bytes);
        while let Some(before) = from.checked_sub(1).map(|at| self.0[at])
            && before.bytes <= total
            && before.bytes + total <= MERGED_BYTES
        {
            from -= 1;
            total += before.bytes;
        }
        from
    }

    /// Returns the change that brings a catalog back to these groups.
    pub(super) fn to_commit(&self, index: Uuid, shard: u32, committed_below: u64) -> TombstoneChange {
        TombstoneChange { index, shard, kept: 0..committed_below, added: Vec::new() }
    }

    /// Takes note of a change that was committed.
    pub(super) fn changed(&mut self, change: &TombstoneChange) {
        self.0.retain(|group| change.kept.contains(&group.first_seq_no));
        if !change.added.is_empty() {
            let bytes = change.added.iter().map(Bytes::len).sum();
            self.0.push(Group { first_seq_no: change.kept.end, bytes });
        }
    }
}

impl Shard {
    /// Encodes the tombstones of the deletions from the checkpoint to before a sequence number, for the commit that moves
    /// the checkpoint there: a stripe at a time, beside readers and writers. What they change meanwhile is behind
    /// the new checkpoint.
    pub(super) fn collect_tombstones(&self, below: u64) -> TombstoneChange {
        let (groups, committed, first) = {
            let state = self.state.read();
            let first = state.versions.first_tombstone().map(|(seq_no, _)| seq_no);
            (state.tombstones.clone(), state.committed_below.0, first)
        };
        let mut from = committed;
        let mut added = self.encode_tombstones(&(from..below));
        let forgotten = groups.forgotten(committed, first);
        if !added.is_empty() {
            let merged = groups.merged(added.iter().map(Bytes::len).sum()).max(forgotten);
            if let Some(group) = groups.0.get(merged) {
                from = group.first_seq_no;
                added = self.encode_tombstones(&(from..below));
            }
        }
        let start = groups.0.get(forgotten).map_or(from, |group| group.first_seq_no.min(from));
        TombstoneChange { index: self.index, shard: self.number, kept: start..from, added }
    }

    fn encode_tombstones(&self, range: &Range<u64>) -> Vec<Bytes> {
        let mut parts = TombstoneEncoder::default();
        let mut stripe = 0;
        loop {
            let state = self.state.read();
            if stripe >= state.versions.stripes() {
                return parts.finish();
            }
            state.versions.tombstones_of(stripe, range, |id, entry| parts.push(id, entry));
            stripe += 1;
        }
    }

    /// Takes up tombstones that the catalog has, but for those that are older than `gc_ms`. Parts come in the order of
    /// the catalog.
    ///
    /// # Errors
    /// [`millrace_runtime::Error::Corrupt`].
    pub(crate) fn remember(&self, chunk: &TombstoneChunk, now_ms: i64, gc_ms: i64) -> Result<()> {
        let decoded = decode(&chunk.encoded).map_err(|reason| Error::Corrupt {
            file: format!("catalog, tombstones of shard {} of index {}", self.number, self.index),
            offset: 0,
            reason,
        })?;
        let mut state = self.state.write();
        state.tombstones.load(chunk.first_seq_no, chunk.encoded.len());
        let below = state.committed_below.0;
        for (id, entry) in decoded {
            // What is behind the checkpoint is of a commit that was taken back; the log knows better.
            if entry.seq_no < below
                && now_ms.saturating_sub(entry.deleted_at_ms) < gc_ms
                && state.versions.get(&id).is_none_or(|known| known.seq_no < entry.seq_no)
            {
                state.versions.insert(id, entry);
            }
        }
        Ok(())
    }

    /// The sequence number before which tombstones are forgotten so that at most `most` of those that are committed remain.
    pub(super) fn tombstones_to_forget(&self, most: usize) -> u64 {
        let (count, committed) = {
            let state = self.state.read();
            (state.versions.tombstones(), state.committed_below.0)
        };
        if count <= most {
            return 0;
        }
        let mut seq_nos = Vec::with_capacity(count);
        let stripes = self.state.read().versions.stripes();
        for stripe in 0..stripes {
            let state = self.state.read();
            state.versions.tombstones_of(stripe, &(0..committed), |_, entry| seq_nos.push(entry.seq_no));
        }
        let Some(excess @ 1..) = seq_nos.len().checked_sub(most) else { return 0 };
        let (_, last, _) = seq_nos.select_nth_unstable(excess - 1);
        *last + 1
    }
}

/// Decodes tombstones, or says what is wrong with the bytes.
fn decode(bytes: &[u8]) -> Result<Vec<(Box<str>, VersionEntry)>, String> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let (mut rest, checksum) = bytes.split_last_chunk::<4>().ok_or("cut off")?;
    if crc32c::crc32c(rest) != u32::from_le_bytes(*checksum) {
        return Err("the checksum of the tombstones is wrong".to_owned());
    }
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at_checked(count).ok_or("cut off")?;
        rest = left;
        Ok::<_, String>(taken)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let count = number(take(8)?);
    let mut tombstones = Vec::new();
    for _ in 0..count {
        let fixed = take(FIXED)?;
        let entry = VersionEntry {
            version: number(&fixed[..8]),
            seq_no: number(&fixed[8..16]),
            primary_term: number(&fixed[16..24]),
            location: None,
            deleted_at_ms: number(&fixed[24..32]).cast_signed(),
        };
        let id = take(number(&fixed[32..]) as usize)?;
        let id = std::str::from_utf8(id).map_err(|error| format!("id of a tombstone: {error}"))?;
        tombstones.push((id.into(), entry));
    }
    match take(1) {
        Ok(_) => Err("bytes too many behind the tombstones".to_owned()),
        Err(_) => Ok(tombstones),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back_and_nothing_else_is_accepted() {
        let entry = |version, seq_no, deleted_at_ms| VersionEntry {
            version,
            seq_no,
            primary_term: 3,
            location: None,
            deleted_at_ms,
        };
        let given =
            [("a", entry(1, 2, 1_700_000_000_000)), ("ünï", entry(u64::MAX, 9, -5)), ("", entry(0, 0, 0))];
        let encode = |given: &[(&str, VersionEntry)]| {
            let mut parts = TombstoneEncoder::default();
            given.iter().for_each(|(id, entry)| parts.push(id, entry));
            parts.finish()
        };
        let bytes = encode(&given).remove(0);
        let found = decode(&bytes).unwrap();
        assert_eq!(format!("{found:?}"), format!("{given:?}"));
        assert!(encode(&[]).is_empty() && decode(&[]).unwrap().is_empty());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err() || at == 0);
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            assert!(decode(&flipped).is_err(), "byte {at}");
        }
    }

    fn groups(sizes: &[(u64, usize)]) -> Groups {
        Groups(
            sizes
                .iter()
                .map(|(first_seq_no, bytes)| Group { first_seq_no: *first_seq_no, bytes: *bytes })
                .collect(),
        )
    }

    #[test]
    fn parts_are_bounded() {
        let entry = VersionEntry { version: 1, seq_no: 2, primary_term: 1, location: None, deleted_at_ms: 3 };
        let mut parts = TombstoneEncoder::default();
        (0..300_000).for_each(|id| parts.push(&format!("document-{id:020}"), &entry));
        let parts = parts.finish();
        assert_eq!(parts.len(), 5);
        assert!(parts.iter().all(|part| part.len() <= PART_BYTES + 100));
        assert_eq!(parts.iter().map(|part| decode(part).unwrap().len()).sum::<usize>(), 300_000);
    }

    #[test]
    fn groups_go_once_all_of_their_tombstones_are_forgotten() {
        let groups = groups(&[(0, 9), (10, 9), (20, 9)]);
        for (first, forgotten) in
            [(Some(0), 0), (Some(9), 0), (Some(10), 1), (Some(25), 2), (Some(30), 3), (None, 3)]
        {
            assert_eq!(groups.forgotten(30, first), forgotten, "{first:?}");
        }
    }

    #[test]
    fn many_small_flushes_leave_few_groups_and_write_little_again() {
        let mut groups = Groups::default();
        let (mut written, one) = (0, 1_000);
        for flush in 0..20_000u64 {
            let from = groups.merged(one);
            let again: usize = groups.0[from..].iter().map(|group| group.bytes).sum();
            let end = groups.0.get(from).map_or(flush, |group| group.first_seq_no);
            let added = vec![Bytes::from(vec![0; one + again])];
            written += one + again;
            groups.changed(&TombstoneChange { index: Uuid::nil(), shard: 0, kept: 0..end, added });
            assert!(groups.0.is_sorted_by_key(|group| group.first_seq_no));
        }
        assert!(groups.0.len() < 30, "{}", groups.0.len());
        assert!(written < 20_000 * one * 14, "{written}");
    }
}
