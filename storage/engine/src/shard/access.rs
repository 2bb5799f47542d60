//! Access to a shard's state: who may look at it, who may change it, and for how long.
//!
//! Two locks. The *write lock* ([`Shard::write_lock`]) orders all changes: a write holds it from its decisions to
//! their application, some ten milliseconds for a large bulk; a refresh, a commit and a clean-up hold it for
//! what they change. The state itself is behind a lock that is only ever held for moments: whoever
//! reads it shares it ([`StateReadGuard`]), and whoever has the write lock takes it alone for a slice of the change
//! at a time ([`WriteLock::apply`]). So a get never waits for a bulk.
//!
//! A slice leaves nothing half done of any document: rows come first, and a document's version, its
//! location and the deletion of its older row change together. What a refresh or commit needs whole, it
//! sees whole, because it has the write lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_catalog::ShardCheckpoint;
use millrace_runtime::Result;
use millrace_runtime::sync::{AsyncMutexGuard, RwLockReadGuard, RwLockWriteGuard};
use millrace_segment::{MemChunk, SegmentView, next_key};

use super::decide::Current;
use super::state::{Damage, Location, SegmentLookups, State, Tail};
use super::versions::VersionEntry;
use super::{MAX_MEMORY_SEGMENTS, MAX_TOMBSTONES, MAX_VERSIONS, Shard};

/// Operations applied under one hold of the state's lock: well under a millisecond.
const SLICE: usize = 256;
/// Bytes of a tail, of which one in-memory segment is made, but for its last chunk: with it, a column has less than
/// 2 GiB of strings, since a frame has at most 1 GiB of documents.
const MAX_TAIL_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 512 << 20 };
/// Bytes that a deletion is accounted with beside its id: the version that is kept of it, and its share of the table of them.
const DELETION_BYTES: u64 = 128;
/// Stripes of the versions that are cleaned under one hold of the write lock.
const STRIPES_A_LOCK: usize = 8;

/// An operation as it is applied, after its version was decided.
#[derive(Debug)]
pub(crate) struct AppliedOperation {
    pub(crate) id: Box<str>,
    pub(crate) seq_no: u64,
    /// Term that it was decided in, which in a replay is an earlier one than the shard's.
    pub(crate) primary_term: u64,
    pub(crate) version: u64,
    /// Row of the batch's chunk; `None` for a delete.
    pub(crate) row: Option<u32>,
    /// The older row that it deletes: what it replaces, or, where a later operation of the batch
    /// replaces it in turn, its own.
    pub(crate) deletes: Option<Location>,
    /// `true` if a later operation of the batch is on the same document.
    pub(crate) superseded: bool,
}

/// Change of a shard by a batch.
#[derive(Debug)]
pub(crate) struct Change {
    /// Operations in order, without gaps in their sequence numbers.
    pub(crate) applied: Vec<AppliedOperation>,
    /// `true` if the server generated all ids of the batch.
    pub(crate) generated: bool,
    pub(crate) chunk: Option<MemChunk>,
    /// Rows of the chunk that never became documents: their operations were refused.
    pub(crate) unused: Vec<u32>,
}

/// The shard's state, shared with other readers.
#[derive(Debug)]
pub(crate) struct StateReadGuard<'a> {
    state: RwLockReadGuard<'a, State>,
    shard: &'a Shard,
}

/// The right to change the shard's state.
#[derive(Debug)]
pub(crate) struct WriteLock<'a> {
    _lock: AsyncMutexGuard<'a>,
    pub(super) shard: &'a Shard,
}

impl Shard {
    /// Looks at the state. Waits for moments at most. The result is held over no await, and no second
    /// one is taken meanwhile.
    pub(crate) fn read(&self) -> StateReadGuard<'_> {
        StateReadGuard { state: self.state.read(), shard: self }
    }

    /// Waits for the right to change the state.
    pub(crate) async fn write_lock(&self) -> WriteLock<'_> {
        WriteLock { _lock: self.write_lock.lock().await, shard: self }
    }

    /// Waits for the right to change the state, blocking the thread, which is none of the runtime's own.
    pub(crate) fn write_lock_blocking(&self) -> WriteLock<'_> {
        WriteLock { _lock: self.write_lock.blocking_lock(), shard: self }
    }

    /// Removes versions whose rows were flushed, tombstones older than `gc_ms`, and the first of those beyond
    /// [`MAX_TOMBSTONES`]. Blocks.
    pub(crate) fn clean_versions(&self, now_ms: i64, gc_ms: i64) {
        let forgotten_below = self.tombstones_to_forget(MAX_TOMBSTONES);
        let oldest_ms = now_ms.saturating_sub(gc_ms);
        let all = self.state.read().versions.stripes();
        for stripes in (0..all).step_by(STRIPES_A_LOCK) {
            let stripes: Vec<usize> = {
                let state = self.state.read();
                let needed =
                    |stripe: &usize| forgotten_below > 0 || state.versions.needs_cleaning(*stripe, oldest_ms);
                (stripes..stripes + STRIPES_A_LOCK).filter(needed).collect()
            };
            if stripes.is_empty() {
                continue;
            }
            let write = self.write_lock_blocking();
            for stripe in stripes {
                let mut state = write.state();
                let committed = state.committed_below.0;
                state.versions.clean(stripe, &|entry| {
                    entry.location.is_none()
                        && entry.seq_no < committed
                        && (entry.deleted_at_ms <= oldest_ms || entry.seq_no < forgotten_below)
                });
                RwLockWriteGuard::unlock_fair(state);
            }
        }
    }
}

