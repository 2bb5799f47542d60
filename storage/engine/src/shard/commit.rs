//! Flush and compaction: how rows move into stored segments, and how that becomes true at once in
//! the catalog and in what searches see.
//!
//! A commit uploads first and commits second: a crash leaves orphan files, which start-up
//! collects, never a catalog row without its file. Deletions that arrive while a segment is being
//! made are carried over to it: into the commit's deletes files (which are durable only after the
//! log frames that caused them), and into the new segment's bitmaps under the shard's lock.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use millrace_catalog::description::SegmentCoverage;
use millrace_catalog::{Catalog, Commit, SegmentRecord, TombstoneChange};
use millrace_runtime::{CancelSignal, Error, Priority, Result, sync};
use millrace_segment::bundle::RowMap;
use millrace_segment::{
    self as segment, DeletesFile, Env, MergeInput, MergeOutput, MergeTarget, Segment, StoredSegment, next_key,
};
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::describe::WrittenDescription;
use super::group::Commits;
use super::policy::{choose_compaction, choose_force_merge};
use super::state::{SegmentState, State};
use super::{Shard, WriteLock};
use crate::wal::Wal;

/// Rows of a segment from which on it is opened before anybody asks it.
const WARM_ROWS: u32 = 1_024;

/// Services of the engine for commits.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(crate) env: Env,
    pub(crate) catalog: Arc<dyn Catalog>,
    /// Set once the log is open; a flush during recovery needs no log, its frames are durable.
    pub(crate) wal: Arc<OnceLock<Arc<Wal>>>,
    /// The commits with mappings, over all shards.
    pub(crate) commits: Arc<Commits>,
    /// Directory for files under construction.
    pub(crate) scratch: Arc<Path>,
    /// Directories of unused segments that could not be deleted, to be tried again.
    pub(crate) leftovers: Arc<Mutex<Vec<object_store::path::Path>>>,
}

/// Leftovers that are remembered; the next start finds the others.
const MAX_LEFTOVERS: usize = 10_000;

/// A flush keeps deleted rows if they are at most one in so many.
const KEPT_SHARE: u64 = 3;

/// A force merge: it ends, however much is written meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForceMerge {
    max_segments: usize,
    /// It is about segments with operations below this sequence number.
    below: u64,
    /// Segments with greater keys came into being since.
    last_key: u64,
}

/// A segment with deletions that no file has yet, the generation of the file to be, the deletions.
type UnsavedDeletions = (SegmentRecord, u64, RoaringBitmap);

/// Commits that failed without telling whether they happened.
#[derive(Clone, Debug, Default)]
pub(super) struct UncertainCommits {
    /// Their new segments.
    segments: Vec<Uuid>,
    /// Their deletes files.
    deletes: Vec<object_store::path::Path>,
}

/// Changes of a commit in memory.
struct InstalledCommit {
    /// Deletes files that are stale now.
    stale: Vec<object_store::path::Path>,
    /// Bytes of memory that are free now.
    freed: u64,
    replaced: Vec<SegmentState>,
}

/// Marks of what a flush or compaction took up.
struct CommitInputs {
    inputs: Vec<MergeInput>,
    keys: Vec<u64>,
    level: u32,
    /// `(seq_no, frame)` below which everything is covered, for a flush.
    below: Option<(u64, u64)>,
    /// Change of the catalog's tombstones by a flush.
    tombstones: Option<TombstoneChange>,
    /// Bytes that are accounted for the deletions that a flush stores.
    deletion_bytes: u64,
    /// Begin of a flush: operations that are not below came later.
    at_ms: i64,
}

impl CommitInputs {
    /// Returns the priority of its work.
    fn priority(&self) -> Priority {
        match self.below {
            Some(_) => Priority::Flush,
            None => Priority::Background,
        }
    }
}

impl Shard {
    /// Writes everything applied so far into a stored segment and commits it. Returns the bytes of
    /// memory that this frees.
    pub(crate) async fn flush(&self, services: &Services, now_ms: i64) -> Result<u64> {
        sync::scope(self.flush_all(services, now_ms)).await
    }

