//! A shard: the unit of write ownership, an ordered log of operations and the segments that hold
//! their effect.
//!
//! The engine hands it prepared batches under its write lock ([`Shard::write_lock`], [`WriteLock::apply`]); it
//! turns the memtable's tail into searchable segments ([`Shard::refresh`]), writes those out
//! (`commit.rs`) and answers gets (`get.rs`). What searches see is replaced as a whole by a refresh, so that
//! new rows appear together with the deletions that they cause.
//!
//! Locks, in the order in which they are taken: `committing` (one catalog commit at a time),
//! `refreshing` (one change of the published view at a time), `write_lock` (one change of the state at a
//! time), the state. The state's lock is never held over an await, nor for more than moments.

mod access;
mod capture;
mod commit;
mod contexts;
mod decide;
mod describe;
mod get;
mod group;
mod policy;
mod state;
mod tombstones;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use millrace_catalog::ShardCheckpoint;
use millrace_catalog::metadata::SortField;
use millrace_mapping::Mapping;
use millrace_runtime::sync::{self, AsyncMutex, LockRank, Rank, RwLock};
use millrace_runtime::{Priority, Result};
use millrace_segment::{
    DeletesFile, Env, Memory, Segment, SegmentFile, SegmentView, StoredSegment, next_key,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

pub(crate) use self::access::{AppliedOperation, Change, StateReadGuard, WriteLock};
pub use self::capture::{CapturedSegment, ShardCapture};
use self::commit::UncertainCommits;
pub(crate) use self::commit::{ForceMerge, Services};
pub(crate) use self::contexts::ContextCounters;
pub use self::contexts::{ContextFigures, OpenContext, SearchContextKind};
pub(crate) use self::decide::{ConflictReason, Current, ObservedVersion, VersionCondition, decide};
pub(crate) use self::describe::DescriptionInputs;
pub(crate) use self::group::Commits;
pub(crate) use self::policy::{FlushFacts, RefreshFacts, flush_in_ms, refresh_in_ms};
pub(crate) use self::state::{Damage, LoadedSegment, Location, SegmentLookups, State};
use self::state::{DeletionBytes, SegmentState, Tail};
use self::versions::Versions;
use crate::{SegmentFigures, ShardFault, ShardFigures};

/// In-memory segments of a shard beyond which it is flushed.
const MAX_MEMORY_SEGMENTS: usize = 64;
/// Versions of ids in memory beyond which a shard is flushed, where it has that many operations to flush.
const MAX_VERSIONS: usize = 1_000_000;
/// Tombstones of a shard that are remembered behind a flush, some 200 bytes each. Beyond it the first are forgotten before their
/// time, as if `index.gc_deletes` were shorter.
const MAX_TOMBSTONES: usize = 2_000_000;

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
    /// Results of the last attempts at each kind of work.
    attempts: [Attempts; 3],
}

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MaintenanceKind {
    Refresh,
    Flush,
    Compact,
}

impl MaintenanceKind {
    /// Longest pause after failures, in milliseconds. Writers wait for flushes.
    fn longest_pause_ms(self) -> i64 {
        if self == Self::Compact { 60_000 } else { 15_000 }
    }
}

/// Failures of a kind of work.
#[derive(Debug, Default)]
struct Attempts {
    /// Failures since the last success.
    failures: AtomicU32,
    /// Time of the last one.
    failed_ms: AtomicI64,
}

impl Counters {
    /// Notes how an attempt at a kind of work ended, whoever asked for it.
    pub(crate) fn attempted(&self, work: MaintenanceKind, failed: bool, now_ms: i64) {
        let attempts = &self.attempts[work as usize];
        if failed {
            attempts.failed_ms.store(now_ms, Ordering::Relaxed);
            attempts.failures.fetch_add(1, Ordering::Relaxed);
        } else {
            attempts.failures.store(0, Ordering::Relaxed);
        }
    }

