//! Background work: refreshes that are due, flushes, compactions, and cutting the log.
//!
//! One task looks at the shards on the agenda (`agenda.rs`): those that were reported, and those whose time has come. The
//! work itself runs in tasks of its own.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use millrace_catalog::Commit;
use millrace_catalog::frame::FrameNumber;
use millrace_catalog::metadata::RESTORE_PENDING;
use millrace_runtime::tasks::{current_task, in_task};
use millrace_runtime::{CancelSignal, Error, Instant, Priority, Result, sync};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Inner;
use super::index::{Index, flush_bytes, gc_deletes_ms};
use super::maintenance_queue::{Entries, Item, Outlook};
use crate::shard::{FlushFacts, ForceMerge, MaintenanceKind, Shard, flush_in_ms};
use crate::wal::Wal;

/// Longest pause between two looks at the agenda: a clock that is set moves what is due.
const MAX_PAUSE_MS: i64 = 250;
/// Least pause between two looks: a burst of writes must not turn the loop into a spin.
const MIN_PAUSE: Duration = Duration::from_millis(5);
/// Pause between two looks at what no shard reports, and between two clean-ups of a shard's tombstones.
const TIDY: Duration = Duration::from_secs(10);
/// Size of the log below which it is never a reason to flush.
const MIN_LOG_BYTES: u64 = 1 << 20;
/// Permits of flushes: so many small ones run at once.
pub(super) const FLUSHES: u32 = 64;
/// Bytes of documents that a permit is for: large memtables are flushed one after the other.
const BYTES_A_PERMIT: u64 = 32 << 10;
/// Small compactions at once, beside a large one.
const SMALL_COMPACTIONS: usize = 2;
/// Bytes from which on a compaction is large.
const LARGE_COMPACTION: u64 = 64 << 20;
/// Mappings that are stored in one transaction where only the log has them.
const MAPPINGS_TOGETHER: usize = 200;
/// Shards that are flushed together where room is needed in memory or log, for as long as they are small.
const FLUSHED_TOGETHER: usize = FLUSHES as usize;
/// Bytes of documents from which on shards are not small together.
const SMALL_BYTES: u64 = FLUSHES as u64 * BYTES_A_PERMIT;

/// Permits of compactions: a small one never waits for a large one.
#[derive(Debug)]
pub(super) struct Compactions {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for Compactions {
    fn default() -> Self {
        Self { small: Arc::new(Semaphore::new(SMALL_COMPACTIONS)), large: Arc::new(Semaphore::new(1)) }
    }
}

impl Compactions {
    /// Waits for the permit of a compaction that reads so many bytes.
    async fn permit(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let permits = if bytes < LARGE_COMPACTION { &self.small } else { &self.large };
        let permit = Arc::clone(permits).acquire_owned().await;
        permit.map_err(|_| Error::Stopped("the node is shutting down".to_owned()))
    }
}

/// Items that tasks work on.
#[derive(Debug, Default)]
pub(super) struct BusySet {
    /// Shards, by identity, and kinds of work.
    shards: HashSet<(usize, MaintenanceKind)>,
    /// `true` if the log is being cut.
    cut: bool,
    /// `true` if it is found out what works again.
    pub(super) probes: bool,
    /// True if damaged files are read again.
    pub(super) damage_probes: bool,
}

/// Runs until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut entries = Entries::default();
    let mut tidy = tokio::time::interval(TIDY);
    tidy.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let now_ms = inner.clock.now_ms();
        let next = entries.next_ms().map_or(MAX_PAUSE_MS, |next| next.saturating_sub(now_ms));
        let pause = Duration::from_millis(next.clamp(0, MAX_PAUSE_MS).unsigned_abs());
        let _ = tokio::time::timeout(pause, inner.agenda.woken()).await;
        let tidy = tidy.tick().now_or_never().is_some();
        attend(&inner, &mut entries, tidy);
        inner.stamp_file();
        if tidy {
            inner.stamp_progress();
            inner.delete_orphans();
            inner.note_generation_soon();
            inner.probe_troubles_soon();
            inner.restore_damaged_soon();
            inner.probe_damage_soon();
        }
        tokio::time::sleep(MIN_PAUSE).await;
    }
}

