//! Copies of the files of restored indices that are searched already.
//!
//! A restore that is large makes its indices visible first; reads go to the repository. Then the files come here, segment by segment, and
//! the indices take writes once all are here. A start goes on with the copies that the process before has not ended. This store
//! does not delete the snapshot meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use millrace_catalog::metadata::RESTORE_PENDING;
use millrace_engine::{Engine, PendingSegment};
use millrace_runtime::{Error as StoreError, sync};
use millrace_segment::SegmentFile;
use uuid::Uuid;

use crate::digest::ContentDigest;
use crate::error::{Error, Result};
use crate::recovery::{IndexRecovery, ShardRecovery};
use crate::repository::Repository;
use crate::restoring::{RestoringGuard, check_space};
use crate::service::{SnapshotKey, SnapshotService};
use crate::side_by_side::try_side_by_side;
use crate::transfer_limits::TransferCheck;

/// Pause before copies are tried again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Segments that are to be copied, by the uuids of their indices.
pub(crate) type PendingCopies = BTreeMap<Uuid, Vec<PendingSegment>>;

/// Copies the files of a segment; returns whether they were missing.
async fn copy_segment(
    engine: &Engine,
    repository: &Repository,
    segment: &PendingSegment,
    check: TransferCheck<'_>,
) -> Result<bool> {
    if !engine.is_pending(segment) {
        return Ok(false);
    }
    let (bytes, origin) =
        (segment.files().map(|(_, bytes, _)| bytes).fold(0, u64::saturating_add), &segment.origin);
    check_space(engine, (&origin.repository, &origin.snapshot), bytes).await?;
    let mut files: Vec<(SegmentFile, PathBuf)> = Vec::new();
    let mut fetches = Vec::new();
    for (kind, bytes, path) in segment.files() {
        let scratch = engine.scratch_file();
        files.push((kind, scratch.clone()));
        fetches.push(async move {
            match path.filename().unwrap_or_default().parse::<ContentDigest>() {
                Ok(digest) => repository.fetch_content((digest, bytes), &scratch, check).await,
                Err(reason) => Err(Error::Repository {
                    repository: repository.name().to_owned(),
                    reason: format!("[{path}] is no content: {reason}"),
                }),
            }
        });
    }
    // All come to their end, so that none leaves a file under construction.
    let fetched: Result<()> = join_all(fetches).await.into_iter().collect();
    let copied = match fetched {
        Ok(()) => engine.complete_segment(segment, files.clone()).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    if copied.is_err() {
        for (_, scratch) in files {
            engine.remove_scratch(scratch).await;
        }
    }
    copied.map(|()| true)
}

impl SnapshotService {
    /// Copies the files of segments; `check` refuses to go on.
    ///
    /// # Errors
    /// The repository's, and those of a file that is not what was written. What is copied stays.
    pub(crate) async fn copy_segments(
        &self,
        repository: &Repository,
        segments: &[PendingSegment],
        check: TransferCheck<'_>,
    ) -> Result<()> {
        let copies = segments.iter().map(|segment| async move {
            check()?;
            if copy_segment(&self.inner.engine, repository, segment, check).await? {
                let (index, shard) = (segment.record.index, segment.record.shard);
                let recoveries = &self.inner.recoveries;
                segment.files().for_each(|(_, bytes, _)| recoveries.note_file(&index, shard, bytes));
            }
            Ok(())
        });
        try_side_by_side(copies.collect()).await.map(drop)
    }

    /// Goes on with the copies of the process before: reads find the repositories, and the files come in the background.
    pub(crate) async fn resume_copies(&self) -> Result<()> {
        let engine = &self.inner.engine;
        let Some(pending) = engine.take_pending_segments() else { return Ok(()) };
        let waiting: HashSet<Uuid> = pending.iter().map(|segment| segment.record.index).collect();
        let metadata = engine.metadata();
        let is_complete = |uuid: &Uuid| !waiting.contains(uuid);
        let flagged = metadata.indices().filter(|meta| meta.flag(RESTORE_PENDING)).map(|meta| meta.uuid);
        let complete: Vec<Uuid> = flagged.filter(is_complete).collect();
        if !complete.is_empty() {
            engine.complete_restore(&complete).await?;
        }
        let mut copies: BTreeMap<SnapshotKey, PendingCopies> = BTreeMap::new();
        for segment in pending {
            let key = (segment.origin.repository.clone(), segment.origin.snapshot.clone());
            copies.entry(key).or_default().entry(segment.record.index).or_default().push(segment);
        }
        for (key, copies) in copies {
            let (repository, snapshot) = &key;
            tracing::info!(repository, snapshot, indices = copies.len(), "a restore goes on");
            let guard = RestoringGuard::begin(&self.inner, key.clone()).await?;
            self.resume_recoveries(&key, &copies);
            match self.repository(repository).await {
                Ok(open) => open_pending(engine, &open, &copies),
                Err(error) => {
                    tracing::warn!(repository, snapshot, %error, "restored indices are not read until the repository is there");
                }
            }
            self.copy_in_background(guard, copies);
        }
        Ok(())
    }

    /// Notes restores of the process before, as far as their files are left.
    fn resume_recoveries(&self, (repository, snapshot): &SnapshotKey, copies: &PendingCopies) {
        let (metadata, now_ms) = (self.inner.engine.metadata(), self.inner.engine.clock().now_ms());
        for meta in metadata.indices() {
            let Some(segments) = copies.get(&meta.uuid) else { continue };
            let shard = |number: u32| -> ShardRecovery {
                let own = segments.iter().filter(|segment| segment.record.shard == number);
                own.flat_map(|segment| segment.files().map(|(_, bytes, _)| bytes)).collect()
            };
            let recovery = IndexRecovery {
                index: meta.name.to_string(),
                repository: repository.clone(),
                snapshot: snapshot.clone(),
                source_index: None,
                started_ms: now_ms,
                ended_ms: None,
                shards: (0..meta.shards).map(shard).collect(),
            };
            self.inner.recoveries.begin(meta.uuid, recovery);
        }
    }

    /// Copies the files of a restore until all are here.
    pub(crate) fn copy_in_background(&self, guard: RestoringGuard, mut copies: PendingCopies) {
        let service = Arc::downgrade(&self.inner);
        sync::detached(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                // A service that has ended keeps no store open.
                let Some(inner) = service.upgrade() else { return };
                let service = SnapshotService { inner };
                match service.copy_pending(guard.key(), &mut copies).await {
                    Ok(()) => return,
                    Err(_) if service.inner.engine.is_stopping() => return,
                    Err(error) => {
                        let (repository, snapshot) = guard.key();
                        tracing::warn!(repository, snapshot, %error, "a restore does not go on, it is tried again");
                    }
                }
                drop(service);
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(MAX_PAUSE);
            }
        });
    }

    /// Copies what is left of a restore, and has its indices take writes. What is copied leaves `copies`.
    async fn copy_pending(&self, key: &SnapshotKey, copies: &mut PendingCopies) -> Result<()> {
        let engine = &self.inner.engine;
        let repository = self.repository(&key.0).await?;
        open_pending(engine, &repository, copies);
        let mut failed = None;
        for uuid in copies.keys().copied().collect::<Vec<_>>() {
            // A damaged file of one index keeps no other from its end.
            match self.copy_index(&repository, (uuid, &copies[&uuid])).await {
                Ok(()) => _ = copies.remove(&uuid),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Copies the files of an index, if it is still there, and has it take writes.
    async fn copy_index(
        &self,
        repository: &Repository,
        (uuid, segments): (Uuid, &[PendingSegment]),
    ) -> Result<()> {
        let engine = &self.inner.engine;
        if engine.metadata().indices().any(|meta| meta.uuid == uuid) {
            // A slow copy does not hold up a shutdown: the next start goes on with it.
            let check = || match engine.is_stopping() {
                true => Err(StoreError::Stopped("the server is stopping".to_owned())),
                false => Ok(()),
            };
            self.copy_segments(repository, segments, &check).await?;
            engine.complete_restore(&[uuid]).await?;
        }
        self.end_recoveries(&[uuid]);
        Ok(())
    }
}

fn open_pending(engine: &Engine, repository: &Repository, copies: &PendingCopies) {
    for segment in copies.values().flatten() {
        engine.open_pending(segment, repository.objects());
    }
}
