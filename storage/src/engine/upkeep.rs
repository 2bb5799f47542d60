//! Background work: refreshes that are due, flushes, compactions, and cutting the log.
//!
//! One task looks at every shard on a short beat and whenever a write wakes it; the work itself
//! runs in tasks of its own, at most one flush and one compaction at a time over all shards, so
//! that a refresh always finds a free thread.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Inner;
use super::index::{Index, gc_deletes_ms};
use crate::catalog::Commit;
use crate::shard::{ForceMerge, Shard};
use crate::sync;
use crate::wal::{FrameNumber, Wal};
use crate::{Error, Lane, Result};

/// Pause between two looks at the shards.
const BEAT: Duration = Duration::from_millis(50);
/// Pause after a failed flush or compaction before the next try.
const BACK_OFF: Duration = Duration::from_secs(2);
/// Size of the log below which it is never a reason to flush.
const MIN_LOG_BYTES: u64 = 1 << 20;
/// Beats between two clean-ups of tombstones.
const BEATS_A_CLEANUP: u64 = 200;

/// Shards that a task works on, by identity of the shard and kind of work.
#[derive(Debug, Default)]
pub(super) struct Busy(HashSet<(usize, Work)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    Refresh,
    Flush,
    Compact,
}

impl Work {
    /// A bit of its own, for the kinds that failed last.
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Stands for the positions of sources where a shard stands for its work: no shard is there.
const POSITIONS: (usize, Work) = (0, Work::Flush);

/// Runs until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut beats = 0u64;
    loop {
        let _ = tokio::time::timeout(BEAT, inner.upkeep.notified()).await;
        beats += 1;
        look(&inner, beats.is_multiple_of(BEATS_A_CLEANUP));
        // A burst of writes must not turn the loop into a spin.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn look(inner: &Arc<Inner>, clean_up: bool) {
    let now_ms = inner.clock.now_ms();
    let pressed = inner.budget.is_pressed();
    let most_log = inner.config.wal_max_bytes.max(MIN_LOG_BYTES);
    let mut largest: Option<(u64, Arc<Shard>)> = None;
    let mut oldest: Option<(u64, Arc<Shard>)> = None;
    for index in inner.all_indices() {
        for shard in index.shards() {
            let state = shard.read();
            let refresh = index.refresh_due(&state, now_ms);
            let (bytes, since_ms) = state.unflushed();
            // A damaged shard holds back the log, but has nothing that a flush could write.
            let first_frame = state.first_uncommitted_frame().filter(|_| state.check().is_ok());
            let crowded = state.crowded();
            let clean = clean_up && state.has_versions();
            drop(state);
            if clean {
                let (shard, gc_ms) = (Arc::clone(shard), gc_deletes_ms(&index.meta()));
                let clean = move || shard.clean_versions(now_ms, gc_ms);
                inner.env().compute.spawn(Lane::Background, clean);
            }
            if refresh {
                spawn_refresh(inner, &index, shard);
            }
            let max_age_ms =
                i64::try_from(inner.config.flush_age_secs).unwrap_or(i64::MAX).saturating_mul(1000);
            let old = since_ms.is_some_and(|since| now_ms.saturating_sub(since) > max_age_ms);
            if (bytes > 0 && bytes >= inner.config.flush_bytes) || old || crowded {
                spawn_flush(inner, shard);
            }
            if bytes > 0 && largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
                largest = Some((bytes, Arc::clone(shard)));
            }
            if let Some(frame) = first_frame
                && oldest.as_ref().is_none_or(|(least, _)| frame < *least)
            {
                oldest = Some((frame, Arc::clone(shard)));
            }
        }
    }
    // No flush may be due where positions move, nor where the last reader has let go of the log.
    if clean_up && (inner.positions.has_unsaved() || inner.wal().is_ok_and(|wal| wal.bytes() > most_log)) {
        spawn_cut(inner);
    }
    if pressed && let Some((_, shard)) = largest {
        spawn_flush(inner, &shard);
    }
    // Flushing makes the part of the log shorter that shards need; that of readers has a bound of its own.
    if let Some((frame, shard)) = oldest
        && inner.wal().is_ok_and(|wal| wal.bytes_from(frame) > most_log)
    {
        spawn_flush(inner, &shard);
    }
}

/// Marks a piece of work as running; `None` when it is already.
fn begin(inner: &Arc<Inner>, shard: &Arc<Shard>, work: Work) -> Option<Running> {
    let key = (Arc::as_ptr(shard) as usize, work);
    inner.busy.lock().0.insert(key).then(|| Running { inner: Arc::clone(inner), key })
}

struct Running {
    inner: Arc<Inner>,
    key: (usize, Work),
}

impl Drop for Running {
    fn drop(&mut self) {
        self.inner.busy.lock().0.remove(&self.key);
    }
}

/// Cuts the log beside flushes.
fn spawn_cut(inner: &Arc<Inner>) {
    if !inner.busy.lock().0.insert(POSITIONS) {
        return;
    }
    let running = Running { inner: Arc::clone(inner), key: POSITIONS };
    tokio::spawn(async move {
        if let Err(error) = running.inner.cut_log().await {
            tracing::error!(%error, "cannot cut the log, it will be tried again");
        }
    });
}

