//! A shard: the unit of write ownership, an ordered log of operations and the segments that hold
//! their effect.
//!
//! The engine hands it prepared batches under its lock ([`Shard::lock`], [`Guard::apply`]); it
//! turns the memtable's tail into searchable segments ([`Shard::refresh`]), writes those out
//! (`commit.rs`) and answers gets. What searches see is replaced as a whole by a refresh, so that
//! new rows appear together with the deletions that they cause.
//!
//! Locks, in the order in which they are taken: `committing` (one catalog commit at a time),
//! `refreshing` (one change of the published view at a time), the state. The state's lock is never
//! held over an await.

mod commit;
mod decide;
mod policy;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Mutex as AsyncMutex, watch};
use uuid::Uuid;

pub(crate) use self::commit::Services;
pub(crate) use self::decide::{Current, Wanted, decide};
pub(crate) use self::policy::{RefreshFacts, SEARCH_IDLE_MS, refresh_due};
pub(crate) use self::state::{Location, Probed, State};
use self::state::{SegmentState, Tail, VersionEntry};
use crate::catalog::{SegmentRecord, ShardCheckpoint};
use crate::mapping::Mapping;
use crate::segment::{Env, MemChunk, Memory, RowParts, Segment, SegmentView, Stored};
use crate::{Lane, Result, SegmentFigures, ShardFigures};

/// In-memory segments of a shard beyond which it is flushed.
const MAX_MEMORY_SEGMENTS: usize = 64;
/// Versions of ids in memory beyond which a shard is flushed.
const MAX_VERSIONS: usize = 1_000_000;

/// Keys of segments are unique in the process.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

pub(crate) fn next_key() -> u64 {
    NEXT_KEY.fetch_add(1, Ordering::Relaxed)
}

/// Counters since start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) index: AtomicU64,
    pub(crate) delete: AtomicU64,
    pub(crate) get: AtomicU64,
    pub(crate) refresh: AtomicU64,
    pub(crate) flush: AtomicU64,
    /// Flushes that nobody asked for, among those.
    pub(crate) periodic_flush: AtomicU64,
    pub(crate) merge: AtomicU64,
    pub(crate) query: AtomicU64,
}

/// A shard of an index.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) index: Uuid,
    pub(crate) number: u32,
    /// The index's mapping, which only grows: what is loaded after rows were taken up knows their paths.
    mapping: Arc<ArcSwap<Mapping>>,
    state: Mutex<State>,
    published: ArcSwap<Vec<SegmentView>>,
    committing: AsyncMutex<()>,
    refreshing: AsyncMutex<()>,
    /// One flush at a time; one compaction at a time; both may run at once.
    flushing: AsyncMutex<()>,
    compacting: AsyncMutex<()>,
    /// Segments of commits that failed without telling whether they happened; `None`: no such commit.
    doubtful: Mutex<Option<Vec<Uuid>>>,
    /// Sequence number below which everything is searchable.
    searchable: watch::Sender<u64>,
    waiting: AtomicU64,
    last_refresh_ms: AtomicI64,
    pub(crate) counters: Counters,
}

/// An operation as it is applied, after its version was decided.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) id: Box<str>,
    pub(crate) seq_no: u64,
    pub(crate) version: u64,
    /// Row of the batch's chunk; `None` for a delete.
    pub(crate) row: Option<u32>,
    /// The older version that it replaces.
    pub(crate) replaces: Option<Location>,
}

/// The shard's state, locked.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    state: MutexGuard<'a, State>,
    shard: &'a Shard,
}

impl Shard {
    /// Makes a shard from what the catalog holds; `segments` come with their deletions.
    pub(crate) fn new(
        index: Uuid,
        number: u32,
        mapping: Arc<ArcSwap<Mapping>>,
        checkpoint: Option<&ShardCheckpoint>,
        segments: Vec<(SegmentRecord, roaring::RoaringBitmap)>,
        env: &Env,
    ) -> Self {
        let mut segments: Vec<SegmentState> = segments
            .into_iter()
            .map(|(record, deleted)| SegmentState {
                generation: record.delete_generation,
                persisted: deleted.len(),
                published: Arc::new(deleted.clone()),
                live: deleted,
                segment: Arc::new(Segment::stored(
                    next_key(),
                    env.compute.clone(),
                    Stored::new(record, env.clone()),
                )),
                first_frame: None,
                bytes: 0,
                since_ms: 0,
            })
            .collect();
        segments.sort_by_key(|s| s.segment.as_stored().map_or(0, |s| s.record.min_seq_no));
        let below = checkpoint.map_or((0, 0), |c| (c.next_seq_no, c.next_frame));
        let state = State {
            next_seq_no: below.0,
            // Without a checkpoint it is new, or was in its first term.
            primary_term: checkpoint.map_or(1, |c| c.primary_term),
            next_frame: below.1,
            tail: Tail::new(next_key()),
            frozen: Vec::new(),
            frozen_below: below,
            committed_below: below,
            segments,
            versions: hashbrown::HashMap::default(),
            dirty_deletes: false,
            closed: false,
        };
        Self {
            index,
            number,
            mapping,
            published: ArcSwap::from_pointee(state.views()),
            searchable: watch::Sender::new(below.0),
            state: Mutex::new(state),
            committing: AsyncMutex::new(()),
            refreshing: AsyncMutex::new(()),
            flushing: AsyncMutex::new(()),
            compacting: AsyncMutex::new(()),
            doubtful: Mutex::new(None),
            waiting: AtomicU64::new(0),
            last_refresh_ms: AtomicI64::new(0),
            counters: Counters::default(),
        }
    }

