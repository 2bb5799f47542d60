//! Restored indices take their place in the store.
//!
//! Files of segments come first ([`Engine::adopt_segment`]), under a new index uuid and new segment ids: nothing names them yet, so
//! a crash leaves orphans. Then one transaction of the catalog has the indices, their mappings, segments and checkpoints
//! ([`Engine::install_restored`]), with positions of sources as of the same moment, and requests see them. Operations of a restored index are in no frame of this log: its shards
//! begin behind the newest durable frame, and readers of history leave out what is below `index.restored.seq_nos`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use millrace_catalog::access::Principal;
use millrace_catalog::description::{
    self, CoveredRanges, IndexDescription, SegmentCoverage, SegmentDescription,
};
use millrace_catalog::frame::FrameNumber;
use millrace_catalog::metadata::{IndexMeta, Metadata, MetadataChange};
use millrace_catalog::{Commit, Position, SegmentRecord, ShardCheckpoint};
use millrace_mapping::Mapping;
use millrace_runtime::{Error, Result, sync};
use millrace_segment::{DeletesFile, SegmentFile, file_path};
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::change::RestoredCommit;
use super::index::Index;
use super::recheck::recheck;
use super::{Engine, Inner};
use crate::shard::LoadedSegment;

/// Indices, and descriptions of one, that are loaded at once.
const AT_ONCE: usize = 8;

/// Files of a segment on the local disk; they are moved away.
#[derive(Clone, Debug)]
pub struct SegmentFiles {
    /// Each file and where it is.
    pub files: Vec<(SegmentFile, PathBuf)>,
}

/// A segment whose files the object store has, and no catalog yet.
#[derive(Clone, Debug)]
pub struct AdoptedSegment {
    record: SegmentRecord,
    deletes: DeletesFile,
    deleted: RoaringBitmap,
}

impl AdoptedSegment {
    pub(super) fn new(record: SegmentRecord, deletes: DeletesFile, deleted: RoaringBitmap) -> Self {
        Self { record, deletes, deleted }
    }

    fn location(&self) -> (Uuid, u32, Uuid) {
        (self.record.index, self.record.shard, self.record.id)
    }
}

/// A shard to be restored.
#[derive(Clone, Debug)]
pub struct RestoredShard {
    /// Number of the shard.
    pub number: u32,
    /// Primary term that it had.
    pub primary_term: u64,
    /// Sequence number of its next operation.
    pub next_seq_no: u64,
    /// Its segments.
    pub segments: Vec<AdoptedSegment>,
}

/// An index to be restored.
#[derive(Clone, Debug)]
pub struct RestoredIndex {
    /// Its uuid in this store, which its segments were adopted for.
    pub uuid: Uuid,
    /// Its mapping, encoded.
    pub mapping: Vec<u8>,
    /// Its shards.
    pub shards: Vec<RestoredShard>,
}

/// State that a restore brings into the store, all of it at once.
#[derive(Clone, Debug, Default)]
pub struct RestoredState {
    /// Its indices.
    pub indices: Vec<RestoredIndex>,
    /// Positions of sources, whatever their `frame`. A part that has a position in this store keeps it.
    pub positions: Vec<Position>,
}

/// Decides where restored indices go.
pub type RestoreDecision<'a> = Box<dyn FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send + 'a>;

impl Engine {
    /// Takes the files of a segment into the object store, under a new id, for a shard of an index to come.
    ///
    /// # Errors
    /// The object store's; what is left then is an orphan.
    pub async fn adopt_segment(
        &self,
        (index, shard): (Uuid, u32),
        record: &SegmentRecord,
        deleted: RoaringBitmap,
        files: SegmentFiles,
    ) -> Result<AdoptedSegment> {
        let objects = &self.inner.env().objects;
        let mut record = SegmentRecord { id: Uuid::new_v4(), index, shard, ..record.clone() };
        let targets: Vec<_> =
            files.files.into_iter().map(|(kind, file)| (file_path(&record, kind), file)).collect();
        let stored = async {
            objects.put_files(&targets).await?;
            if deleted.is_empty() {
                return Ok(DeletesFile::default());
            }
            let (file, bytes) = DeletesFile::encode(&deleted, 1)?;
            objects.put(&file.path(&record), bytes).await?;
            Ok(file)
        };
        match stored.await {
            Ok(deletes) => {
                deletes.write_to(&mut record);
                Ok(AdoptedSegment { record, deletes, deleted })
            }
            Err(error) => {
                self.discard_segments([(index, shard, record.id)]).await;
                Err(error)
            }
        }
    }

