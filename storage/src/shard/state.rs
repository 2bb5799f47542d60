//! What the shard's lock guards: the memtable, the versions of unflushed ids, and the deletions of
//! every segment ahead of what searches see.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use roaring::RoaringBitmap;

use super::decide::Current;
use super::policy::SegmentSize;
use crate::Result;
use crate::routing::looks_generated;
use crate::segment::{Fingerprint, Located, MemChunk, Segment, SegmentView};

/// Where a row is: a segment (or a tail that will become one) and a row number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u64,
    pub(crate) row: u32,
}

/// The last operation on an id that is not in a stored segment, or a tombstone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionEntry {
    pub(crate) version: u64,
    pub(crate) seq_no: u64,
    pub(crate) primary_term: u64,
    /// Where the document is; `None` for a tombstone.
    pub(crate) location: Option<Location>,
    /// When it was deleted, for tombstones.
    pub(crate) deleted_at_ms: i64,
}

/// Rows that no refresh has made a segment of yet.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Key of the in-memory segment that it will become.
    pub(crate) key: u64,
    pub(crate) chunks: Vec<Arc<MemChunk>>,
    /// First row of each chunk.
    pub(crate) bases: Vec<u32>,
    pub(crate) rows: u32,
    pub(crate) bytes: u64,
    pub(crate) deleted: RoaringBitmap,
    /// First frame with an operation in it, deletions included.
    pub(crate) first_frame: Option<u64>,
    /// When its first operation arrived.
    pub(crate) since_ms: i64,
}

impl Tail {
    pub(crate) fn new(key: u64) -> Self {
        Self {
            key,
            chunks: Vec::new(),
            bases: Vec::new(),
            rows: 0,
            bytes: 0,
            deleted: RoaringBitmap::new(),
            first_frame: None,
            since_ms: 0,
        }
    }

    /// Chunk and row in it of a row of the tail.
    pub(crate) fn chunk_of(&self, row: u32) -> Option<(&Arc<MemChunk>, u32)> {
        let at = self.bases.partition_point(|base| *base <= row).checked_sub(1)?;
        let row = row - self.bases[at];
        self.chunks.get(at).filter(|chunk| row < chunk.rows()).map(|chunk| (chunk, row))
    }

    fn find_generated(&self, id: &str) -> Option<(u32, &Arc<MemChunk>, usize)> {
        let mut base = 0;
        for chunk in &self.chunks {
            if chunk.generated {
                let at = partition(chunk, id);
                if at < chunk.rows() as usize && chunk.ids.borrow(at) == id.as_bytes() {
                    return Some((base + at as u32, chunk, at));
                }
            }
            base += chunk.rows();
        }
        None
    }
}

/// First row of a chunk of ascending ids whose id is not less than `id`.
fn partition(chunk: &MemChunk, id: &str) -> usize {
    let (mut low, mut high) = (0, chunk.rows() as usize);
    while low < high {
        let middle = low + (high - low) / 2;
        if chunk.ids.borrow(middle) < id.as_bytes() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// A segment of the shard and its deletions.
#[derive(Debug)]
pub(crate) struct SegmentState {
    pub(crate) segment: Arc<Segment>,
    /// All deletions applied.
    pub(crate) live: RoaringBitmap,
    /// The deletions that searches see.
    pub(crate) published: Arc<RoaringBitmap>,
    /// Generation of the deletes file, 0 for none.
    pub(crate) generation: u64,
    /// Deletions in that file.
    pub(crate) persisted: u64,
    /// In memory only: first frame of its rows, bytes accounted, when its first row arrived.
    pub(crate) first_frame: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) since_ms: i64,
}

impl SegmentState {
    pub(crate) fn view(&self) -> SegmentView {
        SegmentView { segment: Arc::clone(&self.segment), deleted: Arc::clone(&self.published) }
    }

    pub(crate) fn size(&self) -> SegmentSize {
        let bytes = self
            .segment
            .as_stored()
            .map_or(self.bytes, |s| s.record.data_bytes + s.record.bundle_bytes + s.record.ids_bytes);
        let rows = self.segment.rows();
        let deleted = u32::try_from(self.published.len()).unwrap_or(rows);
        let live = u64::from(rows - deleted.min(rows));
        let live_bytes = u128::from(bytes) * u128::from(live) / u128::from(rows.max(1));
        SegmentSize { live_bytes: live_bytes as u64, rows, deleted }
    }
}

/// What stored segments say of ids, asked before the shard was locked: sidecars may lie on disk or in
/// a remote store, and the lock must not wait for them.
#[derive(Debug, Default)]
pub(crate) struct Probed {
    /// Segments that were asked.
    keys: Vec<u64>,
    found: HashMap<Box<str>, Vec<(u64, Located)>, RandomState>,
}

impl Probed {
    /// Asks segments for ids. Blocks. A segment that cannot answer counts as not asked: whoever looks
    /// an id up in it gets its error.
    pub(crate) fn ask<'a>(segments: &[Arc<Segment>], ids: impl Iterator<Item = &'a str>) -> Self {
        let mut probed = Self { keys: segments.iter().map(|s| s.key()).collect(), found: HashMap::default() };
        if segments.is_empty() {
            return probed;
        }
        for id in ids {
            let fingerprint = Fingerprint::of(id);
            for segment in segments {
                match segment.find(id, fingerprint) {
                    Ok(rows) if rows.is_empty() => {}
                    Ok(rows) => {
                        let found = probed.found.entry(id.into()).or_default();
                        found.extend(rows.into_iter().map(|located| (segment.key(), located)));
                    }
                    Err(_) => probed.keys.retain(|key| *key != segment.key()),
                }
            }
        }
        probed
    }

    /// Rows of an id in a segment; `None` where the segment was not asked.
    fn rows(&self, id: &str, segment: u64) -> Option<impl Iterator<Item = Located> + '_> {
        self.keys.contains(&segment).then(|| {
            let found = self.found.get(id).map(Vec::as_slice).unwrap_or_default();
            found.iter().filter(move |(key, _)| *key == segment).map(|(_, located)| *located)
        })
    }
}