/// Looks at the shards on the agenda, and at what is everybody's: memory, log, positions.
fn attend(inner: &Arc<Inner>, entries: &mut Entries, tidy: bool) {
    let now_ms = inner.clock.now_ms();
    let due = entries.due(now_ms);
    for item in inner.agenda.take().into_iter().chain(due) {
        let outlook = inspect(inner, &item, now_ms);
        entries.enter(item, outlook);
    }
    let most_log = inner.config.wal_max_bytes.max(MIN_LOG_BYTES);
    // No flush may be due where positions move, nor where the last reader has let go of the log.
    let unsaved = || inner.positions.has_unsaved() || inner.leases.lock().has_unsaved();
    if tidy && (unsaved() || inner.wal().is_ok_and(|wal| wal.bytes() > most_log)) {
        inner.wants_cut.store(true, Ordering::Relaxed);
    }
    if inner.wants_cut.load(Ordering::Relaxed) {
        spawn_cut(inner);
    }
    flush_for_room(inner, entries.largest());
    // Flushing makes the part of the log shorter that shards need; that of readers has a bound of its own.
    if let Ok(wal) = inner.wal() {
        let long = entries.oldest().take_while(|(_, frame, _)| wal.bytes_from(*frame) > most_log);
        flush_together(inner, long.map(|(item, _, bytes)| (item, bytes)));
    }
}

/// Flushes as many of these shards, the largest first, as free the memory that is wanted, with what is being flushed.
fn flush_for_room<'a>(inner: &Arc<Inner>, largest: impl Iterator<Item = (&'a Item, u64)>) {
    let mut excess = inner.budget.excess();
    if excess == 0 {
        return;
    }
    let mut begun = 0;
    for (item, bytes) in largest {
        let running =
            inner.busy.lock().shards.contains(&(Arc::as_ptr(&item.shard) as usize, MaintenanceKind::Flush));
        if !running && begun < FLUSHED_TOGETHER && spawn_flush(inner, item) {
            begun += 1;
        } else if !running {
            continue;
        }
        excess = excess.saturating_sub(bytes);
        if excess == 0 || begun == FLUSHED_TOGETHER {
            return;
        }
    }
}

/// Flushes the first of these shards, and those behind it while they are few and small.
fn flush_together<'a>(inner: &Arc<Inner>, shards: impl Iterator<Item = (&'a Item, u64)>) {
    let mut together = 0;
    for (item, bytes) in shards.take(FLUSHED_TOGETHER) {
        spawn_flush(inner, item);
        together += bytes;
        if together >= SMALL_BYTES {
            break;
        }
    }
}