    /// Locks the state. Blocks; never held over an await.
    pub(crate) fn lock(&self) -> Guard<'_> {
        Guard { state: self.state.lock(), shard: self }
    }

    /// Locks the state if that needs no waiting.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_>> {
        Some(Guard { state: self.state.try_lock()?, shard: self })
    }

    /// Asks the stored segments for ids, without holding the lock meanwhile. Blocks on their files.
    pub(crate) fn probe<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Probed {
        let segments: Vec<Arc<Segment>> = {
            let state = self.state.lock();
            state.segments.iter().map(|s| &s.segment).filter(|s| s.as_stored().is_some()).cloned().collect()
        };
        Probed::ask(&segments, ids)
    }

    /// Returns the segments that searches see.
    pub(crate) fn view(&self) -> Arc<Vec<SegmentView>> {
        self.published.load_full()
    }

    /// Reads a document; `realtime` sees unrefreshed writes. Blocks, so compute threads call it.
    pub(crate) fn get(&self, id: &str, realtime: bool) -> Result<Option<crate::segment::StoredRow>> {
        self.counters.get.fetch_add(1, Ordering::Relaxed);
        if !realtime {
            return self.get_published(id);
        }
        let probed = self.probe(std::iter::once(id));
        let (segment, row) = {
            let state = self.state.lock();
            let Some(location) = state.find(id, &probed)?.and_then(|found| found.location) else { return Ok(None) };
            if let Some(tail) =
                state.frozen.iter().chain([&state.tail]).find(|tail| tail.key == location.segment)
            {
                return Ok(tail.chunk_of(location.row).map(|(chunk, row)| tail_row(chunk, row)));
            }
            let Some(found) = state.segments.iter().find(|s| s.segment.key() == location.segment) else {
                return Ok(None);
            };
            (Arc::clone(&found.segment), location.row)
        };
        Ok(segment.fetch_blocking(&[row], RowParts::ALL)?.pop())
    }

    fn get_published(&self, id: &str) -> Result<Option<crate::segment::StoredRow>> {
        let fingerprint = crate::segment::Fingerprint::of(id);
        for view in self.view().iter().rev() {
            for located in view.segment.find(id, fingerprint)? {
                if !view.deleted.contains(located.row) {
                    return Ok(view.segment.fetch_blocking(&[located.row], RowParts::ALL)?.pop());
                }
            }
        }
        Ok(None)
    }

    /// Sequence number that the next operation will have.
    pub(crate) fn next_seq_no(&self) -> u64 {
        self.state.lock().next_seq_no
    }

    /// Makes every operation applied so far visible to searches.
    pub(crate) async fn refresh(&self, env: &Env, now_ms: i64) -> Result<()> {
        let _one = self.refreshing.lock().await;
        let (frozen, published, below) = {
            let mut state = self.state.lock();
            self.last_refresh_ms.store(now_ms, Ordering::Relaxed);
            if !state.dirty() {
                state.frozen_below = (state.next_seq_no, state.next_frame);
                self.now_searchable(state.next_seq_no);
                return Ok(());
            }
            if state.tail.rows > 0 {
                let tail = std::mem::replace(&mut state.tail, Tail::new(next_key()));
                state.frozen.push(tail);
            }
            state.dirty_deletes = false;
            // The deletions as of now; later ones belong to rows that this refresh does not show.
            let published: Vec<(u64, Arc<roaring::RoaringBitmap>)> = state
                .segments
                .iter()
                .filter(|s| s.live.len() != s.published.len())
                .map(|s| (s.segment.key(), Arc::new(s.live.clone())))
                .collect();
            let frozen: Vec<_> = state
                .frozen
                .iter()
                .map(|tail| (tail.key, tail.chunks.clone(), tail.deleted.clone()))
                .collect();
            (frozen, published, (state.next_seq_no, state.next_frame))
        };
        let mapping = self.mapping.load_full();
        let mut built = Vec::with_capacity(frozen.len());
        for (key, chunks, deleted) in frozen {
            let mapping = Arc::clone(&mapping);
            let memory = env.compute.run(Lane::Background, move || Memory::build(&mapping, &chunks)).await?;
            built.push((Arc::new(Segment::memory(key, env.compute.clone(), memory)), deleted));
        }
        let mut state = self.state.lock();
        for (key, deleted) in published {
            if let Some(segment) = state.segments.iter_mut().find(|s| s.segment.key() == key) {
                segment.published = deleted;
            }
        }
        for (segment, deleted) in built {
            let Some(at) = state.frozen.iter().position(|tail| tail.key == segment.key()) else { continue };
            let tail = state.frozen.remove(at);
            state.segments.push(SegmentState {
                segment,
                live: tail.deleted,
                published: Arc::new(deleted),
                generation: 0,
                persisted: 0,
                first_frame: tail.first_frame,
                bytes: tail.bytes,
                since_ms: tail.since_ms,
            });
        }
        state.frozen_below = below;
        self.publish(&state);
        drop(state);
        self.counters.refresh.fetch_add(1, Ordering::Relaxed);
        self.now_searchable(below.0);
        Ok(())
    }

    fn now_searchable(&self, below: u64) {
        // It only grows; a deleted index stays at the end of all waiting.
        self.searchable.send_if_modified(|now| below > std::mem::replace(now, below.max(*now)));
    }

    fn checkpoint(&self, state: &State, below: (u64, u64)) -> ShardCheckpoint {
        ShardCheckpoint {
            index: self.index,
            shard: self.number,
            primary_term: state.primary_term,
            next_seq_no: below.0,
            next_frame: below.1,
        }
    }

    fn publish(&self, state: &State) {
        self.published.store(Arc::new(state.views()));
    }

    /// Waits until everything below `seq_no` is searchable.
    pub(crate) async fn wait_searchable(&self, seq_no: u64) {
        struct Waiting<'a>(&'a AtomicU64);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let mut searchable = self.searchable.subscribe();
        // The sender lives in `self`, so it cannot be gone.
        let _ = searchable.wait_for(|below| *below >= seq_no).await;
    }


    /// Sizes of the segments that searches see, in order.
    pub(crate) fn segment_figures(&self) -> Vec<SegmentFigures> {
        self.view()
            .iter()
            .map(|view| {
                let stored = view.segment.as_stored().map(|s| &s.record);
                SegmentFigures {
                    number: view.segment.key(),
                    docs: u64::from(view.live_rows()),
                    deleted: view.deleted.len(),
                    store_bytes: stored.map_or(0, |r| r.data_bytes + r.bundle_bytes + r.ids_bytes),
                    memory_bytes: view.segment.as_memory().map_or(0, |m| m.heap_bytes),
                    committed: stored.is_some(),
                }
            })
            .collect()
    }

    /// Counters and sizes.
    pub(crate) fn figures(&self) -> ShardFigures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let views = self.view();
        let state = self.state.lock();
        let records = || state.segments.iter().filter_map(|s| s.segment.as_stored()).map(|s| &s.record);
        let memory: u64 =
            state.segments.iter().filter_map(|s| s.segment.as_memory()).map(|m| m.heap_bytes).sum();
        let last = |next: u64| i64::try_from(next).unwrap_or(i64::MAX) - 1;
        ShardFigures {
            docs: views.iter().map(|v| u64::from(v.live_rows())).sum(),
            deleted: views.iter().map(|v| v.deleted.len()).sum(),
            store_bytes: records().map(|r| r.data_bytes + r.bundle_bytes + r.ids_bytes).sum(),
            segments: views.len() as u64,
            memory_bytes: memory + state.frozen.iter().map(|t| t.bytes).sum::<u64>() + state.tail.bytes,
            max_seq_no: last(state.next_seq_no),
            local_checkpoint: last(state.next_seq_no),
            index_total: count(&self.counters.index),
            delete_total: count(&self.counters.delete),
            get_total: count(&self.counters.get),
            refresh_total: count(&self.counters.refresh),
            flush_total: count(&self.counters.flush),
            periodic_flushes: count(&self.counters.periodic_flush),
            log_operations: state.next_seq_no.saturating_sub(state.committed_below.0),
            log_bytes: state.unflushed_bytes(),
            log_since_ms: state.unflushed_since_ms(),
            merge_total: count(&self.counters.merge),
            query_total: count(&self.counters.query),
        }
    }
}