impl<'a> WriteLock<'a> {
    /// Looks at the state, which does not change while the lock is held.
    pub(crate) fn read(&self) -> StateReadGuard<'a> {
        self.shard.read()
    }

    /// The state, to be changed. Nobody reads meanwhile, so it is held for moments only.
    pub(super) fn state(&self) -> RwLockWriteGuard<'a, State> {
        self.shard.state.write()
    }

    /// Puts the shard out of use with all that it has, until [`Shard::end_damage`].
    pub(crate) fn suspend(&self, damage: Damage) {
        self.state().damage = Some(damage);
        self.shard.is_damaged.store(true, Ordering::Relaxed);
    }

    /// Asks stored segments that came into being since `probed` was made.
    pub(crate) fn probe_rest<'b>(&self, probed: &mut SegmentLookups, ids: impl Iterator<Item = &'b str>) {
        let segments = self.read().state.unprobed(probed);
        probed.probe(&segments, ids);
    }

    /// Ends the tail where a chunk of so many bytes would make it too large. To be called before anything is
    /// decided about the chunk, whose rows are located in the tail.
    pub(crate) fn make_room(&self, bytes: u64) {
        let full = |tail: &Tail| tail.rows > 0 && tail.bytes.saturating_add(bytes) > MAX_TAIL_BYTES;
        if !full(&self.read().state.tail) {
            return;
        }
        let mut state = self.state();
        let tail = std::mem::replace(&mut state.tail, Tail::new(next_key()));
        state.frozen.push(tail);
    }

    /// Raises the term, as every recovery does.
    pub(crate) fn raise_term(&self, at_least: u64) {
        let mut state = self.state();
        state.primary_term = state.primary_term.max(at_least);
    }

    /// Applies a batch that was decided under this lock and is in the log as `frame`. Returns the
    /// bytes of memory that it takes.
    pub(crate) fn apply(&self, change: Change, frame: u64, now_ms: i64) -> u64 {
        let Change { applied, generated, chunk, unused } = change;
        let deleting =
            applied.iter().filter(|op| op.row.is_none()).map(|op| DELETION_BYTES + op.id.len() as u64);
        let deleting: u64 = deleting.sum();
        let (tail, base, bytes) = {
            let mut state = self.state();
            if state.closed {
                // The index was deleted meanwhile, and what it takes is accounted no more.
                return 0;
            }
            let place = (state.tail.key, state.tail.rows);
            if let Some(last) = applied.last() {
                state.next_seq_no = last.seq_no + 1;
            }
            state.deletions.fresh += deleting;
            (place.0, place.1, deleting + self.add_rows(&mut state, chunk, &unused, frame, now_ms))
        };
        let mut applied = applied.into_iter().peekable();
        if generated {
            // Deletions have ids, so these are all rows, which their ids' order finds.
            return bytes;
        }
        while applied.peek().is_some() {
            let mut state = self.state();
            for op in applied.by_ref().take(SLICE) {
                if let Some(location) = op.deletes {
                    state.delete(location);
                }
                if op.superseded {
                    continue;
                }
                let entry = VersionEntry {
                    version: op.version,
                    seq_no: op.seq_no,
                    primary_term: op.primary_term,
                    location: op.row.map(|row| Location { segment: tail, row: base + row }),
                    deleted_at_ms: now_ms,
                };
                state.versions.insert(op.id, entry);
            }
            RwLockWriteGuard::unlock_fair(state);
        }
        bytes
    }

    fn add_rows(
        &self,
        state: &mut State,
        chunk: Option<MemChunk>,
        unused: &[u32],
        frame: u64,
        now_ms: i64,
    ) -> u64 {
        state.next_frame = frame + 1;
        let tail = &mut state.tail;
        if tail.first_frame.is_none() {
            tail.first_frame = Some(frame);
            tail.since_ms = now_ms;
        }
        let Some(chunk) = chunk else { return 0 };
        for row in unused {
            tail.deleted.insert(tail.rows + row);
        }
        let bytes = chunk.heap_bytes();
        tail.bytes += bytes;
        let indexed = u64::from(chunk.rows()) - unused.len() as u64;
        self.shard.counters.index.fetch_add(indexed, Ordering::Relaxed);
        tail.bases.push(tail.rows);
        tail.rows += chunk.rows();
        tail.chunks.push(Arc::new(chunk));
        bytes
    }
}