    async fn flush_all(&self, services: &Services, now_ms: i64) -> Result<u64> {
        let _one = self.flushing.lock().await;
        self.refresh(&services.env, now_ms).await?;
        let captured = {
            let state = self.state.read();
            if state.closed || state.committed_below.0 == state.frozen_below.0 {
                return Ok(0);
            }
            let memory = state.segments.iter().filter(|s| s.segment.as_memory().is_some());
            let deletion_bytes = state.deletions.frozen;
            CommitInputs { at_ms: now_ms, deletion_bytes, ..capture(memory, 0, Some(state.frozen_below)) }
        };
        let mut captured = match captured.inputs.iter().all(|input| input.deleted.is_empty()) {
            true => captured,
            false => services.env.compute.run(Priority::Flush, move || Ok(keep_deleted(captured))).await?,
        };
        captured.tombstones = captured.below.map(|below| self.collect_tombstones(below.0));
        let freed = self.replace(services, captured, CancelSignal::default()).await?;
        self.counters.flush.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(freed)
    }

    /// Marks what a force merge is about: what is in stored segments now. Segments with keys greater than
    /// `last_key` are not written again only because rows of them are deleted.
    pub(crate) fn force_merge(&self, max_segments: usize, last_key: u64) -> ForceMerge {
        ForceMerge { max_segments, below: self.state.read().committed_below.0, last_key }
    }

    /// Bytes that the compaction would read that the shape, or a force merge, asks for now; `None` where it asks
    /// for none.
    pub(crate) fn compaction_bytes(&self, force: Option<ForceMerge>) -> Option<u64> {
        let state = self.state.read();
        let chosen = choose(&state, force)?;
        Some(chosen.iter().map(|segment| segment.size().live_bytes).sum())
    }

    /// Runs one compaction if the shape, or a force merge, asks for it. Returns whether it did anything.
    ///
    /// # Errors
    /// [`Error::Cancelled`] once the signal is given: then nothing has changed.
    pub(crate) async fn compact(
        &self,
        services: &Services,
        force: Option<ForceMerge>,
        cancel: CancelSignal,
    ) -> Result<bool> {
        sync::scope(self.compact_once(services, force, cancel)).await
    }

    async fn compact_once(
        &self,
        services: &Services,
        force: Option<ForceMerge>,
        cancel: CancelSignal,
    ) -> Result<bool> {
        let _one = self.compacting.lock().await;
        let captured = {
            let state = self.state.read();
            let Some(chosen) = choose(&state, force) else { return Ok(false) };
            let level = chosen
                .iter()
                .filter_map(|s| s.segment.as_stored())
                .map(|s| s.record.level + 1)
                .max()
                .unwrap_or(1);
            capture(chosen.into_iter(), level, None)
        };
        self.replace(services, captured, cancel).await?;
        self.counters.merge.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(true)
    }

    /// Makes one segment of the captured ones and puts it in their place. Returns the bytes of memory
    /// that this frees.
    async fn replace(
        &self,
        services: &Services,
        captured: CommitInputs,
        cancel: CancelSignal,
    ) -> Result<u64> {
        cancel.check()?;
        {
            let _commit = self.committing.lock().await;
            self.resolve_doubtful(services).await?;
        }
        let mapping = self.mapping.load_full();
        let sort = Arc::clone(&self.sort);
        let target = MergeTarget {
            index: self.index,
            shard: self.number,
            level: captured.level,
            zstd_level: self.zstd_level(),
            sort,
            cancel: cancel.clone(),
        };
        let (inputs, mapping_of_job, scratch) =
            (captured.inputs.clone(), mapping, Arc::clone(&services.scratch));
        let output = services
            .env
            .compute
            .run(captured.priority(), move || segment::merge(&inputs, &mapping_of_job, &target, &scratch))
            .await?;
        cancel.check()?;
        if let Some(output) = &output
            && let Err(error) =
                services.env.objects.put_files(&output.files).await.and_then(|_| cancel.check())
        {
            // Nobody knows of this segment: what there is of it only takes up space.
            self.delete_files(services, output.record.id).await;
            return Err(error);
        }
        self.install(services, &captured, output).await
    }

    /// Brings the catalog back to what this process goes by, after a commit that failed without
    /// telling whether it happened: otherwise rows could be committed a second time.
    async fn resolve_doubtful(&self, services: &Services) -> Result<()> {
        let Some(doubtful) = self.doubtful.lock().clone() else { return Ok(()) };
        let mut commit = Commit { removed: doubtful.segments.clone(), ..Default::default() };
        {
            let state = self.state.read();
            commit.checkpoints.push(self.checkpoint(&state, state.committed_below));
            let below = state.committed_below.0;
            commit.tombstones.push(state.tombstones.to_commit(self.index, self.number, below));
            commit.put.extend(state.segments.iter().filter_map(SegmentState::record));
        }
        services.catalog.commit(&commit).await?;
        *self.doubtful.lock() = None;
        for id in doubtful.segments {
            self.delete_files(services, id).await;
        }
        delete_attempts(services, &doubtful.deletes).await;
        Ok(())
    }