    /// Deletes the files of adopted segments that will not be used.
    pub async fn discard_adopted(&self, segments: impl IntoIterator<Item = AdoptedSegment>) {
        let segments: Vec<_> = segments.into_iter().map(|segment| segment.location()).collect();
        self.discard_segments(segments).await;
    }

    pub(super) async fn discard_segments(&self, segments: impl IntoIterator<Item = (Uuid, u32, Uuid)>) {
        for (index, shard, segment) in segments {
            let deleted = millrace_segment::delete_files(&self.inner.env().objects, index, shard, segment);
            if let Err(error) = deleted.await {
                tracing::warn!(%segment, %error, "cannot delete an unused segment; a later start will");
            }
        }
    }

    /// Makes restored indices, positions and other changes durable and visible, all at once. `decide` returns a `PutIndex` with the uuid of
    /// each restored index.
    ///
    /// # Errors
    /// The decision's; a mapping that cannot be used; [`Error::Rejected`] where another change came between. Then nothing has
    /// changed, and the segments are gone. After an error of the catalog its next start tells whether the indices are there.
    pub fn install_restored<'a>(
        &'a self,
        principal: &'a Principal,
        restored: RestoredState,
        decide: RestoreDecision<'a>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(sync::scope(async move {
            let shards = restored.indices.iter().flat_map(|index| &index.shards);
            let segments: Vec<_> =
                shards.flat_map(|shard| &shard.segments).map(AdoptedSegment::location).collect();
            let submitted = Arc::new(AtomicBool::new(false));
            let installed = self.install_decided(principal, restored, decide, &submitted).await;
            // What the catalog was asked to name may be durable.
            if installed.is_err() && !submitted.load(Ordering::Acquire) {
                self.discard_segments(segments).await;
            }
            installed
        }))
    }

    async fn install_decided(
        &self,
        principal: &Principal,
        restored: RestoredState,
        decide: RestoreDecision<'_>,
        submitted: &Arc<AtomicBool>,
    ) -> Result<()> {
        let inner = &self.inner;
        inner.check_accepting()?;
        // Checkpoints name this frame: a log that ends before it would be refused.
        let next_frame = inner.wal()?.next_frame();
        if let Some(last) = next_frame.checked_sub(1) {
            inner.wal()?.synced(last).await?;
        }
        // The lock comes later: nobody waits while the object store takes descriptions.
        let decided = inner.metadata.load_full();
        let changes = decide(&decided)?;
        let last_frame = next_frame.saturating_sub(1);
        let positions = inner.positions.select_missing(restored.positions, last_frame)?;
        let mut loads = Vec::with_capacity(restored.indices.len());
        for index in restored.indices {
            let put = changes.iter().find_map(|change| match change {
                MetadataChange::PutIndex { meta, .. } if meta.uuid == index.uuid => Some(Arc::clone(meta)),
                _ => None,
            });
            loads.extend(put.map(|meta| inner.load_restored(meta, index, next_frame)));
        }
        let mut commit = Commit { positions: positions.clone(), ..Commit::default() };
        let (mut created, mut mappings) = (Vec::new(), Vec::new());
        let mut loads = stream::iter(loads).buffered(AT_ONCE);
        while let Some(LoadedIndex { index, mapping, part }) = loads.try_next().await? {
            mappings.push((index.meta().uuid, mapping));
            commit.put.extend(part.put);
            commit.checkpoints.extend(part.checkpoints);
            created.push(index);
        }
        drop(loads);
        let one = inner.metadata_change.lock_owned().await;
        let current = inner.metadata.load_full();
        recheck(&decided, &current, &changes)?;
        let count = created.len();
        tracing::info!(principal = principal.name(), indices = count, "indices are restored");
        let (inner, installed) = (Arc::clone(inner), created.clone());
        let restored = RestoredCommit { commit, submitted: Arc::clone(submitted) };
        sync::uninterrupted(async move {
            inner.change_durably(one, current, changes, created, (mappings, Some(restored))).await?;
            inner.positions.add_restored(positions);
            Ok(())
        })
        .await?;
        for index in &installed {
            self.inner.agenda.report_all(index);
        }
        Ok(())
    }
}

