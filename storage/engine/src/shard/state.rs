//! State behind the shard's lock: the memtable, the versions of unflushed ids, and the deletions of every segment ahead of the
//! visible ones. [`super::access`] says who may hold it, and for how long.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use millrace_catalog::SegmentRecord;
use millrace_catalog::routing::looks_generated;
use millrace_runtime::{Error, Result};
use millrace_segment::{
    DeletesFile, DocumentLocation, Env, Fingerprint, MemChunk, Segment, SegmentView, StoredSegment,
    is_damage, next_key,
};
use roaring::RoaringBitmap;

use super::decide::Current;
use super::policy::SegmentSize;
use super::tombstones::Groups;
use super::versions::Versions;

/// Location of a row: a segment (or a tail that will become one) and a row number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u64,
    pub(crate) row: u32,
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
    /// Time at which its first operation arrived.
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
    /// The committed file of deletions.
    pub(crate) deletes: DeletesFile,
    /// In memory only: first frame of its rows, bytes accounted, when its first row arrived.
    pub(crate) first_frame: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) since_ms: i64,
}

/// A segment as the catalog and the object store have it at the start.
#[derive(Debug)]
pub(crate) struct LoadedSegment {
    pub(crate) record: SegmentRecord,
    pub(crate) deletes: DeletesFile,
    /// Rows of that file.
    pub(crate) deleted: RoaringBitmap,
}

impl SegmentState {
    /// Makes the states of loaded segments, in the order of their sequence numbers.
    pub(crate) fn load_all(loaded: Vec<LoadedSegment>, env: &Env) -> Vec<Self> {
        let load = |LoadedSegment { record, deletes, deleted }| Self {
            deletes,
            published: Arc::new(deleted.clone()),
            live: deleted,
            segment: Arc::new(Segment::stored(
                next_key(),
                env.compute.clone(),
                StoredSegment::new(record, env.clone()),
            )),
            first_frame: None,
            bytes: 0,
            since_ms: 0,
        };
        let mut segments: Vec<Self> = loaded.into_iter().map(load).collect();
        segments.sort_by_key(|s| s.segment.as_stored().map_or(0, |s| s.record.min_seq_no));
        segments
    }

    /// Returns the record of a stored segment as it is committed.
    pub(crate) fn record(&self) -> Option<SegmentRecord> {
        let mut record = self.segment.as_stored()?.record.clone();
        self.deletes.write_to(&mut record);
        Some(record)
    }

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

/// Lookups of ids in stored segments, without the shard's lock: sidecars may lie on disk or in a remote store, and nobody is to
/// wait for them under the lock.
#[derive(Debug, Default)]
pub(crate) struct SegmentLookups {
    /// Segments that were asked, and whether they could answer.
    asked: Vec<(u64, bool)>,
    found: HashMap<Box<str>, Vec<(u64, DocumentLocation)>, RandomState>,
}

impl SegmentLookups {
    /// Asks segments for ids, beside those asked before. Blocks. A segment that cannot answer is not
    /// asked again: whoever needs its answer gets its error.
    pub(crate) fn probe<'a>(&mut self, segments: &[Arc<Segment>], ids: impl Iterator<Item = &'a str>) {
        self.asked.extend(segments.iter().map(|segment| (segment.key(), true)));
        if segments.is_empty() {
            return;
        }
        let ids: Vec<(&str, Fingerprint)> = ids.map(|id| (id, Fingerprint::new(id))).collect();
        if ids.is_empty() {
            return;
        }
        for segment in segments {
            match segment.find_all(&ids) {
                Ok(rows) => {
                    for (place, located) in rows {
                        let found = self.found.entry(ids[place].0.into()).or_default();
                        found.push((segment.key(), located));
                    }
                }
                Err(_) => self.cannot_answer(segment.key()),
            }
        }
    }

    fn cannot_answer(&mut self, segment: u64) {
        for (key, answered) in &mut self.asked {
            *answered &= *key != segment;
        }
    }