    pub(super) async fn delete_files(&self, services: &Services, segment: Uuid) {
        let deleted = segment::delete_files(&services.env.objects, self.index, self.number, segment).await;
        if let Err(error) = deleted {
            let directory = millrace_catalog::description::directory_path(self.index, self.number, segment);
            tracing::warn!(%directory, %error, "cannot delete an unused segment; it will be tried again");
            let mut leftovers = services.leftovers.lock();
            if leftovers.len() < MAX_LEFTOVERS {
                leftovers.push(directory);
            }
        }
    }

    /// Commits the new segment and swaps it in.
    async fn install(
        &self,
        services: &Services,
        captured: &CommitInputs,
        mut output: Option<MergeOutput>,
    ) -> Result<u64> {
        let _commit = self.committing.lock().await;
        self.resolve_doubtful(services).await?;
        let mut unsaved: Vec<UnsavedDeletions> = Vec::new();
        let mut commit = Commit::default();
        let account;
        let last_frame = {
            // Under the write lock, so that no batch is applied by half.
            let _lock = self.write_lock().await;
            let state = self.state.read();
            // Deletions of segments that stay, which no file has yet.
            for segment in &state.segments {
                if let Some(stored) = segment.segment.as_stored()
                    && !captured.keys.contains(&segment.segment.key())
                    && segment.live.len() != u64::from(segment.deletes.rows)
                {
                    unsaved.push((
                        stored.record.clone(),
                        segment.deletes.generation + 1,
                        segment.live.clone(),
                    ));
                }
            }
            account = self.account(&state, &captured.keys, captured.below, output.is_some(), services);
            if let Some(output) = &mut output {
                account.keep_in(&mut output.record);
                let (live, _) = carried_over(&state, captured, output);
                let record = output.record.clone();
                if live.is_empty() {
                    commit.put.push(record);
                } else {
                    unsaved.push((record, 1, live));
                }
            }
            for segment in &state.segments {
                if captured.keys.contains(&segment.segment.key())
                    && let Some(stored) = segment.segment.as_stored()
                {
                    commit.removed.push(stored.record.id);
                }
            }
            if let Some(below) = captured.below {
                commit.checkpoints.push(self.checkpoint(&state, below));
                // The log has the later ones.
                commit.tombstones.extend(captured.tombstones.clone());
            }
            state.next_frame.checked_sub(1)
        };
        // A deletion may be kept only once the operation that caused it cannot be lost.
        if let (Some(frame), Some(wal)) = (last_frame, services.wal.get()) {
            wal.synced(frame).await?;
        }
        let mut deletes: Vec<(SegmentRecord, DeletesFile)> = Vec::with_capacity(unsaved.len());
        let record = output.as_ref().map(|output| output.record.clone());
        let id = record.as_ref().map(|record| record.id);
        let written =
            self.write_objects(services, account, (&unsaved, &mut deletes), &mut commit, record).await;
        let attempts: Vec<_> = deletes.iter().map(|(record, file)| file.path(record)).collect();
        let described = match written {
            Ok(described) => described,
            Err(error) => {
                // The catalog knows of none of it, and other attempts have other names.
                if let Some(id) = id {
                    self.delete_files(services, id).await;
                }
                delete_attempts(services, &attempts).await;
                return Err(error);
            }
        };
        let committed = services.commits.commit(&*services.catalog, commit, self.index, &self.mapping).await;
        if let Ok(version) = committed {
            self.saved_mapping.fetch_max(version, std::sync::atomic::Ordering::Relaxed);
        }
        if let Err(error) = committed {
            match &error {
                Error::IndexNotFound { .. } => self.delete_files(services, described.id).await,
                _ => {
                    let mut doubtful = self.doubtful.lock();
                    let doubtful = doubtful.get_or_insert_default();
                    doubtful.segments.extend(id);
                    doubtful.deletes.extend(attempts);
                }
            }
            return Err(error);
        }
        self.described(services, described, captured.below.is_some() || output.is_none()).await;

        let made = output.map(|output| {
            let stored = StoredSegment::new(output.record.clone(), services.env.clone());
            (Arc::new(Segment::stored(next_key(), services.env.compute.clone(), stored)), output)
        });
        if let Some((segment, _)) = made.as_ref().filter(|(segment, _)| segment.rows() >= WARM_ROWS) {
            // So that the first get does not have to; its own error tells what this one may find.
            let segment = Arc::clone(segment);
            let warm = move || segment.as_stored().map_or(Ok(()), StoredSegment::warm);
            if let Err(error) = services.env.compute.run(captured.priority(), warm).await {
                tracing::warn!(index = %self.index, shard = self.number, %error, "cannot read a new segment");
            }
        }
        let InstalledCommit { stale, freed, replaced } = {
            let _view = self.refreshing.lock().await;
            let write = self.write_lock().await;
            self.install_in_memory(&write, captured, made, &deletes)
        };
        // Freeing a large memtable takes its time, and is nobody's to wait for.
        let freeing = sync::blocking(move || {
            drop(replaced);
            Ok(())
        });
        sync::detached(async move { drop(freeing.await) });
        for path in stale {
            if let Err(error) = services.env.objects.delete(&path).await {
                tracing::warn!(%path, %error, "cannot delete a superseded deletes file");
            }
        }
        Ok(freed)
    }