/// A document found by id.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) current: Current,
    pub(crate) location: Option<Location>,
}

/// State of a shard under its lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) next_seq_no: u64,
    pub(crate) primary_term: u64,
    /// The frame after the last one applied.
    pub(crate) next_frame: u64,
    pub(crate) tail: Tail,
    /// Tails that a refresh is turning into segments.
    pub(crate) frozen: Vec<Tail>,
    /// Operations below this `(seq_no, frame)` are in segments, in memory or stored.
    pub(crate) frozen_below: (u64, u64),
    /// Operations below this `(seq_no, frame)` are in committed segments.
    pub(crate) committed_below: (u64, u64),
    pub(crate) segments: Vec<SegmentState>,
    pub(crate) versions: HashMap<Box<str>, VersionEntry, RandomState>,
    /// Whether a deletion is not published yet.
    pub(crate) dirty_deletes: bool,
    /// Whether the index was deleted: nothing is applied any more, and no memory is accounted.
    pub(crate) closed: bool,
}

impl State {
    /// Finds the current state of a document. Asks segments that were not probed itself: those that
    /// came into being since.
    pub(crate) fn find(&self, id: &str, probed: &Probed) -> Result<Option<Found>> {
        if let Some(entry) = self.versions.get(id) {
            let current = Current {
                live: entry.location.is_some(),
                version: entry.version,
                seq_no: entry.seq_no,
                primary_term: entry.primary_term,
            };
            return Ok(Some(Found { current, location: entry.location }));
        }
        let generated = looks_generated(id);
        if generated {
            for tail in self.frozen.iter().chain([&self.tail]) {
                if let Some((row, chunk, at)) = tail.find_generated(id)
                    && !tail.deleted.contains(row)
                {
                    return Ok(Some(Found {
                        current: Current {
                            live: true,
                            version: chunk.versions[at],
                            seq_no: chunk.seq_nos[at],
                            primary_term: chunk.primary_term,
                        },
                        location: Some(Location { segment: tail.key, row }),
                    }));
                }
            }
        }
        let fingerprint = Fingerprint::of(id);
        for state in self.segments.iter().rev() {
            // Client-chosen ids in memory are all in `versions`.
            let found: Vec<Located> = match state.segment.as_memory() {
                Some(_) if !generated => continue,
                Some(memory) => memory.find_generated(id).into_iter().collect(),
                None => match probed.rows(id, state.segment.key()) {
                    Some(rows) => rows.collect(),
                    None => state.segment.find(id, fingerprint)?,
                },
            };
            for located in found {
                if !state.live.contains(located.row) {
                    return Ok(Some(Found {
                        current: Current {
                            live: true,
                            version: located.version,
                            seq_no: located.seq_no,
                            primary_term: located.primary_term,
                        },
                        location: Some(Location { segment: state.segment.key(), row: located.row }),
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Marks a row as deleted.
    pub(crate) fn delete(&mut self, location: Location) {
        self.dirty_deletes = true;
        if let Some(tail) =
            self.frozen.iter_mut().chain([&mut self.tail]).find(|tail| tail.key == location.segment)
        {
            tail.deleted.insert(location.row);
        } else if let Some(state) = self.segments.iter_mut().find(|s| s.segment.key() == location.segment) {
            state.live.insert(location.row);
        }
    }

    /// Whether anything is unknown to searches.
    pub(crate) fn dirty(&self) -> bool {
        self.tail.rows > 0 || !self.frozen.is_empty() || self.dirty_deletes
    }

    /// First frame that is not in committed segments, if any is.
    pub(crate) fn first_uncommitted_frame(&self) -> Option<u64> {
        let memory = self.segments.iter().filter_map(|s| s.first_frame);
        let tails = self.frozen.iter().chain([&self.tail]).filter_map(|t| t.first_frame);
        let deletes = (self.committed_below.0 < self.frozen_below.0).then_some(self.committed_below.1);
        memory.chain(tails).chain(deletes).min()
    }

    /// Counts segments in memory.
    pub(crate) fn memory_segments(&self) -> usize {
        self.segments.iter().filter(|s| s.segment.as_memory().is_some()).count()
    }

    /// Bytes of documents that are not in committed segments.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let memory: u64 =
            self.segments.iter().filter(|s| s.segment.as_memory().is_some()).map(|s| s.bytes).sum();
        memory + self.frozen.iter().map(|t| t.bytes).sum::<u64>() + self.tail.bytes
    }

    /// When the oldest operation that is not in committed segments arrived.
    pub(crate) fn unflushed_since_ms(&self) -> Option<i64> {
        let memory = self.segments.iter().filter(|s| s.first_frame.is_some()).map(|s| s.since_ms);
        let tails =
            self.frozen.iter().chain([&self.tail]).filter(|t| t.first_frame.is_some()).map(|t| t.since_ms);
        memory.chain(tails).min()
    }

    /// The snapshot that searches see once what is unpublished is published.
    pub(crate) fn views(&self) -> Vec<SegmentView> {
        self.segments.iter().map(SegmentState::view).collect()
    }
}