    /// Rows of an id in a segment; `None` where the segment was not asked or could not answer.
    fn rows(&self, id: &str, segment: u64) -> Option<impl Iterator<Item = DocumentLocation> + '_> {
        self.asked.contains(&(segment, true)).then(|| {
            let found = self.found.get(id).map(Vec::as_slice).unwrap_or_default();
            found.iter().filter(move |(key, _)| *key == segment).map(|(_, located)| *located)
        })
    }
}

/// Reason for which a shard is out of use.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    /// A file is damaged or missing, without which the shard would hide or revive documents.
    File { file: String, offset: u64, reason: String },
    /// This version does not accept the settings or the mapping of the index.
    Unsupported { index: Arc<str>, reason: String },
}

impl Damage {
    /// Takes what an error says of a damaged or missing file.
    pub(crate) fn new(error: &Error) -> Option<Self> {
        match error {
            Error::Corrupt { file, offset, reason } => {
                Some(Self::File { file: file.clone(), offset: *offset, reason: reason.clone() })
            }
            error if is_damage(error) => {
                Some(Self::File { file: "a segment".to_owned(), offset: 0, reason: error.to_string() })
            }
            _ => None,
        }
    }

    /// Returns the error of requests that need the shard.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::File { file, offset, reason } => Error::Corrupt { file, offset, reason },
            Self::Unsupported { index, reason } => {
                Error::IndexUnsupported { index: index.to_string(), reason }
            }
        }
    }
}

/// A document found by id.
#[derive(Debug)]
pub(crate) struct FoundDocument {
    pub(crate) current: Current,
    pub(crate) location: Option<Location>,
}

impl FoundDocument {
    fn at(segment: u64, located: DocumentLocation) -> Self {
        let DocumentLocation { row, version, seq_no, primary_term } = located;
        Self {
            current: Current { live: true, version, seq_no, primary_term },
            location: Some(Location { segment, row }),
        }
    }
}

/// Bytes of the ids and versions of deletions, which a flush stores beside the segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeletionBytes {
    /// Those since the last refresh.
    pub(super) fresh: u64,
    /// Those that the next flush stores.
    pub(super) frozen: u64,
}

impl DeletionBytes {
    pub(super) fn all(self) -> u64 {
        self.fresh + self.frozen
    }

    /// Takes note that a refresh has shown what was fresh when it began.
    pub(super) fn freeze(&mut self, fresh: u64) {
        let fresh = fresh.min(self.fresh);
        self.fresh -= fresh;
        self.frozen += fresh;
    }

    /// Takes note that a flush has stored what was frozen when it began; returns the bytes that are free.
    pub(super) fn store(&mut self, frozen: u64) -> u64 {
        let stored = frozen.min(self.frozen);
        self.frozen -= stored;
        stored
    }
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
    pub(crate) versions: Versions,
    /// The tombstones that the catalog has.
    pub(super) tombstones: Groups,
    /// The checkpoint at the start: tombstones below it came from the catalog.
    pub(super) loaded_below: u64,
    /// Bytes that are accounted for deletions that are not in committed segments.
    pub(super) deletions: DeletionBytes,
    /// `true` if a deletion is not published yet.
    pub(crate) dirty_deletes: bool,
    /// `true` if the index was deleted: nothing is applied any more, and no memory is accounted.
    pub(crate) closed: bool,
    /// Damage of a shard that cannot be used: it answers nothing, takes nothing, and keeps its part of the log for the day when
    /// the file is restored.
    pub(crate) damage: Option<Damage>,
}

impl State {
    /// Refuses the use of a damaged shard.
    pub(crate) fn check(&self) -> Result<()> {
        match self.damage.clone() {
            None => Ok(()),
            Some(damage) => Err(damage.into_error()),
        }
    }

    /// Finds the current state of a document. Asks segments that were not probed itself.
    pub(crate) fn find(&self, id: &str, probed: &SegmentLookups) -> Result<Option<FoundDocument>> {
        self.check()?;
        self.find_unchecked(id, probed)
    }

    /// Finds the current state of a document, also where the shard is out of use.
    pub(crate) fn find_unchecked(&self, id: &str, probed: &SegmentLookups) -> Result<Option<FoundDocument>> {
        match self.find_unflushed(id) {
            Some(found) if self.is_doubtful(&found) => {
                let stored = self.find_stored(id, probed)?;
                Ok(stored.filter(|stored| stored.current.seq_no > found.current.seq_no).or(Some(found)))
            }
            Some(found) => Ok(Some(found)),
            None => self.find_stored(id, probed),
        }
    }