    /// Writes the deletes files and the description of a commit. `deletes` receives each file before its attempt, so the
    /// caller can delete what a failure leaves.
    async fn write_objects(
        &self,
        services: &Services,
        account: SegmentCoverage,
        (unsaved, deletes): (&[UnsavedDeletions], &mut Vec<(SegmentRecord, DeletesFile)>),
        commit: &mut Commit,
        record: Option<SegmentRecord>,
    ) -> Result<WrittenDescription> {
        for (record, generation, bitmap) in unsaved {
            let (file, bytes) = DeletesFile::encode(bitmap, *generation)?;
            let mut record = record.clone();
            file.write_to(&mut record);
            let path = file.path(&record);
            deletes.push((record.clone(), file));
            services.env.objects.put(&path, bytes).await?;
            commit.put.push(record);
        }
        // Last of the objects: what has a description is whole, and so is all that goes with it.
        self.describe(services, account, commit, record).await
    }

    /// The part of a commit that searches and writers see.
    fn install_in_memory(
        &self,
        write: &WriteLock<'_>,
        captured: &CommitInputs,
        made: Option<(Arc<Segment>, MergeOutput)>,
        deletes: &[(SegmentRecord, DeletesFile)],
    ) -> InstalledCommit {
        // Worked out beside readers: nothing changes while the write lock is held.
        let replacement = made.map(|(segment, output)| {
            let (live, published) = carried_over(&self.state.read(), captured, &output);
            let file = deletes.iter().find(|(record, _)| record.id == output.record.id);
            SegmentState {
                segment,
                live,
                published: Arc::new(published),
                deletes: file.map(|(_, file)| *file).unwrap_or_default(),
                first_frame: None,
                bytes: 0,
                since_ms: 0,
            }
        });
        let mut state = write.state();
        let mut stale = Vec::new();
        for (record, file) in deletes {
            if let Some(segment) = state
                .segments
                .iter_mut()
                .find(|s| s.segment.as_stored().is_some_and(|s| s.record.id == record.id))
            {
                if segment.deletes.generation > 0 {
                    stale.push(segment.deletes.path(record));
                }
                segment.deletes = *file;
            }
        }
        let replaced = self.swap(&mut state, captured, replacement);
        let deletions = state.deletions.store(captured.deletion_bytes);
        let freed = match state.closed {
            true => 0,
            false => replaced.iter().map(|s| s.bytes).sum::<u64>() + deletions,
        };
        InstalledCommit { stale, freed, replaced }
    }

    /// Puts the replacement where the first captured segment was and publishes the view. Returns what
    /// it replaced.
    fn swap(
        &self,
        state: &mut State,
        captured: &CommitInputs,
        replacement: Option<SegmentState>,
    ) -> Vec<SegmentState> {
        let at = state.segments.iter().position(|s| captured.keys.contains(&s.segment.key()));
        let replaced: Vec<_> =
            state.segments.extract_if(.., |s| captured.keys.contains(&s.segment.key())).collect();
        if let Some(replacement) = replacement {
            state.segments.insert(at.unwrap_or(0).min(state.segments.len()), replacement);
        }
        if let Some(below) = captured.below {
            state.committed_below = below;
            if let Some(change) = &captured.tombstones {
                state.tombstones.changed(change);
            }
            if state.next_frame <= below.1 {
                state.tail.first_frame = None;
            } else if state.tail.first_frame.is_some_and(|first| first < below.1) {
                // A tail of deletions alone outlives the flush that has covered its first.
                state.tail.first_frame = Some(below.1);
                state.tail.since_ms = state.tail.since_ms.max(captured.at_ms);
            }
            // Ids of the flushed rows are found in the new segment's sidecar from now on.
            if let Some(key) = captured.keys.iter().max() {
                state.versions.flushed(*key);
            }
        }
        self.publish(state);
        for segment in &replaced {
            segment.segment.discard();
        }
        if state.closed {
            // What comes of the flush of a deleted index goes the way of its other files.
            state.segments.iter().for_each(|s| s.segment.discard_with_index());
        }
        replaced
    }