/// Looks at a shard, starts what is due, and tells what is to come.
fn inspect(inner: &Arc<Inner>, item: &Item, now_ms: i64) -> Outlook {
    let Item { index, shard } = item;
    let state = shard.read();
    if state.closed() {
        return Outlook::default();
    }
    let refresh_in = index.refresh_in_ms(&state, now_ms);
    let (bytes, since_ms) = state.unflushed();
    let max_age_ms = i64::try_from(inner.config.flush_age_secs).unwrap_or(i64::MAX).saturating_mul(1000);
    let meta = index.meta();
    let flush_in = flush_in_ms(&FlushFacts {
        bytes,
        max_bytes: flush_bytes(&meta, inner.config.flush_bytes),
        age_ms: since_ms.map(|since| now_ms.saturating_sub(since)),
        max_age_ms,
        crowded: state.crowded(),
    });
    // What has failed is tried again by itself, also where no flush would be due: until one succeeds, health tells of it.
    let flush_in = match shard.counters.has_failed(MaintenanceKind::Flush) && state.check().is_ok() {
        true => Some(0),
        false => flush_in,
    };
    // A damaged shard holds back the log, but has nothing that a flush could write.
    let first_frame = state.first_uncommitted_frame().filter(|_| state.check().is_ok());
    let gc_ms = gc_deletes_ms(&meta);
    let clean_in =
        state.oldest_tombstone_ms().map(|oldest| gc_ms.saturating_sub(now_ms.saturating_sub(oldest)));
    drop(state);
    let mut next = [None; 4];
    // What failed has its pause.
    let pause_ms = |work| shard.counters.pause_ms(work, now_ms);
    match refresh_in.map(|due| due.max(pause_ms(MaintenanceKind::Refresh))) {
        // What has ended reports the shard.
        Some(0) => spawn_refresh(inner, item),
        later => next[0] = later,
    }
    match flush_in.map(|due| due.max(pause_ms(MaintenanceKind::Flush))) {
        Some(0) => drop(spawn_flush(inner, item)),
        later => next[1] = later,
    }
    // A merge would fetch what the copy of the restore fetches. The end of the restore reports the shard.
    let compaction = shard.compaction_bytes(None).filter(|_| !index.meta().flag(RESTORE_PENDING));
    match compaction.map(|_| pause_ms(MaintenanceKind::Compact)) {
        Some(0) => spawn_compaction(inner, item),
        later => next[3] = later,
    }
    match clean_in {
        Some(..=0) => {
            let shard = Arc::clone(shard);
            let clean = move || shard.clean_versions(now_ms, gc_ms);
            inner.env().compute.spawn(Priority::Background, clean);
            next[2] = Some(i64::try_from(TIDY.as_millis()).unwrap_or(i64::MAX));
        }
        later => next[2] = later,
    }
    let next = next.into_iter().flatten().min();
    Outlook { again_ms: next.map(|next| now_ms.saturating_add(next)), bytes, first_frame }
}

/// Marks a piece of work as running; `None` when it is already.
fn begin(inner: &Arc<Inner>, item: &Item, work: MaintenanceKind) -> Option<RunningTask> {
    let key = (Arc::as_ptr(&item.shard) as usize, work);
    inner.busy.lock().shards.insert(key).then(|| RunningTask {
        inner: Arc::clone(inner),
        item: item.clone(),
        key,
    })
}

/// Work on a shard, which is looked at again once it has ended.
struct RunningTask {
    inner: Arc<Inner>,
    item: Item,
    key: (usize, MaintenanceKind),
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.inner.busy.lock().shards.remove(&self.key);
        self.inner.agenda.report(&self.item.index, &self.item.shard);
    }
}

/// Cuts the log, one cut at a time; what wants another meanwhile gets it then.
fn spawn_cut(inner: &Arc<Inner>) {
    struct LogTruncationGuard(Arc<Inner>);
    impl Drop for LogTruncationGuard {
        fn drop(&mut self) {
            self.0.busy.lock().cut = false;
            self.0.agenda.wake();
        }
    }
    if std::mem::replace(&mut inner.busy.lock().cut, true) {
        return;
    }
    let cutting = LogTruncationGuard(Arc::clone(inner));
    inner.wants_cut.store(false, Ordering::Relaxed);
    tokio::spawn(async move {
        if let Err(error) = cutting.0.cut_log().await {
            tracing::error!(%error, "cannot cut the log, it will be tried again");
        }
    });
}

fn spawn_refresh(inner: &Arc<Inner>, item: &Item) {
    let Some(running) = begin(inner, item, MaintenanceKind::Refresh) else { return };
    tokio::spawn(async move {
        let RunningTask { inner, item: Item { index, shard }, .. } = &running;
        if let Err(error) = inner.refresh_shard(shard).await {
            tracing::error!(index = %index.meta().name, shard = shard.number, %error, "refresh failed");
        }
    });
}

/// Starts a flush, unless one is running or the last one has failed just now; tells whether it did.
fn spawn_flush(inner: &Arc<Inner>, item: &Item) -> bool {
    if item.shard.counters.pause_ms(MaintenanceKind::Flush, inner.clock.now_ms()) > 0 {
        return false;
    }
    let Some(running) = begin(inner, item, MaintenanceKind::Flush) else { return false };
    tokio::spawn(async move {
        let RunningTask { inner, item, .. } = &running;
        let shard = &item.shard;
        if let Err(error) = inner.flush_shard(shard).await {
            tracing::error!(index = %shard.index, shard = shard.number, %error, "flush failed, it will be tried again");
            return;
        }
        shard.counters.periodic_flush.fetch_add(1, Ordering::Relaxed);
        inner.wants_cut.store(true, Ordering::Relaxed);
    });
    true
}