impl StateReadGuard<'_> {
    /// Finds the current state of a document.
    pub(crate) fn find(
        &self,
        id: &str,
        probed: &SegmentLookups,
    ) -> Result<Option<(Current, Option<Location>)>> {
        Ok(self.state.find(id, probed)?.map(|found| (found.current, found.location)))
    }

    /// Finds the current state of a document, also where the shard is out of use: for a replay of the log.
    pub(crate) fn find_unchecked(
        &self,
        id: &str,
        probed: &SegmentLookups,
    ) -> Result<Option<(Current, Option<Location>)>> {
        Ok(self.state.find_unchecked(id, probed)?.map(|found| (found.current, found.location)))
    }

    /// Sequence number for the next operation.
    pub(crate) fn next_seq_no(&self) -> u64 {
        self.state.next_seq_no
    }

    /// Term of this shard's writes.
    pub(crate) fn primary_term(&self) -> u64 {
        self.state.primary_term
    }

    /// The segments that searches see, and sequence number and frame below which all operations are in them.
    pub(crate) fn history(&self) -> (Vec<SegmentView>, (u64, u64)) {
        (self.state.views(), self.state.frozen_below)
    }

    /// Operations below this sequence number are in committed segments.
    pub(crate) fn committed_below(&self) -> u64 {
        self.state.committed_below.0
    }

    /// Operations of frames below this number are in committed segments.
    pub(crate) fn committed_frame(&self) -> u64 {
        self.state.committed_below.1
    }

    /// Returns the checkpoint of the shard's operations in segments, for the catalog.
    pub(crate) fn checkpoint(&self) -> ShardCheckpoint {
        self.shard.checkpoint(&self.state, self.state.committed_below)
    }

    /// Location that a row of the chunk to be applied next will have.
    pub(crate) fn location_of(&self, row: u32) -> Location {
        Location { segment: self.state.tail.key, row: self.state.tail.rows + row }
    }

    /// Refuses the use of a damaged shard.
    pub(crate) fn check(&self) -> Result<()> {
        self.state.check()
    }

    /// Returns whether anything is unknown to searches.
    pub(crate) fn dirty(&self) -> bool {
        self.state.dirty() || self.state.frozen_below.0 < self.state.next_seq_no
    }

    /// Returns whether a flush has anything to do.
    pub(crate) fn needs_flush(&self) -> bool {
        self.dirty() || self.first_uncommitted_frame().is_some()
    }

    /// Returns whether versions of ids are kept in memory.
    pub(crate) fn has_versions(&self) -> bool {
        self.state.versions.stripes() > 0
    }

    /// Returns whether somebody waits for a refresh, and milliseconds since the last one.
    pub(crate) fn refresh_wanted(&self, now_ms: i64) -> (bool, i64) {
        let waited = self.shard.waiting.load(Ordering::Acquire) > 0;
        (waited, now_ms - self.shard.last_refresh_ms.load(Ordering::Relaxed))
    }

    /// Returns whether the index was deleted: its operations go nowhere.
    pub(crate) fn closed(&self) -> bool {
        self.state.closed
    }

    /// First frame that is not in committed segments, if any is.
    pub(crate) fn first_uncommitted_frame(&self) -> Option<u64> {
        self.state.first_uncommitted_frame()
    }

    /// Returns whether there is too much besides bytes: segments that every search visits, or ids whose versions are kept in
    /// memory.
    pub(crate) fn crowded(&self) -> bool {
        // Tombstones that are remembered behind a flush are no reason for another one.
        let operations = self.state.next_seq_no.saturating_sub(self.state.committed_below.0);
        self.state.memory_segments() >= MAX_MEMORY_SEGMENTS
            || (self.state.versions.len() >= MAX_VERSIONS
                && operations >= MAX_VERSIONS as u64 / 2
                && self.state.first_uncommitted_frame().is_some())
    }

    /// Returns the time of the first tombstone that a clean-up could remove, or one that is gone since the last.
    pub(crate) fn oldest_tombstone_ms(&self) -> Option<i64> {
        let (seq_no, deleted_at_ms) = self.state.versions.first_tombstone()?;
        (seq_no < self.state.committed_below.0).then_some(deleted_at_ms)
    }

    /// Bytes of documents that are not in committed segments, and since when.
    pub(crate) fn unflushed(&self) -> (u64, Option<i64>) {
        (self.state.unflushed_bytes(), self.state.unflushed_since_ms())
    }
}