fn tail_row(chunk: &MemChunk, row: u32) -> crate::segment::StoredRow {
    let at = row as usize;
    crate::segment::StoredRow {
        row,
        id: String::from_utf8_lossy(chunk.ids.borrow(at)).into_owned(),
        version: chunk.versions[at],
        seq_no: chunk.seq_nos[at],
        primary_term: chunk.primary_term,
        routing: chunk.routings.as_ref().and_then(|r| r[at].clone()),
        source: Bytes::copy_from_slice(chunk.sources.borrow(at)),
        ignored: chunk
            .chunk
            .ignored
            .iter()
            .filter(|(ignored, _)| *ignored == row)
            .map(|(_, path)| path.to_string())
            .collect(),
    }
}

impl Guard<'_> {
    /// Finds the current state of a document.
    pub(crate) fn find(&self, id: &str, probed: &Probed) -> Result<Option<(Current, Option<Location>)>> {
        Ok(self.state.find(id, probed)?.map(|found| (found.current, found.location)))
    }

    /// Sequence number for the next operation.
    pub(crate) fn next_seq_no(&self) -> u64 {
        self.state.next_seq_no
    }

    /// Term of this shard's writes.
    pub(crate) fn primary_term(&self) -> u64 {
        self.state.primary_term
    }

    /// Raises the term, as every recovery does.
    pub(crate) fn raise_term(&mut self, at_least: u64) {
        self.state.primary_term = self.state.primary_term.max(at_least);
    }

    /// Operations below this sequence number are in committed segments.
    pub(crate) fn committed_below(&self) -> u64 {
        self.state.committed_below.0
    }

    /// What the catalog is to know of how far the shard's operations are in segments.
    pub(crate) fn checkpoint(&self) -> ShardCheckpoint {
        self.shard.checkpoint(&self.state, self.state.committed_below)
    }

    /// Location that a row of the chunk to be applied next will have.
    pub(crate) fn location_of(&self, row: u32) -> Location {
        Location { segment: self.state.tail.key, row: self.state.tail.rows + row }
    }

    /// Records one operation's effect on the versions and on the row that it replaces. Called for
    /// each operation in order, before [`Guard::apply`] adds the batch's rows.
    pub(crate) fn record(&mut self, op: Applied, generated: bool, now_ms: i64) {
        self.state.next_seq_no = op.seq_no + 1;
        if let Some(location) = op.replaces {
            self.state.delete(location);
        }
        let location = op.row.map(|row| self.location_of(row));
        if generated && location.is_some() {
            return;
        }
        let entry = VersionEntry {
            version: op.version,
            seq_no: op.seq_no,
            primary_term: self.state.primary_term,
            location,
            deleted_at_ms: now_ms,
        };
        self.state.versions.insert(op.id, entry);
    }

    /// Adds the rows of a batch whose operations were recorded. `unused` rows never became
    /// documents: their operations were refused.
    pub(crate) fn apply(&mut self, chunk: Option<MemChunk>, unused: &[u32], frame: u64, now_ms: i64) -> u64 {
        let shard = self.shard;
        let state = &mut *self.state;
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
        shard.counters.index.fetch_add(u64::from(chunk.rows()) - unused.len() as u64, Ordering::Relaxed);
        tail.bases.push(tail.rows);
        tail.rows += chunk.rows();
        tail.chunks.push(Arc::new(chunk));
        bytes
    }

    /// Whether anything is unknown to searches.
    pub(crate) fn dirty(&self) -> bool {
        self.state.dirty() || self.state.frozen_below.0 < self.state.next_seq_no
    }

    /// Whether somebody waits for a refresh, and milliseconds since the last one.
    pub(crate) fn refresh_wanted(&self, now_ms: i64) -> (bool, i64) {
        let waited = self.shard.waiting.load(Ordering::Relaxed) > 0;
        (waited, now_ms - self.shard.last_refresh_ms.load(Ordering::Relaxed))
    }

    /// Whether the index was deleted: its operations go nowhere.
    pub(crate) fn closed(&self) -> bool {
        self.state.closed
    }

    /// First frame that is not in committed segments, if any is.
    pub(crate) fn first_uncommitted_frame(&self) -> Option<u64> {
        self.state.first_uncommitted_frame()
    }

    /// Whether there is too much besides bytes: segments that every search visits, or ids whose
    /// versions are kept in memory.
    pub(crate) fn crowded(&self) -> bool {
        self.state.memory_segments() >= MAX_MEMORY_SEGMENTS
            || (self.state.versions.len() >= MAX_VERSIONS && self.state.first_uncommitted_frame().is_some())
    }

    /// Bytes of documents that are not in committed segments, and since when.
    pub(crate) fn unflushed(&self) -> (u64, Option<i64>) {
        (self.state.unflushed_bytes(), self.state.unflushed_since_ms())
    }

    /// Forgets tombstones older than `gc_ms`, whose documents no stored segment holds alive.
    pub(crate) fn forget_tombstones(&mut self, now_ms: i64, gc_ms: i64) {
        let committed = self.state.committed_below.0;
        self.state.versions.retain(|_, entry| {
            entry.location.is_some() || entry.seq_no >= committed || now_ms - entry.deleted_at_ms < gc_ms
        });
    }
}