/// Compacts until the shape is good. What ends it otherwise is looked at again.
fn spawn_compaction(inner: &Arc<Inner>, item: &Item) {
    let Some(running) = begin(inner, item, MaintenanceKind::Compact) else { return };
    tokio::spawn(async move {
        let RunningTask { inner, item: Item { shard, .. }, .. } = &running;
        loop {
            match inner.compact_shard(shard, None, &CancelSignal::default()).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) if inner.stopping.load(Ordering::Relaxed) => return,
                Err(error) => {
                    tracing::error!(index = %shard.index, shard = shard.number, %error, "compaction failed, it will be tried again");
                    return;
                }
            }
        }
    });
}

impl Inner {
    /// Flushes one shard and gives its memory back. Runs to its end whatever becomes of the caller: a
    /// commit that only the catalog knows of would be made again.
    pub(super) async fn flush_shard(self: &Arc<Self>, shard: &Arc<Shard>) -> Result<()> {
        let (inner, shard) = (Arc::clone(self), Arc::clone(shard));
        sync::uninterrupted(async move {
            let began = Instant::now();
            let flushed = inner.flush_and_free(&shard).await;
            inner.timings.flush.record(began.elapsed());
            shard.counters.attempted(MaintenanceKind::Flush, flushed.is_err(), inner.clock.now_ms());
            flushed
        })
        .await
    }

    async fn flush_and_free(&self, shard: &Arc<Shard>) -> Result<()> {
        self.check_ownership()?;
        let now_ms = self.clock.now_ms();
        let bytes = shard.read().unflushed().0;
        let permits = u32::try_from(bytes.div_ceil(BYTES_A_PERMIT)).unwrap_or(FLUSHES).clamp(1, FLUSHES);
        let permit = self.flushes.acquire_many(permits).await;
        let _permit = permit.map_err(|_| Error::Stopped("the node is shutting down".to_owned()))?;
        let freed = shard.flush(&self.services, now_ms).await?;
        self.budget.free(freed);
        if !shard.read().has_versions() {
            return Ok(());
        }
        let shard = Arc::clone(shard);
        // Tombstones are left to the clean-up by the clock.
        let clean = move || {
            shard.clean_versions(now_ms, i64::MAX);
            Ok(())
        };
        self.env().compute.run(Priority::Flush, clean).await
    }

    /// Runs one compaction of a shard, if its shape or a force merge asks for one. Returns whether it did anything. It runs
    /// to its end, whatever becomes of the caller, unless the signal is given before its segment is uploaded.
    ///
    /// # Errors
    /// [`Error::Stopped`] once the node is shutting down: none begins then. [`Error::Cancelled`] once the signal is given.
    pub(super) async fn compact_shard(
        self: &Arc<Self>,
        shard: &Arc<Shard>,
        force: Option<ForceMerge>,
        cancel: &CancelSignal,
    ) -> Result<bool> {
        let Some(bytes) = shard.compaction_bytes(force) else {
            // What has failed before is not wanted any more.
            if shard.compaction_bytes(None).is_none() {
                shard.counters.attempted(MaintenanceKind::Compact, false, self.clock.now_ms());
            }
            return Ok(false);
        };
        let permit = self.compactions.permit(bytes).await?;
        self.check_accepting()?;
        let (inner, of) = (Arc::clone(self), Arc::clone(shard));
        let cancel = cancel.clone();
        let compact = async move {
            let _permit = permit;
            let began = Instant::now();
            let compacted = of.compact(&inner.services, force, cancel).await;
            inner.timings.compaction.record(began.elapsed());
            // Who forces a merge is told of its failure; the shape of the segments is none.
            if force.is_none() || compacted.is_ok() {
                of.counters.attempted(MaintenanceKind::Compact, compacted.is_err(), inner.clock.now_ms());
            }
            compacted
        };
        sync::uninterrupted(in_task(current_task(), compact)).await
    }