impl Inner {
    /// Makes the running index of restored shards and describes its segments.
    async fn load_restored(
        &self,
        meta: Arc<IndexMeta>,
        restored: RestoredIndex,
        next_frame: FrameNumber,
    ) -> Result<LoadedIndex> {
        let RestoredIndex { mapping, shards, .. } = restored;
        let of = Arc::clone(&meta);
        let decode = move || {
            let mapping = Mapping::decode(&mapping, &of.settings)?;
            let encoded = mapping.encode();
            Ok((mapping, encoded))
        };
        let (mapping, encoded) = sync::blocking(decode).await?;
        let generation = self.services.catalog.generation();
        let described = IndexDescription::new(&meta, &mapping, generation)?;
        let (mut part, mut segments, mut rests) = (Commit::default(), Vec::new(), Vec::new());
        let mut descriptions = Vec::new();
        for shard in shards {
            if shard.number >= meta.shards {
                return Err(Error::Internal(format!(
                    "shard {} of [{}] is too many",
                    shard.number, meta.name
                )));
            }
            // Operations that were shown and lost may have the sequence numbers that come next, but not their term.
            let primary_term = shard.primary_term + 1;
            let covered = coverages(&shard, next_frame, generation);
            for (mut adopted, account) in shard.segments.into_iter().zip(covered.segments) {
                account.keep_in(&mut adopted.record);
                let record = Some(adopted.record.clone());
                let id = adopted.record.id;
                descriptions.push(self.describe_restored(
                    &described,
                    (shard.number, id),
                    account,
                    primary_term,
                    record,
                ));
                if let Some((_, greatest)) = &adopted.record.generated_ids {
                    self.ids.lock().observe(greatest);
                }
                part.put.push(adopted.record.clone());
                let AdoptedSegment { record, deletes, deleted } = adopted;
                segments.push(LoadedSegment { record, deletes, deleted });
            }
            if let Some(account) = covered.rest {
                let id = Uuid::new_v4();
                descriptions.push(self.describe_restored(
                    &described,
                    (shard.number, id),
                    account,
                    primary_term,
                    None,
                ));
                rests.push((shard.number, id));
            }
            part.checkpoints.push(ShardCheckpoint {
                index: meta.uuid,
                shard: shard.number,
                primary_term,
                next_seq_no: shard.next_seq_no,
                next_frame,
            });
        }
        stream::iter(descriptions).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let (env, clock) = (self.env(), &self.clock);
        let index = Index::new(meta, mapping, &part.checkpoints, segments, env, clock, &self.agenda);
        for (number, id) in rests {
            index.shard(number)?.has_rests(vec![id]);
        }
        Ok(LoadedIndex { index: Arc::new(index), mapping: encoded, part })
    }

    async fn describe_restored(
        &self,
        index: &IndexDescription,
        (shard, id): (u32, Uuid),
        account: SegmentCoverage,
        primary_term: u64,
        record: Option<SegmentRecord>,
    ) -> Result<()> {
        let described = SegmentDescription::new(index.clone(), shard, id, account, primary_term, record);
        self.env().objects.put(&described.path(), description::encode(&described)?).await
    }
}

/// A running index of restored shards.
struct LoadedIndex {
    index: Arc<Index>,
    /// Its mapping, encoded.
    mapping: Vec<u8>,
    /// Its segments and checkpoints.
    part: Commit,
}

/// The operations that each segment of a restored shard accounts for, and those that none does.
struct Coverages {
    segments: Vec<SegmentCoverage>,
    rest: Option<SegmentCoverage>,
}

/// Shares the operations of a shard out among its segments: each keeps its own, the last one takes what no segment has.
fn coverages(shard: &RestoredShard, next_frame: FrameNumber, generation: u64) -> Coverages {
    let mut segments: Vec<SegmentCoverage> = shard
        .segments
        .iter()
        .map(|segment| SegmentCoverage { next_frame, generation, ..SegmentCoverage::new(&segment.record) })
        .collect();
    let missing =
        CoveredRanges::union(segments.iter().map(|account| &account.covers)).missing(shard.next_seq_no);
    let rest = match segments.last_mut() {
        Some(last) => {
            last.covers = CoveredRanges::union([&last.covers, &missing]);
            None
        }
        None if missing.ranges().is_empty() => None,
        None => Some(SegmentCoverage { covers: missing, next_frame, generation }),
    };
    Coverages { segments, rest }
}
