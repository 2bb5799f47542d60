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
use crate::shard::Shard;
use crate::{Error, Result};

/// Pause between two looks at the shards.
const BEAT: Duration = Duration::from_millis(50);
/// Pause after a failed flush or compaction before the next try.
const BACK_OFF: Duration = Duration::from_secs(2);
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
    let pressed = inner.budget.used() > inner.budget.max() / 2;
    let log_full = inner.wal().is_ok_and(|wal| wal.bytes() > inner.config.wal_max_bytes);
    let mut largest: Option<(u64, Arc<Shard>)> = None;
    let mut oldest: Option<(u64, Arc<Shard>)> = None;
    for index in inner.all_indices() {
        for shard in index.shards() {
            if index.refresh_due(shard, now_ms) {
                spawn_refresh(inner, &index, shard);
            }
            let (bytes, since_ms, first_frame) = {
                let mut guard = shard.lock();
                if clean_up {
                    guard.forget_tombstones(now_ms, gc_deletes_ms(&index.meta()));
                }
                let (bytes, since_ms) = guard.unflushed();
                (bytes, since_ms, guard.first_uncommitted_frame())
            };
            let old = since_ms.is_some_and(|since| {
                now_ms - since > i64::try_from(inner.config.flush_age_secs).unwrap_or(0) * 1000
            });
            if bytes >= inner.config.flush_bytes || old {
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
    if pressed && let Some((_, shard)) = largest {
        spawn_flush(inner, &shard);
    }
    if log_full && let Some((_, shard)) = oldest {
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

fn spawn_refresh(inner: &Arc<Inner>, index: &Arc<Index>, shard: &Arc<Shard>) {
    let Some(running) = begin(inner, shard, Work::Refresh) else { return };
    let (inner, index, shard) = (Arc::clone(inner), Arc::clone(index), Arc::clone(shard));
    tokio::spawn(async move {
        let _running = running;
        if let Err(error) = shard.refresh(inner.env(), inner.clock.now_ms()).await {
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
                if flushed.is_ok() {
                    shard.counters.periodic_flush.fetch_add(1, Ordering::Relaxed);
                }
                flushed
            }
            Err(_) => return,
        };
        match flushed.and_then(|()| inner.cut_log()) {
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
            match shard.compact(&inner.services, None).await {
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
    /// Flushes one shard and gives its memory back.
    pub(super) async fn flush_shard(&self, shard: &Arc<Shard>) -> Result<()> {
        let freed = shard.flush(&self.services, self.clock.now_ms()).await?;
        self.budget.free(freed);
        Ok(())
    }

    /// Removes log files that no shard, position or reader needs any more.
    pub(super) fn cut_log(&self) -> Result<()> {
        let Some(wal) = self.services.wal.get() else { return Ok(()) };
        let mut below = wal.durable_frame().map_or(0, |frame| frame + 1);
        for index in self.all_indices() {
            for shard in index.shards() {
                if let Some(frame) = shard.lock().first_uncommitted_frame() {
                    below = below.min(frame);
                }
            }
        }
        below = below.min(self.leases.lock().least(wal, &self.config).unwrap_or(below));
        match wal.remove_below(below) {
            Err(error @ Error::Stopped(_)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot cut the log");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