    /// For how many milliseconds a kind of work is not to be tried again by itself; 0 for not at all.
    pub(crate) fn pause_ms(&self, work: MaintenanceKind, now_ms: i64) -> i64 {
        let attempts = &self.attempts[work as usize];
        let pause = policy::pause_ms(attempts.failures.load(Ordering::Relaxed), work.longest_pause_ms());
        let since = now_ms.saturating_sub(attempts.failed_ms.load(Ordering::Relaxed));
        // A clock that was set back is no reason to wait longer.
        if (0..pause).contains(&since) { pause - since } else { 0 }
    }

    /// Returns whether the last attempt at a kind of work failed.
    pub(crate) fn has_failed(&self, work: MaintenanceKind) -> bool {
        self.attempts[work as usize].failures.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the last attempt at any kind of work failed.
    fn is_failing(&self) -> bool {
        self.attempts.iter().any(|attempts| attempts.failures.load(Ordering::Relaxed) > 0)
    }
}

/// An index's mapping as its shards share it.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    pub(crate) current: Arc<ArcSwap<Mapping>>,
    /// Version that the catalog is known to have.
    pub(crate) saved: Arc<AtomicU64>,
}

/// A shard of an index.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) index: Uuid,
    pub(crate) number: u32,
    /// The index's metadata, for descriptions.
    about: Arc<DescriptionInputs>,
    /// The index's mapping, which only grows: what is loaded after rows were taken up knows their paths.
    mapping: Arc<ArcSwap<Mapping>>,
    /// Version of it that the catalog is known to have.
    saved_mapping: Arc<AtomicU64>,
    /// The order of rows in stored segments; empty for that of their sequence numbers.
    sort: Arc<[SortField]>,
    write_lock: AsyncMutex,
    state: RwLock<State>,
    published: ArcSwap<Vec<SegmentView>>,
    committing: AsyncMutex,
    refreshing: AsyncMutex,
    /// One flush at a time; one compaction at a time; both may run at once.
    flushing: AsyncMutex,
    compacting: AsyncMutex,
    /// Segments of commits that failed without telling whether they happened; `None`: no such commit.
    doubtful: Mutex<Option<UncertainCommits>>,
    /// Descriptions of operations without rows, which the next flush accounts for.
    rests: Mutex<Vec<Uuid>>,
    /// Sequence number below which everything is searchable.
    searchable: watch::Sender<u64>,
    waiting: AtomicU64,
    /// Set while background work was asked to look at it, and has not yet.
    reported: AtomicBool,
    last_refresh_ms: AtomicI64,
    /// `true` if the state has damage; for readers without its lock.
    is_damaged: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) contexts: Arc<ContextCounters>,
}

/// Setting of the zstd level of an index's rows, flushed and compacted.
const ZSTD_LEVEL_SETTING: &str = "index.codec.compression_level";
/// Its levels, and that of an index whose setting is another.
const ZSTD_LEVELS: std::ops::RangeInclusive<i64> = 1..=6;
const DEFAULT_ZSTD_LEVEL: i64 = 3;

impl Shard {
    /// Returns the zstd level of the rows that are stored from now on.
    pub(crate) fn zstd_level(&self) -> i32 {
        let level = self.about.meta.load().integer(ZSTD_LEVEL_SETTING);
        level.filter(|level| ZSTD_LEVELS.contains(level)).unwrap_or(DEFAULT_ZSTD_LEVEL) as i32
    }