    /// Returns whether it is a tombstone from the catalog, which may know of an older deletion of an id that lives in a stored
    /// segment. A row of it there that is not deleted is newer: the deletions of rows are committed with the tombstones.
    pub(crate) fn is_doubtful(&self, found: &FoundDocument) -> bool {
        found.location.is_none() && found.current.seq_no < self.loaded_below
    }

    /// Finds a document, or its tombstone, without looking into stored segments.
    pub(crate) fn find_unflushed(&self, id: &str) -> Option<FoundDocument> {
        if let Some(entry) = self.versions.get(id) {
            let current = Current {
                live: entry.location.is_some(),
                version: entry.version,
                seq_no: entry.seq_no,
                primary_term: entry.primary_term,
            };
            return Some(FoundDocument { current, location: entry.location });
        }
        // Client-chosen ids in memory are all in `versions`.
        if !looks_generated(id) {
            return None;
        }
        for tail in self.frozen.iter().chain([&self.tail]) {
            if let Some((row, chunk, at)) = tail.find_generated(id)
                && !tail.deleted.contains(row)
            {
                let located = DocumentLocation {
                    row,
                    version: chunk.versions[at],
                    seq_no: chunk.seq_nos[at],
                    primary_term: chunk.primary_term,
                };
                return Some(FoundDocument::at(tail.key, located));
            }
        }
        self.segments.iter().rev().find_map(|state| {
            let located = state.segment.as_memory()?.find_generated(id)?;
            (!state.live.contains(located.row)).then(|| FoundDocument::at(state.segment.key(), located))
        })
    }

    fn find_stored(&self, id: &str, probed: &SegmentLookups) -> Result<Option<FoundDocument>> {
        for state in self.segments.iter().rev().filter(|s| s.segment.as_stored().is_some()) {
            let key = state.segment.key();
            let found: Vec<DocumentLocation> = match probed.rows(id, key) {
                Some(rows) => rows.collect(),
                None => state.segment.find(id, Fingerprint::new(id))?,
            };
            if let Some(located) = found.into_iter().find(|located| !state.live.contains(located.row)) {
                return Ok(Some(FoundDocument::at(key, located)));
            }
        }
        Ok(None)
    }

    /// Stored segments that were not asked yet.
    pub(crate) fn unprobed(&self, probed: &SegmentLookups) -> Vec<Arc<Segment>> {
        self.segments
            .iter()
            .map(|state| &state.segment)
            .filter(|s| s.as_stored().is_some() && !probed.asked.iter().any(|(key, _)| *key == s.key()))
            .cloned()
            .collect()
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

    /// Returns whether anything is unknown to searches.
    pub(crate) fn dirty(&self) -> bool {
        self.tail.rows > 0 || !self.frozen.is_empty() || self.dirty_deletes
    }

    /// First frame that is not in committed segments, if any is.
    pub(crate) fn first_uncommitted_frame(&self) -> Option<u64> {
        if self.damage.is_some() && !self.closed {
            return Some(self.committed_below.1);
        }
        let memory = self.segments.iter().filter_map(|s| s.first_frame);
        let tails = self.frozen.iter().chain([&self.tail]).filter_map(|t| t.first_frame);
        let deletes = (self.committed_below.0 < self.frozen_below.0).then_some(self.committed_below.1);
        memory.chain(tails).chain(deletes).min()
    }

    /// The segments in the object store.
    /// Counts segments in memory.
    pub(crate) fn memory_segments(&self) -> usize {
        self.segments.iter().filter(|s| s.segment.as_memory().is_some()).count()
    }

    /// Bytes of documents that are not in committed segments.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let memory: u64 =
            self.segments.iter().filter(|s| s.segment.as_memory().is_some()).map(|s| s.bytes).sum();
        let tails = self.frozen.iter().map(|t| t.bytes).sum::<u64>() + self.tail.bytes;
        memory + tails + self.deletions.all()
    }

    /// Returns the arrival time of the oldest operation that is not in committed segments.
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
