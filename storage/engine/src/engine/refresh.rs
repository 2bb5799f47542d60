//! Refreshes, flushes and merges that somebody asks for, of all shards of some indices; `upkeep.rs` does them where they are due.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use millrace_runtime::tasks::TaskHandle;
use millrace_runtime::{CancelSignal, Instant, Result};

use super::index::Index;
use super::maintenance_queue::Item;
use super::{Engine, Inner};
use crate::shard::Shard;

/// Shards that a request refreshes or flushes at a time.
const SIDE_BY_SIDE: usize = 128;

impl Engine {
    /// Makes everything written so far visible to search.
    ///
    /// # Errors
    /// An in-memory segment cannot be built.
    pub fn refresh<'a>(&'a self, indices: &'a [Arc<Index>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.each_shard(indices, Inner::refresh_one).await })
    }

    /// Writes memtables out as segments and commits them.
    ///
    /// # Errors
    /// The object store or the catalog fails; what was not flushed stays in memory and log.
    pub fn flush<'a>(&'a self, indices: &'a [Arc<Index>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.each_shard(indices, Inner::flush_one).await?;
            self.inner.cut_log().await
        })
    }

    /// Does work on every shard, some at a time; all of it, whatever fails.
    async fn each_shard<F>(&self, indices: &[Arc<Index>], work: fn(Arc<Inner>, Item) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        let items: Vec<Item> = indices.iter().flat_map(Item::all_of).collect();
        let mut items = items.into_iter();
        let mut running = FuturesUnordered::new();
        let mut done = Ok(());
        loop {
            while running.len() < SIDE_BY_SIDE
                && let Some(item) = items.next()
            {
                running.push(work(Arc::clone(&self.inner), item));
            }
            match running.next().await {
                None => return done,
                Some(one) => done = done.and(one),
            }
        }
    }

    /// Compacts each shard to at most so many segments, after a flush; what is written meanwhile comes on
    /// top.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub fn force_merge<'a>(
        &'a self,
        indices: &'a [Arc<Index>],
        max_segments: usize,
    ) -> BoxFuture<'a, Result<()>> {
        self.force_merge_in_task(indices, max_segments, None)
    }

    /// Does what [`Engine::force_merge`] does, and ends once a task is cancelled: a merge that is not committed by then changes
    /// nothing and leaves no file.
    pub(crate) fn force_merge_in_task<'a>(
        &'a self,
        indices: &'a [Arc<Index>],
        max_segments: usize,
        task: Option<TaskHandle>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let cancel = CancelSignal::default();
            let merged = self.merge_shards(indices, max_segments, &cancel);
            let Some(task) = task else { return merged.await };
            task.set_cancellable();
            let ended = task.run(merged).await;
            ended.unwrap_or_else(|_| {
                cancel.cancel();
                // A merge that is being committed leaves files to be looked after.
                for index in indices {
                    index.shards().iter().for_each(|shard| self.inner.agenda.report(index, shard));
                }
                Ok(())
            })
        })
    }

    async fn merge_shards(
        &self,
        indices: &[Arc<Index>],
        max_segments: usize,
        cancel: &CancelSignal,
    ) -> Result<()> {
        // What the flush writes keeps its deletions, as OpenSearch's merges keep those of the last commit on.
        let last_key = millrace_segment::next_key();
        self.flush(indices).await?;
        for index in indices {
            for shard in index.shards() {
                let merge = shard.force_merge(max_segments, last_key);
                while self.inner.compact_shard(shard, Some(merge), cancel).await? {}
                self.inner.agenda.report(index, shard);
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Makes everything written so far to a shard visible to search.
    pub(super) async fn refresh_shard(&self, shard: &Shard) -> Result<()> {
        let began = Instant::now();
        let refreshed = shard.refresh(self.env(), self.clock.now_ms()).await;
        self.timings.refresh.record(began.elapsed());
        refreshed
    }

    async fn refresh_one(self: Arc<Self>, item: Item) -> Result<()> {
        if item.shard.read().dirty() {
            self.refresh_shard(&item.shard).await?;
            self.agenda.report(&item.index, &item.shard);
        }
        Ok(())
    }

    async fn flush_one(self: Arc<Self>, item: Item) -> Result<()> {
        if item.shard.read().needs_flush() {
            self.flush_shard(&item.shard).await?;
            self.agenda.report(&item.index, &item.shard);
        }
        Ok(())
    }
}