    /// Makes a shard from what the catalog holds; `segments` come with their deletions.
    pub(crate) fn new(
        about: Arc<DescriptionInputs>,
        number: u32,
        mapping: SharedMapping,
        sort: Arc<[SortField]>,
        checkpoint: Option<&ShardCheckpoint>,
        segments: Vec<LoadedSegment>,
        env: &Env,
    ) -> Self {
        let index = about.meta.load().uuid;
        let segments = SegmentState::load_all(segments, env);
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
            versions: Versions::default(),
            tombstones: tombstones::Groups::default(),
            loaded_below: below.0,
            deletions: DeletionBytes::default(),
            dirty_deletes: false,
            closed: false,
            damage: None,
        };
        let lock = |rank| AsyncMutex::new(LockRank::of_shard(rank, index, number));
        Self {
            index,
            number,
            about,
            mapping: mapping.current,
            saved_mapping: mapping.saved,
            sort,
            rests: Mutex::default(),
            published: ArcSwap::from_pointee(state.views()),
            searchable: watch::Sender::new(below.0),
            write_lock: lock(Rank::ShardWrite),
            state: RwLock::new(LockRank::of_shard(Rank::State, index, number), state),
            committing: lock(Rank::Committing),
            refreshing: lock(Rank::Refreshing),
            flushing: lock(Rank::ShardWork),
            compacting: lock(Rank::ShardWork),
            doubtful: Mutex::new(None),
            waiting: AtomicU64::new(0),
            reported: AtomicBool::new(false),
            last_refresh_ms: AtomicI64::new(0),
            is_damaged: AtomicBool::new(false),
            counters: Counters::default(),
            contexts: Arc::default(),
        }
    }

    /// Puts the shard out of use from the start.
    pub(crate) fn damaged(&self, damage: Damage) {
        let mut state = self.state.write();
        state.damage = Some(damage);
        self.is_damaged.store(true, Ordering::Relaxed);
        // A segment without its deletions is not to be seen.
        state.segments.clear();
        self.publish(&state);
    }

    /// Gives a shard that is out of use its segments; it stays so until [`Shard::end_damage`].
    pub(crate) async fn restore_segments(&self, segments: Vec<LoadedSegment>, env: &Env) {
        let write = self.write_lock().await;
        let mut state = write.state();
        if !state.closed {
            state.segments = SegmentState::load_all(segments, env);
            self.publish(&state);
        }
    }

    /// Puts a shard in use again that has its segments and its part of the log.
    pub(crate) async fn end_damage(&self) {
        let write = self.write_lock().await;
        write.state().damage = None;
        self.is_damaged.store(false, Ordering::Relaxed);
    }

    /// Reads damaged places of its segments again: health tells of them until they are read well. Blocks on files.
    pub(crate) fn probe_damage(&self) {
        let damaged: Vec<Arc<Segment>> = {
            let state = self.state.read();
            let is_damaged =
                |segment: &&Arc<Segment>| segment.as_stored().is_some_and(StoredSegment::is_damaged);
            state.segments.iter().map(|state| &state.segment).filter(is_damaged).cloned().collect()
        };
        damaged.iter().filter_map(|segment| segment.as_stored()).for_each(StoredSegment::probe_damage);
    }

    /// Refuses the use of a damaged shard.
    ///
    /// # Errors
    /// [`millrace_runtime::Error::Corrupt`] names the file; [`millrace_runtime::Error::IndexUnsupported`].
    pub(crate) fn check(&self) -> Result<()> {
        self.state.read().check()
    }

    /// Asks the stored segments for ids, without holding a lock meanwhile. Blocks on their files.
    pub(crate) fn probe<'a>(&self, ids: impl Iterator<Item = &'a str>) -> SegmentLookups {
        let mut probed = SegmentLookups::default();
        let segments = self.state.read().unprobed(&probed);
        probed.probe(&segments, ids);
        probed
    }

    /// Returns the segments that searches see.
    pub(crate) fn view(&self) -> Arc<Vec<SegmentView>> {
        self.published.load_full()
    }

    /// Sequence number that the next operation will have.
    pub(crate) fn next_seq_no(&self) -> u64 {
        self.state.read().next_seq_no
    }

    /// Makes every operation applied so far visible to searches.
    pub(crate) async fn refresh(&self, env: &Env, now_ms: i64) -> Result<()> {
        let refreshed = sync::scope(self.make_searchable(env, now_ms)).await;
        self.counters.attempted(MaintenanceKind::Refresh, refreshed.is_err(), now_ms);
        refreshed
    }

    async fn make_searchable(&self, env: &Env, now_ms: i64) -> Result<()> {
        let _one = self.refreshing.lock().await;
        let (frozen, published, below, deletions) = {
            let write = self.write_lock().await;
            self.last_refresh_ms.store(now_ms, Ordering::Relaxed);
            // The deletions as of now; later ones belong to rows that this refresh does not show. Copied
            // before the state is taken alone: nothing changes while the write lock is held.
            let published = self.unpublished_deletions();
            let mut state = write.state();
            if !state.dirty() {
                state.frozen_below = (state.next_seq_no, state.next_frame);
                let fresh = state.deletions.fresh;
                state.deletions.freeze(fresh);
                self.now_searchable(state.next_seq_no);
                return Ok(());
            }
            if state.tail.rows > 0 {
                let tail = std::mem::replace(&mut state.tail, Tail::new(next_key()));
                state.frozen.push(tail);
            }
            let frozen: Vec<_> = state
                .frozen
                .iter()
                .map(|tail| (tail.key, tail.chunks.clone(), tail.deleted.clone()))
                .collect();
            (frozen, published, (state.next_seq_no, state.next_frame), state.deletions.fresh)
        };
        let mapping = self.mapping.load_full();
        let mut built = Vec::with_capacity(frozen.len());
        for (key, chunks, deleted) in frozen {
            let mapping = Arc::clone(&mapping);
            let memory = env.compute.run(Priority::Flush, move || Memory::build(&mapping, &chunks)).await?;
            built.push((Arc::new(Segment::memory(key, env.compute.clone(), memory)), deleted));
        }
        let write = self.write_lock().await;
        let mut state = write.state();
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
                deletes: DeletesFile::default(),
                first_frame: tail.first_frame,
                bytes: tail.bytes,
                since_ms: tail.since_ms,
            });
        }
        state.frozen_below = below;
        state.deletions.freeze(deletions);
        // Only now: who is cancelled before leaves the deletions to the next refresh.
        state.dirty_deletes = state.segments.iter().any(|s| s.live.len() != s.published.len());
        self.publish(&state);
        drop(state);
        drop(write);
        self.counters.refresh.fetch_add(1, Ordering::Relaxed);
        self.now_searchable(below.0);
        Ok(())
    }

    fn unpublished_deletions(&self) -> Vec<(u64, Arc<roaring::RoaringBitmap>)> {
        let state = self.state.read();
        let changed = state.segments.iter().filter(|s| s.live.len() != s.published.len());
        changed.map(|s| (s.segment.key(), Arc::new(s.live.clone()))).collect()
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

    /// Waits until everything below `seq_no` is searchable. The wait counts from the call on.
    pub(crate) fn wait_searchable(&self, seq_no: u64) -> impl Future<Output = ()> {
        struct RefreshWaiter<'a>(&'a AtomicU64);
        impl Drop for RefreshWaiter<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let waiting = RefreshWaiter(&self.waiting);
        let mut searchable = self.searchable.subscribe();
        async move {
            let _waiting = waiting;
            // The sender lives in `self`, so it cannot be gone.
            let _ = searchable.wait_for(|below| *below >= seq_no).await;
        }
    }

    /// Takes note that background work is to look at the shard; whether nobody had asked for it yet.
    pub(crate) fn report(&self) -> bool {
        !self.reported.swap(true, Ordering::AcqRel)
    }

    /// Takes note that it looks now: what changes from here on is reported again.
    pub(crate) fn take_report(&self) {
        self.reported.swap(false, Ordering::AcqRel);
    }

    /// Sizes of the segments that searches see, in order.
    pub(crate) fn segment_figures(&self) -> Vec<SegmentFigures> {
        self.view()
            .iter()
            .map(|view| {
                let stored = view.segment.as_stored().map(|s| &s.record);
                let files =
                    stored.into_iter().flat_map(|record| SegmentFile::ALL.map(|file| file.bytes(record)));
                SegmentFigures {
                    number: view.segment.key(),
                    docs: u64::from(view.live_rows()),
                    deleted: view.deleted.len(),
                    store_bytes: files.clone().sum(),
                    files: files.filter(|bytes| *bytes > 0).count() as u64,
                    memory_bytes: view.segment.as_memory().map_or(0, |m| m.heap_bytes),
                    committed: stored.is_some(),
                }
            })
            .collect()
    }

    /// Returns the fault of the shard, if any.
    pub(crate) fn fault(&self) -> Option<ShardFault> {
        if self.is_damaged.load(Ordering::Relaxed) {
            let is_unsupported = matches!(self.state.read().damage, Some(Damage::Unsupported { .. }));
            return Some(if is_unsupported { ShardFault::Unsupported } else { ShardFault::Damaged });
        }
        if self.view().iter().filter_map(|view| view.segment.as_stored()).any(StoredSegment::is_damaged) {
            return Some(ShardFault::Unreadable);
        }
        self.counters.is_failing().then_some(ShardFault::Failing)
    }

    /// Counters and sizes.
    pub(crate) fn figures(&self) -> ShardFigures {
        let published = self.published_figures();
        let state = self.state.read();
        let records = || state.segments.iter().filter_map(|s| s.segment.as_stored()).map(|s| &s.record);
        let memory: u64 =
            state.segments.iter().filter_map(|s| s.segment.as_memory()).map(|m| m.heap_bytes).sum();
        let last = |next: u64| i64::try_from(next).unwrap_or(i64::MAX) - 1;
        ShardFigures {
            store_bytes: records().map(|r| r.data_bytes + r.bundle_bytes + r.ids_bytes).sum(),
            memory_bytes: memory + state.frozen.iter().map(|t| t.bytes).sum::<u64>() + state.tail.bytes,
            max_seq_no: last(state.next_seq_no),
            local_checkpoint: last(state.next_seq_no),
            log_operations: state.next_seq_no.saturating_sub(state.committed_below.0),
            log_bytes: state.unflushed_bytes(),
            log_since_ms: state.unflushed_since_ms(),
            ..published
        }
    }

    /// Counters, and the sizes that searches see, without the lock of the state. The members about the log and sequence numbers are
    /// left at their defaults.
    pub(crate) fn published_figures(&self) -> ShardFigures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let views = self.view();
        let stored = || views.iter().filter_map(|view| view.segment.as_stored());
        let memory = || views.iter().filter_map(|view| view.segment.as_memory());
        ShardFigures {
            docs: views.iter().map(|view| u64::from(view.live_rows())).sum(),
            deleted: views.iter().map(|view| view.deleted.len()).sum(),
            store_bytes: stored()
                .map(|s| s.record.data_bytes + s.record.bundle_bytes + s.record.ids_bytes)
                .sum(),
            segments: views.len() as u64,
            memory_bytes: memory().map(|memory| memory.heap_bytes).sum(),
            index_total: count(&self.counters.index),
            delete_total: count(&self.counters.delete),
            get_total: count(&self.counters.get),
            refresh_total: count(&self.counters.refresh),
            flush_total: count(&self.counters.flush),
            periodic_flushes: count(&self.counters.periodic_flush),
            merge_total: count(&self.counters.merge),
            query_total: count(&self.counters.query),
            scrolls: self.contexts.figures(SearchContextKind::Scroll),
            points_in_time: self.contexts.figures(SearchContextKind::PointInTime),
            cursors: self.contexts.figures(SearchContextKind::Cursor),
            ..ShardFigures::default()
        }
    }
}