fn spawn_refresh(inner: &Arc<Inner>, index: &Arc<Index>, shard: &Arc<Shard>) {
    let Some(running) = begin(inner, shard, Work::Refresh) else { return };
    let (inner, index, shard) = (Arc::clone(inner), Arc::clone(index), Arc::clone(shard));
    tokio::spawn(async move {
        let _running = running;
        let refreshed = shard.refresh(inner.env(), inner.clock.now_ms()).await;
        shard.counters.attempted(Work::Refresh.bit(), refreshed.is_err());
        if let Err(error) = refreshed {
            tracing::error!(index = %index.meta().name, shard = shard.number, %error, "refresh failed");
            tokio::time::sleep(BACK_OFF).await;
        }
    });
}

fn spawn_flush(inner: &Arc<Inner>, shard: &Arc<Shard>) {
    let Some(running) = begin(inner, shard, Work::Flush) else { return };
    let (inner, shard) = (Arc::clone(inner), Arc::clone(shard));
    tokio::spawn(async move {
        let _running = running;
        let flushed = match inner.flushes.acquire().await {
            Ok(_slot) => {
                let flushed = inner.flush_shard(&shard).await;
                shard.counters.attempted(Work::Flush.bit(), flushed.is_err());
                if flushed.is_ok() {
                    shard.counters.periodic_flush.fetch_add(1, Ordering::Relaxed);
                }
                flushed
            }
            Err(_) => return,
        };
        let cut = match flushed {
            Ok(()) => inner.cut_log().await,
            Err(error) => Err(error),
        };
        match cut {
            Ok(()) => spawn_compaction(&inner, &shard),
            Err(error) => {
                tracing::error!(index = %shard.index, shard = shard.number, %error, "flush failed, it will be tried again");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    });
}

fn spawn_compaction(inner: &Arc<Inner>, shard: &Arc<Shard>) {
    let Some(running) = begin(inner, shard, Work::Compact) else { return };
    let (inner, shard) = (Arc::clone(inner), Arc::clone(shard));
    tokio::spawn(async move {
        let _running = running;
        loop {
            if inner.stopping.load(Ordering::Relaxed) {
                return;
            }
            let Ok(_slot) = inner.compactions.acquire().await else { return };
            let compacted = inner.compact_shard(&shard, None).await;
            shard.counters.attempted(Work::Compact.bit(), compacted.is_err());
            match compacted {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!(index = %shard.index, shard = shard.number, %error, "compaction failed");
                    tokio::time::sleep(BACK_OFF).await;
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
            let now_ms = inner.clock.now_ms();
            let freed = shard.flush(&inner.services, now_ms).await?;
            inner.budget.free(freed);
            // Tombstones are left to the clean-up by the clock.
            let clean = move || {
                shard.clean_versions(now_ms, i64::MAX);
                Ok(())
            };
            inner.env().compute.run(Lane::Flush, clean).await
        })
        .await
    }

    /// Runs one compaction of a shard to its end, whatever becomes of the caller.
    pub(super) async fn compact_shard(
        self: &Arc<Self>,
        shard: &Arc<Shard>,
        force: Option<ForceMerge>,
    ) -> Result<bool> {
        let (inner, shard) = (Arc::clone(self), Arc::clone(shard));
        sync::uninterrupted(async move { shard.compact(&inner.services, force).await }).await
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
        let mut below = wal.settled_below();
        let indices = self.all_indices();
        for index in &indices {
            for shard in index.shards() {
                if let Some(frame) = shard.read().first_uncommitted_frame() {
                    below = below.min(frame);
                }
            }
        }
        below = below.min(self.leases.lock().least(wal, &self.config).unwrap_or(below));
        if wal.oldest_removable(below).is_none() {
            return Ok(());
        }
        self.save_mappings(&indices).await?;
        self.save_positions().await?;
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
            if !self.leases.lock().give_up_below(next, wal, &self.config) {
                break;
            }
            wal.remove_oldest(below)?;
        }
        Ok(())
    }

    /// Stores mappings that only the log has: no shard's commit holds back the frame of a mapping.
    async fn save_mappings(&self, indices: &[Arc<Index>]) -> Result<()> {
        let _one = self.services.commits.lock().await;
        for index in indices {
            // Loaded under the lock, so that an older mapping never follows a newer one.
            let mapping = index.mapping();
            if mapping.version() == index.saved_mapping.load(Ordering::Relaxed) {
                continue;
            }
            let commit =
                Commit { mappings: vec![(index.meta().uuid, mapping.encode())], ..Commit::default() };
            match self.services.catalog.commit(&commit).await {
                // It was deleted meanwhile.
                Err(Error::IndexNotFound { .. }) => {}
                other => other?,
            }
            index.saved_mapping.store(mapping.version(), Ordering::Relaxed);
        }
        Ok(())
    }
}