    /// Removes log files that no shard, mapping, position or reader needs any more; one such cut at a time.
    pub(super) async fn cut_log(self: &Arc<Self>) -> Result<()> {
        let Some(wal) = self.services.wal.get() else { return Ok(()) };
        sync::scope(self.cut(wal)).await
    }

    async fn cut(self: &Arc<Self>, wal: &Arc<Wal>) -> Result<()> {
        let _one = self.cutting.lock().await;
        // Asked first: a frame below it is in the memory that is looked at next, and what is appended or applied
        // from here on stays.
        let mut below = wal.applied_below();
        if wal.oldest_removable(below).is_none() {
            return self.save_kept_leases().await;
        }
        let indices = self.all_indices();
        for index in &indices {
            for shard in index.shards() {
                if let Some(frame) = shard.read().first_uncommitted_frame() {
                    below = below.min(frame);
                }
            }
        }
        below = below.min(self.leases.lock().least(wal, &self.config, self.clock.now_ms()).unwrap_or(below));
        let Some(kept) = wal.first_kept(below) else { return self.save_kept_leases().await };
        self.save_mappings(&indices).await?;
        if !self.save_positions().await? {
            return Ok(());
        }
        // What they hold now is at or behind what `below` heeds.
        #[cfg(test)]
        let told = sync::model::is(sync::model::Mutant::UnsavedLeases);
        #[cfg(not(test))]
        let told = false;
        if !told {
            self.save_leases().await?;
        }
        below = below.min(self.stamp_before_cut(wal, kept).await?);
        let (inner, wal) = (Arc::clone(self), Arc::clone(wal));
        match sync::blocking(move || inner.remove_log_below(&wal, below)).await {
            Err(error @ (Error::Stopped(_) | Error::Internal(_))) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot cut the log");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Removes log files, oldest first, up to the first that a reader needs. Blocks.
    fn remove_log_below(&self, wal: &Wal, below: FrameNumber) -> Result<()> {
        while let Some(next) = wal.oldest_removable(below) {
            // Asked for each file anew: leases may have been granted since the cut was decided.
            if !self.leases.lock().give_up_below(next, wal, &self.config, self.clock.now_ms()) {
                break;
            }
            wal.remove_oldest(below)?;
        }
        Ok(())
    }

    /// Stores mappings that only the log has: no shard's commit holds back the frame of a mapping. Some at a time, so
    /// that commits of flushes come in between.
    async fn save_mappings(&self, indices: &[Arc<Index>]) -> Result<()> {
        let unsaved =
            |index: &&Arc<Index>| index.mapping().version() != index.saved_mapping.load(Ordering::Relaxed);
        let unsaved: Vec<&Arc<Index>> = indices.iter().filter(unsaved).collect();
        for some in unsaved.chunks(MAPPINGS_TOGETHER) {
            match self.save_some_mappings(some).await {
                // One was deleted meanwhile.
                Err(Error::IndexNotFound { .. }) => {
                    for index in some {
                        match self.save_some_mappings(&[*index]).await {
                            Err(Error::IndexNotFound { .. }) => {}
                            other => other?,
                        }
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn save_some_mappings(&self, indices: &[&Arc<Index>]) -> Result<()> {
        let one = self.services.commits.lock().await;
        // Loaded under the lock, so that an older mapping never follows a newer one.
        let mappings: Vec<_> = indices.iter().map(|index| (*index, index.mapping())).collect();
        let encoded = mappings.iter().map(|(index, mapping)| (index.meta().uuid, mapping.encode()));
        let commit = Commit { mappings: encoded.collect(), ..Commit::default() };
        self.services.catalog.commit(&commit).await?;
        drop(one);
        for (index, mapping) in mappings {
            index.saved_mapping.fetch_max(mapping.version(), Ordering::Relaxed);
            // Mostly segments have it in theirs.
            if index.about.mapping.load(Ordering::Acquire) < mapping.version() {
                self.describe_again(index).await;
            }
        }
        Ok(())
    }
}