    /// Ends the shard of a deleted index: it takes no more operations, nobody waits for it, and its
    /// files go once no search uses them any more. Returns the bytes of memory that this frees.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state.write();
        if state.closed {
            return 0;
        }
        state.closed = true;
        for segment in &state.segments {
            segment.segment.discard_with_index();
        }
        self.searchable.send_replace(u64::MAX);
        state.unflushed_bytes()
    }
}

/// Deletes the deletes files of attempts that came to nothing. What the object store refuses now, a later start collects.
async fn delete_attempts(services: &Services, files: &[object_store::path::Path]) {
    for path in files {
        if let Err(error) = services.env.objects.delete(path).await {
            tracing::warn!(%path, %error, "cannot delete an unused deletes file; a later start will");
        }
    }
}

/// Keeps the deleted rows of a flush where they are few: as in Lucene, what was deleted counts in the
/// statistics of scores until a merge drops it. Rows of operations that were refused go: they never
/// were documents.
fn keep_deleted(mut captured: CommitInputs) -> CommitInputs {
    let rows: u64 = captured.inputs.iter().map(|input| u64::from(input.segment.rows())).sum();
    let deleted: u64 = captured.inputs.iter().map(|input| input.deleted.len()).sum();
    if deleted.saturating_mul(KEPT_SHARE) <= rows {
        for input in &mut captured.inputs {
            if let Some(memory) = input.segment.as_memory() {
                input.deleted = input.deleted.iter().filter(|row| memory.is_refused(*row)).collect();
            }
        }
    }
    captured
}

/// Chooses the segments that a compaction makes one of; `None` where there is nothing to do.
fn choose(state: &State, force: Option<ForceMerge>) -> Option<Vec<&SegmentState>> {
    if state.closed {
        return None;
    }
    let bound = force.map_or(u64::MAX, |force| force.below);
    let stored: Vec<&SegmentState> = state
        .segments
        .iter()
        .filter(|s| s.segment.as_stored().is_some_and(|s| s.record.min_seq_no < bound))
        .collect();
    let sizes: Vec<_> = stored.iter().map(|s| s.size()).collect();
    let chosen = match force {
        Some(ForceMerge { max_segments, last_key, .. }) => {
            let fresh: Vec<bool> = stored.iter().map(|s| s.segment.key() > last_key).collect();
            choose_force_merge(&sizes, &fresh, max_segments)
        }
        None => choose_compaction(&sizes),
    };
    Some(stored[chosen?].to_vec())
}

fn capture<'a>(
    segments: impl Iterator<Item = &'a SegmentState>,
    level: u32,
    below: Option<(u64, u64)>,
) -> CommitInputs {
    let (inputs, keys) = Default::default();
    let mut captured =
        CommitInputs { inputs, keys, level, below, tombstones: None, deletion_bytes: 0, at_ms: 0 };
    for segment in segments {
        captured.keys.push(segment.segment.key());
        captured.inputs.push(MergeInput {
            segment: Arc::clone(&segment.segment),
            deleted: segment.published.as_ref().clone(),
        });
    }
    captured
}

/// Deletions of the captured segments that came after the capture, as rows of the output: all of
/// them, and those that searches see already.
fn carried_over(
    state: &State,
    captured: &CommitInputs,
    output: &MergeOutput,
) -> (RoaringBitmap, RoaringBitmap) {
    let (mut live, mut published) = (RoaringBitmap::new(), RoaringBitmap::new());
    for ((input, key), map) in captured.inputs.iter().zip(&captured.keys).zip(&output.maps) {
        let Some(now) = state.segments.iter().find(|s| s.segment.key() == *key) else { continue };
        live.extend(new_rows(&input.deleted, &now.live, map));
        published.extend(new_rows(&input.deleted, &now.published, map));
    }
    (live, published)
}

/// Rows of the output that the rows deleted `now` but not at the capture (`before`) became.
fn new_rows(before: &RoaringBitmap, now: &RoaringBitmap, map: &RowMap) -> Vec<u32> {
    (now - before).iter().filter_map(|row| map.of(row)).collect()
}
